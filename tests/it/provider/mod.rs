//! The commands that add, load, check and remove providers.

mod manifests;
mod temporary;
mod walkthrough;

use std::path::Path;
use std::process::Output;

use crate::support::ati::{command, stderr, stdout};

fn run(dir: &Path, args: &[&str]) -> Output {
    command(dir).args(args).output().unwrap()
}

fn good(dir: &Path, args: &[&str]) -> String {
    let output = run(dir, args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    stdout(&output)
}
