//! What `bench/programs.py` compares with: starts a program and waits for its end, so many times on
//! so many threads, and nothing else. Prints the seconds that this took.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::process::{Command, Stdio};
use std::time::Instant;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [program, each, threads] = words.as_slice() else {
        panic!("PROGRAM CALLS THREADS");
    };
    let (each, threads): (usize, usize) = (each.parse().unwrap(), threads.parse().unwrap());
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..each {
                    let output = Command::new(program).stdin(Stdio::null()).output();
                    assert!(output.unwrap().status.success());
                }
            });
        }
    });
    println!("{}", begun.elapsed().as_secs_f64());
}
