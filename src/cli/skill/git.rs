//! git, for sources of skills: without hooks, submodules, prompts and the caller's `GIT_*`
//! variables, and within limits of time and size.

use std::path::{Path, PathBuf};
use std::time::Duration;

use zeroize::Zeroizing;

use super::source::GitSource;
use crate::error::{Code, Failure};
use crate::process::{self, Finished, ProcessError, Spec};

/// A repository that takes longer is given up.
const LONGEST: Duration = Duration::from_secs(300);
/// Bytes of a clone, its history included.
const LARGEST: u64 = 512 << 20;
/// Between two looks at how large a clone has become.
const LOOK: Duration = Duration::from_millis(200);
const MOST_OUTPUT: usize = 1 << 20;

/// What git is told, whatever the user's configuration says.
const SETTINGS: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.symlinks=true",
    "submodule.recurse=false",
    "protocol.allow=never",
    "protocol.https.allow=always",
    "protocol.http.allow=always",
    "protocol.ssh.allow=always",
    "protocol.file.allow=always",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=30",
    "credential.interactive=false",
    "advice.detachedHead=false",
    "gc.auto=0",
];

/// Variables of the caller's that git needs to get through: agents, proxies, authorities.
const PASSED: &[&str] = &[
    "SSH_AUTH_SOCK",
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// A clone below `into`, and the commit that it has checked out.
pub struct Clone {
    pub root: PathBuf,
    pub commit: String,
}

pub async fn clone(source: &GitSource, into: &Path) -> Result<Clone, Failure> {
    let root = into.join("clone");
    let to = root.display().to_string();
    let mut words = vec!["clone", "--quiet", "--no-local", "--no-recurse-submodules"];
    words.extend(["--template=", "--no-tags"]);
    match source.pin {
        // Any commit may be meant.
        Some(_) => words.push("--no-checkout"),
        None => words.extend(["--depth=1", "--single-branch"]),
    }
    words.extend(["--", &source.url, &to]);
    tokio::select! {
        cloned = git(&words) => { cloned?; }
        () = outgrown(into) => {
            let most = LARGEST >> 20;
            let message = format!("the repository has more than {most} MiB");
            return Err(Failure::new(Code::ExecutionFailed, message));
        }
    }
    if let Some(pin) = &source.pin {
        let commit = commit(&to, &format!("{pin}^{{commit}}")).await?;
        // A branch or a tag may have a name like the beginning of an id.
        if !commit.starts_with(pin.as_str()) {
            let message = format!("'{pin}' is no commit of the repository");
            return Err(Failure::new(Code::ExecutionFailed, message));
        }
        git(&["-C", &to, "checkout", "--quiet", "--detach", &commit, "--"]).await?;
    }
    let commit = commit(&to, "HEAD").await?;
    Ok(Clone { root, commit })
}

async fn commit(root: &str, name: &str) -> Result<String, Failure> {
    let words = [
        "-C",
        root,
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        name,
    ];
    let found = git(&words).await.map_err(|_| {
        let name = name.trim_end_matches("^{commit}");
        let message = format!("'{name}' is no commit of the repository");
        Failure::new(Code::ExecutionFailed, message)
    })?;
    Ok(String::from_utf8_lossy(&found.stdout).trim().to_owned())
}

async fn git(words: &[&str]) -> Result<Finished, Failure> {
    let settings = SETTINGS.iter().flat_map(|setting| ["-c", setting]);
    let mut env: Vec<(String, Zeroizing<String>)> = [
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_ASKPASS", "true"),
        ("SSH_ASKPASS", "true"),
        ("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
        ("GIT_ALLOW_PROTOCOL", "https:http:ssh:file"),
        ("GIT_LFS_SKIP_SMUDGE", "1"),
        ("LC_ALL", "C"),
    ]
    .map(|(name, value)| (name.to_owned(), Zeroizing::new(value.to_owned())))
    .to_vec();
    for name in PASSED {
        if let Ok(value) = std::env::var(name) {
            env.push(((*name).to_owned(), Zeroizing::new(value)));
        }
    }
    let finished = process::run(Spec {
        program: "git".to_owned(),
        args: settings
            .chain(words.iter().copied())
            .map(str::to_owned)
            .collect(),
        env,
        inherit: false,
        timeout: LONGEST,
        max_output: MOST_OUTPUT,
    });
    let finished = finished.await.map_err(|e| match e {
        ProcessError::Spawn(_) => Failure::from_error(Code::ExecutionFailed, e)
            .hint("is git installed? A folder can be installed without it"),
        ProcessError::Timeout => {
            let message = format!("git: the repository took more than {} s", LONGEST.as_secs());
            Failure::new(Code::ProviderTimeout, message)
        }
        e => Failure::new(Code::ExecutionFailed, "git").because(e),
    })?;
    match finished.code {
        Some(0) => Ok(finished),
        _ => Err(failed(&finished.stderr)),
    }
}

/// git's last words: `fatal: …`.
fn failed(stderr: &[u8]) -> Failure {
    let text = String::from_utf8_lossy(stderr);
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let told = lines()
        .find(|line| line.starts_with("fatal:"))
        .or(lines().next_back());
    let told = told.unwrap_or("it failed without a word");
    let told = super::super::output::printable(crate::text::clip(told, 300));
    Failure::new(Code::ExecutionFailed, format!("git: {told}"))
}

/// Ends when what is below a folder has become too large.
async fn outgrown(folder: &Path) {
    loop {
        tokio::time::sleep(LOOK).await;
        if size(folder) > LARGEST {
            return;
        }
    }
}

fn size(folder: &Path) -> u64 {
    let (mut total, mut left) = (0, vec![folder.to_path_buf()]);
    while let Some(folder) = left.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => left.push(entry.path()),
                Ok(found) => total += found.len(),
                // git has removed it meanwhile.
                Err(_) => {}
            }
        }
    }
    total
}
