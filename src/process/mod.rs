//! Child processes. They are started from one thread that lives as long as ati does, get a chosen
//! environment, and are killed together with everything that they started.

pub mod binary;
pub mod capabilities;
mod channel;
mod confine;
pub mod huge_pages;
mod launch;
mod lineage;
mod oversee;
mod plan;
pub mod program;
mod resident;
mod role;
mod run_as;
mod sandbox;
mod supervisor;

use std::ffi::OsString;
use std::process::Stdio;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;
use zeroize::Zeroizing;

pub use confine::{Abilities, abilities};
pub use lineage::{ProcessId, adopt_orphans, descends_from, kill_descendants, reap_adopted};
pub use resident::{Lifeline, Resident, Streams, find_program, start, use_executable};
pub use role::run as run_hidden_command;
pub use run_as::{Identity, RunAs};
pub use sandbox::{Sandbox, close_to_programs};

/// Programs don't get the descriptors that this process was started with: the one that starts a
/// server may have left anything open. To be called first, before there are threads.
pub fn keep_descriptors_from_programs() {
    close_fds::set_fds_cloexec(AFTER_STREAMS, &[]);
}

/// The first descriptor that is none of the standard streams.
const AFTER_STREAMS: i32 = 3;

/// A program to run to its end.
pub struct Spec {
    pub program: String,
    pub args: Vec<String>,
    /// Added to PATH, HOME and TMPDIR of ati. Values may be secrets.
    pub env: Vec<(String, Zeroizing<String>)>,
    /// Whether the child gets the whole environment of ati: for a command that the operator of ati
    /// chose.
    pub inherit: bool,
    pub timeout: Duration,
    /// More than this on either stream is an error.
    pub max_output: usize,
}

pub struct Finished {
    /// None if a signal ended it.
    pub code: Option<i32>,
    pub stdout: Zeroizing<Vec<u8>>,
    pub stderr: Zeroizing<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProcessError {
    #[error("can't be started: {0}")]
    Spawn(String),
    #[error("timed out")]
    Timeout,
    #[error("wrote more than {0} bytes")]
    TooMuch(usize),
    #[error("its output can't be read: {0}")]
    Output(String),
}

impl ProcessError {
    fn no_thread() -> Self {
        ProcessError::Spawn("no thread for it".to_owned())
    }
}

/// The thread that owns all children. None if the system has no thread for it.
static CHILDREN: LazyLock<Option<Handle>> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build().ok()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("children".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .ok()?;
    Some(handle)
});

/// What children inherit of the environment of ati, read once. Nothing in ati changes it later.
static INHERITED: LazyLock<InheritedEnv> = LazyLock::new(|| InheritedEnv {
    path: std::env::var_os("PATH"),
    home: std::env::var_os("HOME"),
    tmpdir: std::env::var_os("TMPDIR"),
    lang: std::env::var_os("LANG"),
    user: std::env::var_os("USER"),
    term: std::env::var_os("TERM"),
});

struct InheritedEnv {
    path: Option<OsString>,
    home: Option<OsString>,
    tmpdir: Option<OsString>,
    lang: Option<OsString>,
    user: Option<OsString>,
    term: Option<OsString>,
}

impl InheritedEnv {
    fn variables(&self) -> impl Iterator<Item = (&'static str, &OsString)> {
        let all = [
            ("PATH", &self.path),
            ("HOME", &self.home),
            ("TMPDIR", &self.tmpdir),
        ];
        all.into_iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?)))
    }
}

/// The variables of ati that a program which is a tool gets.
pub fn program_environment() -> Vec<(String, Zeroizing<String>)> {
    let more = [
        ("LANG", &INHERITED.lang),
        ("USER", &INHERITED.user),
        ("TERM", &INHERITED.term),
    ];
    let more = more
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let text = |value: &OsString| Zeroizing::new(value.to_string_lossy().into_owned());
    let all = INHERITED.variables().chain(more);
    all.map(|(name, value)| (name.to_owned(), text(value)))
        .collect()
}

/// Runs it to its end. If the caller leaves before that, the child is killed with all that it has
/// started.
pub async fn run(spec: Spec) -> Result<Finished, ProcessError> {
    run_holding(spec, ()).await
}

/// As [`run`]. `held` is dropped when the child is gone, even where the caller has left before.
pub async fn run_holding(spec: Spec, held: impl Send + 'static) -> Result<Finished, ProcessError> {
    let children = CHILDREN.as_ref().ok_or_else(ProcessError::no_thread)?;
    let group = Arc::<AtomicI32>::default();
    let known = group.clone();
    let task = children.spawn(async move {
        let _held = held;
        run_to_end(spec, &known).await
    });
    let mut running = AbortOnDrop { task, group };
    let finished = (&mut running.task).await;
    finished.map_err(|_| ProcessError::no_thread())?
}

