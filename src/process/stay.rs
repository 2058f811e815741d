//! Children that stay, and talk over their standard streams. Each has a supervisor, so that none outlives us.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use rustix::process::Pid;
use std::time::Duration;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use super::supervisor::end_descendants;
use super::{CHILDREN, Fault, end_group};

/// The hidden command that supervises.
pub const COMMAND: &str = "__supervise";
/// A supervisor ends by itself soon after its input closes.
const PATIENCE: Duration = Duration::from_secs(4);

pub struct Resident {
    pub program: String,
    pub args: Vec<String>,
    /// All of its environment besides PATH and HOME. Values may be secrets.
    pub env: Vec<(String, Zeroizing<String>)>,
}

/// A child that runs. Its end begins when its input is dropped, and is insisted upon when this is.
pub struct Streams {
    pub stdin: ChildStdin,
    pub stdout: ChildStdout,
    pub stderr: ChildStderr,
    pub lifeline: Lifeline,
}

/// Held for as long as a child is wanted.
pub struct Lifeline(#[allow(dead_code, reason = "its end is what counts")] oneshot::Sender<()>);

/// Start it, from the thread that lives as long as we do.
pub async fn start(resident: Resident) -> Result<Streams, Fault> {
    let nobody = || Fault::Spawn("no thread for it".to_owned());
    let children = CHILDREN.as_ref().ok_or_else(nobody)?;
    let spawned = children.spawn(async move {
        let child = spawn(&resident).map_err(|e| Fault::Spawn(e.to_string()))?;
        attend(child)
    });
    spawned.await.map_err(|_| nobody())?
}

fn spawn(resident: &Resident) -> std::io::Result<Child> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Looked for here, because a supervisor could only say so on a stream that isn't its own.
    let given = resident.env.iter().rev().find(|(name, _)| name == "PATH");
    let places = given.map_or(path.clone(), |(_, value)| OsString::from(value.as_str()));
    let program = find(&resident.program, &places)?;
    let mut command = Command::new(supervisor());
    command
        .arg(COMMAND)
        .arg("--")
        .arg(program)
        .args(&resident.args)
        .env_clear()
        .env("PATH", path)
        .envs(std::env::var_os("HOME").map(|home| ("HOME", home)))
        .envs(
            resident
                .env
                .iter()
                .map(|(name, value)| (name, value.as_str())),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    command.spawn()
}

/// Our own binary, even where another has taken its place meanwhile.
fn supervisor() -> &'static Path {
    static OURS: OnceLock<PathBuf> = OnceLock::new();
    OURS.get_or_init(|| {
        let running = PathBuf::from("/proc/self/exe");
        if running.exists() {
            running
        } else {
            std::env::current_exe().unwrap_or_else(|_| PathBuf::from("ati"))
        }
    })
}

fn find(program: &str, path: &std::ffi::OsStr) -> std::io::Result<PathBuf> {
    let is_program = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        path.metadata()
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Ok(PathBuf::from(program)).and_then(|path| {
            path.metadata()?;
            Ok(path)
        });
    }
    std::env::split_paths(path)
        .map(|folder| folder.join(program))
        .find(|path| is_program(path))
        .ok_or_else(|| std::io::Error::new(std::io::ErrorKind::NotFound, "no such program in PATH"))
}

/// Take the streams, and see the supervisor off when it ends.
fn attend(mut child: Child) -> Result<Streams, Fault> {
    let group = child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = streams else {
        end_group(group);
        return Err(Fault::Spawn("it has no streams".to_owned()));
    };
    let (lifeline, wanted) = oneshot::channel();
    tokio::spawn(async move {
        tokio::select! {
            _ = child.wait() => {}
            _ = wanted => {
                let ended = tokio::time::timeout(PATIENCE, child.wait()).await;
                if ended.is_err()
                    && let Some(group) = group
                {
                    // A child can keep its own input open, and its supervisor waiting.
                    end_descendants(group);
                }
            }
        }
        // Whoever killed the supervisor has not killed the rest.
        end_group(group);
        let _ = child.wait().await;
    });
    Ok(Streams {
        stdin,
        stdout,
        stderr,
        lifeline: Lifeline(lifeline),
    })
}
