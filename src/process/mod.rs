//! Child processes. They are started from one thread that lives as long as we do, know nothing of our environment but what they are
//! given, and end with everything that they started.

mod stay;
mod supervisor;

use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::runtime::{Builder, Handle};
use zeroize::Zeroizing;

pub use stay::{COMMAND as SUPERVISE, Lifeline, Resident, Streams, start};
pub use supervisor::supervise;

/// A program to run to its end.
pub struct Spec {
    pub program: String,
    pub args: Vec<String>,
    /// On top of the few variables of ours that a child may see. Values may be secrets.
    pub env: Vec<(String, Zeroizing<String>)>,
    /// All of our environment, for a command of whoever runs us.
    pub inherit: bool,
    pub timeout: Duration,
    /// More than this on either stream is a fault.
    pub max_output: usize,
}

pub struct Finished {
    /// None where a signal ended it.
    pub code: Option<i32>,
    pub stdout: Zeroizing<Vec<u8>>,
    pub stderr: Zeroizing<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("can't be started: {0}")]
    Spawn(String),
    #[error("timed out")]
    Timeout,
    #[error("wrote more than {0} bytes")]
    TooMuch(usize),
    #[error("its output can't be read: {0}")]
    Output(String),
}

/// The runtime that children belong to. `None` where the system has no thread for it.
static CHILDREN: LazyLock<Option<Handle>> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build().ok()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("children".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .ok()?;
    Some(handle)
});

/// What a child inherits of our environment.
static INHERITED: LazyLock<Vec<(&str, std::ffi::OsString)>> = LazyLock::new(|| {
    ["PATH", "HOME", "TMPDIR"]
        .into_iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)))
        .collect()
});

/// Run it. The child ends in time even where nobody waits for it any more.
pub async fn run(spec: Spec) -> Result<Finished, Fault> {
    let nobody = || Fault::Spawn("no thread for it".to_owned());
    let children = CHILDREN.as_ref().ok_or_else(nobody)?;
    children.spawn(attend(spec)).await.map_err(|_| nobody())?
}

async fn attend(spec: Spec) -> Result<Finished, Fault> {
    let mut child = spawn(&spec).map_err(|e| Fault::Spawn(e.to_string()))?;
    let group = child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let ended =
        tokio::time::timeout(spec.timeout, finish(&mut child, group, spec.max_output)).await;
    end_group(group);
    let _ = child.wait().await;
    ended.unwrap_or(Err(Fault::Timeout))
}

fn spawn(spec: &Spec) -> std::io::Result<Child> {
    let given = spec
        .env
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let mut command = Command::new(&spec.program);
    if !spec.inherit {
        command
            .env_clear()
            .envs(INHERITED.iter().map(|(name, value)| (name, value)));
    }
    command
        .args(&spec.args)
        .envs(given)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

async fn finish(child: &mut Child, group: Option<Pid>, max: usize) -> Result<Finished, Fault> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let exit = async {
        let status = child.wait().await;
        // Whoever it left behind would hold its output open.
        end_group(group);
        status.map_err(|e| Fault::Output(e.to_string()))
    };
    let (status, stdout, stderr) = tokio::try_join!(exit, read(stdout, max), read(stderr, max))?;
    Ok(Finished {
        code: status.code(),
        stdout,
        stderr,
    })
}

async fn read(
    stream: Option<impl AsyncRead + Unpin>,
    max: usize,
) -> Result<Zeroizing<Vec<u8>>, Fault> {
    let mut all = Zeroizing::new(Vec::new());
    if let Some(stream) = stream {
        stream
            .take(max as u64 + 1)
            .read_to_end(&mut all)
            .await
            .map_err(|e| Fault::Output(e.to_string()))?;
    }
    if all.len() > max {
        return Err(Fault::TooMuch(max));
    }
    Ok(all)
}

fn end_group(group: Option<Pid>) {
    if let Some(group) = group {
        // It is usually gone already.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn shell(script: &str) -> Spec {
        Spec {
            program: "sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("GIVEN".into(), Zeroizing::new("yes".into()))],
            inherit: false,
            timeout: Duration::from_secs(20),
            max_output: 1000,
        }
    }

    #[tokio::test]
    async fn a_child_sees_what_it_is_given() {
        let finished = run(shell(
            "echo $GIVEN ${CARGO_MANIFEST_DIR:-nothing}; echo oops >&2; exit 3",
        ))
        .await
        .unwrap();
        assert_eq!(finished.code, Some(3));
        assert_eq!(*finished.stdout, b"yes nothing\n");
        assert_eq!(*finished.stderr, b"oops\n");
    }

    #[tokio::test]
    async fn a_child_ends_in_time_with_all_its_children() {
        let started = Instant::now();
        let spec = Spec {
            timeout: Duration::from_millis(200),
            ..shell("sleep 60 & sleep 60")
        };
        assert_eq!(run(spec).await.err(), Some(Fault::Timeout));
        // It ends at once, but what it started would hold its output open for a minute.
        run(shell("sleep 60 &")).await.unwrap();
        assert!(started.elapsed() < Duration::from_secs(15));
    }

    #[tokio::test]
    async fn too_much_output_and_no_program_are_faults() {
        let much = run(shell("head -c 5000 /dev/zero")).await.err();
        assert_eq!(much, Some(Fault::TooMuch(1000)));
        let spec = Spec {
            program: "/nonexistent/program".into(),
            ..shell("")
        };
        assert!(matches!(run(spec).await.err(), Some(Fault::Spawn(_))));
    }
}
