//! Signed requests of the command line: in enforce mode, by `ati sign`, and by the lines of
//! docs/admission.md.

mod commands;
mod sign;
mod snippets;
mod status;

use std::path::{Path, PathBuf};
use std::process::Output;

use ati::auth::token::{Claims, Signer};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::ati::{Proxy, Setup, command, stderr, stdout, tells_nothing, tool, write};
use crate::support::tokens::{claims, key_pair};
use crate::support::upstream::Upstream;

/// The hex of `planted-signing-secret`, which [`tells_nothing`] recognises.
const HEX: &str = "706c616e7465642d7369676e696e672d736563726574";

/// An edge with two tools and token keys.
struct Edge {
    /// Answers the tools' calls.
    #[allow(dead_code)]
    api: Upstream,
    proxy: Proxy,
    signer: Signer,
}

impl Edge {
    fn new(mode: &str) -> Self {
        let (signer, public) = key_pair();
        let (api, setup) = setup(mode);
        Edge {
            proxy: setup.jwt(&public).start(),
            api,
            signer,
        }
    }

    fn url(&self) -> String {
        format!("http://{}", self.proxy.edge)
    }

    fn token(&self, change: impl FnOnce(&mut Claims)) -> String {
        let mut claims = claims();
        change(&mut claims);
        self.signer.issue(&claims).unwrap()
    }

    /// A sandbox with a good token and this secret in a file.
    fn sandbox(&self, secret: Option<&str>) -> Sandbox {
        let mut sandbox = Sandbox::new();
        sandbox.set("ATI_PROXY_URL", &self.url());
        sandbox.set("ATI_SESSION_TOKEN", &self.token(|_| {}));
        if let Some(secret) = secret {
            sandbox.set_secret(secret);
        }
        sandbox
    }
}

fn setup(mode: &str) -> (Upstream, Setup) {
    let api = Upstream::echo();
    let tools = tool("shop:find", "description = 'Find things'") + &tool("shop:buy", "");
    let setup = Setup::new()
        .credentials(&json!({"sandbox_signing_shared_secret": HEX}))
        .tools("shop", &api.url(), "", &tools)
        .arg("--sig-verify-mode")
        .arg(mode);
    (api, setup)
}

/// Where the command line runs: a folder without manifests or keys, and variables.
struct Sandbox {
    dir: TempDir,
    env: Vec<(String, String)>,
}

impl Sandbox {
    fn new() -> Self {
        Sandbox {
            dir: tempfile::tempdir().unwrap(),
            env: Vec::new(),
        }
    }

    fn set(&mut self, name: &str, value: &str) {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// The secret in a file, as a supervisor provides it.
    fn set_secret(&mut self, secret: &str) -> PathBuf {
        let file = self.path().join("secret");
        write(&file, format!("{secret}\n"));
        self.set("ATI_SANDBOX_SECRET_FILE", file.to_str().unwrap());
        file
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn run(&self, args: &[&str]) -> Output {
        let output = command(self.path())
            .envs(self.env.iter().cloned())
            .args(args)
            .output()
            .unwrap();
        tells_nothing("stdout", &stdout(&output));
        tells_nothing("stderr", &stderr(&output));
        output
    }

    /// The JSON that a successful command prints.
    fn result(&self, args: &[&str]) -> Value {
        let output = self.run(args);
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_str(&stdout(&output)).unwrap()
    }

    /// The exit code and the error of a failing command.
    fn failure(&self, args: &[&str]) -> (i32, Value) {
        let output = self.run(args);
        assert_eq!(stdout(&output), "");
        let text = stderr(&output);
        let line = text.lines().find(|line| line.starts_with("{\"error\""));
        let line: Value = serde_json::from_str(line.expect(&text)).unwrap();
        (output.status.code().unwrap(), line["error"].clone())
    }
}

fn has(value: &Value, part: &str) {
    let text = value.as_str().unwrap_or_default();
    assert!(text.contains(part), "'{part}' is not in {value}");
}
