//! 500 MB in bounded memory. Run by `make test-full`.

use std::process::{Command, Stdio};

use super::World;
use crate::support::ati::stderr;

const SIZE: u64 = 500_000_000;
/// Of either process at its peak.
const MOST_MIB: u64 = 96;

fn peak(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024)
}

/// Runs it to its end, and tells its peak.
fn run_watched(mut command: Command) -> u64 {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        most = peak(child.id()).unwrap_or(most);
        std::thread::sleep(crate::support::POLL);
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    most
}

#[test]
#[ignore = "heavy"]
fn half_a_gigabyte_is_captured_in_bounded_memory() {
    let world = World::new();
    // Something else than zeros, with a name for each place in it.
    let script = format!(
        "--do=seq -f %015.0f 1000000 | head -c 16000000 > $2.part; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32; do cat $2.part; done | head -c {SIZE} > $2; rm $2.part"
    );
    for is_remote in [true, false] {
        let mut command = world.command();
        if is_remote {
            command.env("ATI_PROXY_URL", format!("http://{}", world.proxy.edge));
        }
        command.args(["run", "bb", &script, "shot", "big.bin"]);
        let client = run_watched(command);
        assert!(client < MOST_MIB, "the command took {client} MiB");
        let path = world.at("big.bin");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), SIZE);
        let sum = Command::new("sha256sum")
            .stdin(std::fs::File::open(&path).unwrap())
            .output();
        let sum = String::from_utf8(sum.unwrap().stdout).unwrap();
        let expected = Command::new("sh")
            .args(["-c", &format!("seq -f %015.0f 1000000 | head -c 16000000 > {0}.p; for i in $(seq 32); do cat {0}.p; done | head -c {SIZE} | sha256sum", path.display())])
            .output()
            .unwrap();
        assert_eq!(sum, String::from_utf8(expected.stdout).unwrap());
        std::fs::remove_file(path).unwrap();
    }
    let proxy = peak(world.proxy.pid()).unwrap();
    assert!(proxy < MOST_MIB, "the proxy took {proxy} MiB");
    world.assert_nothing_left();
}
