//! Files that programs write for their callers.

mod big;
mod hostile;
mod leaving;
mod run;

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::ati::{Proxy, Setup, command, write};
use crate::support::eventually;
use crate::support::http::Client;

const SECRET: &str = "planted-captured-secret";

/// Runs its first word, `--do=…`, as a shell script with the words after it: a program that writes
/// what a test wants it to.
const MANIFEST: &str = r#"
    [provider]
    name = 'bb'
    handler = 'cli'
    cli_command = '/bin/sh'
    cli_default_args = ['-c', 'script=${1#--do=}; shift; eval "$script"', 'bb']
    auth_type = 'none'
    cli_output_args = ['--output', '-o']
    [provider.cli_output_positional]
    'shot' = 0
    'browse screenshot' = 0
    [provider.cli_env]
    TOKEN = '${token}'
"#;

/// A proxy and a folder of a caller, with the same program.
struct World {
    proxy: Proxy,
    caller: TempDir,
    /// The temporary files of both.
    temporary: TempDir,
}

impl World {
    fn new() -> Self {
        World::with(&[])
    }

    fn with(env: &[(&str, &str)]) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let credentials = json!({"token": SECRET});
        let setup = Setup::new()
            .manifest("bb", MANIFEST)
            .credentials(&credentials)
            .env("TMPDIR", temporary.path().to_str().unwrap());
        let each = env.iter();
        let setup = each.fold(setup, |setup, (name, value)| setup.env(name, *value));
        let caller = tempfile::tempdir().unwrap();
        write(&caller.path().join("manifests/bb.toml"), MANIFEST);
        write(&caller.path().join("credentials"), credentials.to_string());
        World {
            proxy: setup.start(),
            caller,
            temporary,
        }
    }

    fn command(&self) -> std::process::Command {
        let mut command = command(self.caller.path());
        command
            .current_dir(self.caller.path())
            .env("TMPDIR", self.temporary.path());
        command
    }

    /// `ati run bb <words>`, here and through the proxy.
    fn run(&self, is_remote: bool, words: &[&str]) -> Output {
        let mut command = self.command();
        if is_remote {
            command.env("ATI_PROXY_URL", format!("http://{}", self.proxy.edge));
        }
        command.args(["run", "bb"]).args(words).output().unwrap()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.caller.path().join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.at(name)).unwrap()
    }

    fn post(&self, words: &[&str]) -> (u16, Value) {
        post(&mut self.proxy.client(), words)
    }

    /// Waits until no temporary file is left.
    fn assert_nothing_left(&self) {
        eventually("the temporary files are gone", || {
            names(self.temporary.path()).is_empty().then_some(())
        });
    }
}

fn post(client: &mut Client, words: &[&str]) -> (u16, Value) {
    let body = json!({"tool_name": "bb", "raw_args": words}).to_string();
    let headers = [("content-type", "application/json")];
    let answer = client.send("POST", "/call", &headers, body.as_bytes());
    (answer.status, answer.json())
}

/// Of the files in a folder, hidden ones included.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.unwrap().file_name().into_string().unwrap()
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}