/// A task that is aborted when the caller that waits for it leaves. The child is killed at once: a
/// command that a signal ends doesn't wait for the thread of its children.
struct AbortOnDrop<T> {
    task: JoinHandle<T>,
    /// That of the child while it runs, or 0.
    group: Arc<AtomicI32>,
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.task.abort();
        kill_group(Pid::from_raw(self.group.load(Ordering::Acquire)));
    }
}

/// Kills the group of a child whose task is dropped before it has ended.
struct KillOnDrop(Option<Pid>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        kill_group(self.0.take());
    }
}

async fn run_to_end(spec: Spec, known: &AtomicI32) -> Result<Finished, ProcessError> {
    let mut child = spawn(&spec).map_err(|e| ProcessError::Spawn(e.to_string()))?;
    let group = child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    known.store(
        group.map_or(0, |group| group.as_raw_nonzero().get()),
        Ordering::Release,
    );
    let mut unfinished = KillOnDrop(group);
    let ended =
        tokio::time::timeout(spec.timeout, finish(&mut child, group, spec.max_output)).await;
    kill_group(unfinished.0.take());
    known.store(0, Ordering::Release);
    let _ = child.wait().await;
    ended.unwrap_or(Err(ProcessError::Timeout))
}

fn spawn(spec: &Spec) -> std::io::Result<Child> {
    let given = spec
        .env
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let mut command = Command::new(&spec.program);
    if !spec.inherit {
        command.env_clear().envs(INHERITED.variables());
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

async fn finish(
    child: &mut Child,
    group: Option<Pid>,
    max: usize,
) -> Result<Finished, ProcessError> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let exit = async {
        let status = child.wait().await;
        // Processes that it left behind would hold its output open.
        kill_group(group);
        status.map_err(|e| ProcessError::Output(e.to_string()))
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
) -> Result<Zeroizing<Vec<u8>>, ProcessError> {
    let mut all = Zeroizing::new(Vec::new());
    if let Some(stream) = stream {
        stream
            .take(max as u64 + 1)
            .read_to_end(&mut all)
            .await
            .map_err(|e| ProcessError::Output(e.to_string()))?;
    }
    if all.len() > max {
        return Err(ProcessError::TooMuch(max));
    }
    Ok(all)
}

fn kill_group(group: Option<Pid>) {
    if let Some(group) = group {
        // It fails where all of them have ended.
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
    async fn child_gets_the_given_environment_only() {
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
    async fn child_that_times_out_is_killed_with_its_children() {
        let started = Instant::now();
        let spec = Spec {
            timeout: Duration::from_millis(200),
            ..shell("sleep 60 & sleep 60")
        };
        assert_eq!(run(spec).await.err(), Some(ProcessError::Timeout));
        // It ends at once; the process that it started would hold its output open for a minute.
        run(shell("sleep 60 &")).await.unwrap();
        assert!(started.elapsed() < Duration::from_secs(15));
    }

    #[tokio::test]
    async fn child_of_a_caller_that_leaves_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pids");
        let script = format!(
            "sleep 60 & echo $! $$ > {0}.new; mv {0}.new {0}; wait",
            file.display()
        );
        let (held, released) = tokio::sync::oneshot::channel::<()>();
        let mut running = Box::pin(run_holding(shell(&script), held));
        let pids = loop {
            tokio::select! {
                _ = &mut running => panic!("it ended by itself"),
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
            if let Ok(pids) = std::fs::read_to_string(&file) {
                break pids;
            }
        };
        drop(running);
        // The sender is dropped with the task.
        assert!(released.await.is_err());
        for pid in pids.split_whitespace() {
            let stat = format!("/proc/{pid}/stat");
            let lives = || {
                let stat = std::fs::read_to_string(&stat).unwrap_or_default();
                let state = stat
                    .rsplit(')')
                    .next()
                    .unwrap_or_default()
                    .trim_start()
                    .to_owned();
                !matches!(state.chars().next(), None | Some('Z' | 'X'))
            };
            let begun = Instant::now();
            while lives() {
                assert!(begun.elapsed() < Duration::from_secs(20), "{pid} lives");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    #[tokio::test]
    async fn too_much_output_and_a_missing_program_are_errors() {
        let much = run(shell("head -c 5000 /dev/zero")).await.err();
        assert_eq!(much, Some(ProcessError::TooMuch(1000)));
        let spec = Spec {
            program: "/nonexistent/program".into(),
            ..shell("")
        };
        assert!(matches!(
            run(spec).await.err(),
            Some(ProcessError::Spawn(_))
        ));
    }
}
