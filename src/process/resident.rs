//! Child processes that stay and talk over their standard streams. Each runs under a supervisor
//! process, so that none outlives ati.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use rustix::process::Pid;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use super::lineage::kill_descendants;
use super::run_as::RunAs;
use super::sandbox::{Confinement, Sandbox};
use super::{CHILDREN, INHERITED, ProcessError, capabilities, kill_group, role};

/// A supervisor ends by itself soon after its input closes. After this, it is killed.
const SUPERVISOR_END: Duration = Duration::from_secs(4);

pub struct Resident {
    pub program: String,
    pub args: Vec<String>,
    /// Its whole environment, PATH and HOME aside. Values may be secrets.
    pub env: Vec<(String, Zeroizing<String>)>,
    /// The user that it runs as; ati's own where there is none.
    pub run_as: Option<RunAs>,
    pub sandbox: Option<Sandbox>,
}

/// The standard streams of a running child, on the runtime of the task that started it. The end of
/// its input tells it to end; when the lifeline is dropped, it is killed.
pub struct Streams {
    pub stdin: pipe::Sender,
    pub stdout: pipe::Receiver,
    pub stderr: pipe::Receiver,
    pub lifeline: Lifeline,
}

/// The same, on no runtime.
pub(super) struct Pipes {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    lifeline: Lifeline,
}

impl Pipes {
    /// Registers them with the runtime of the caller: a pipe that another thread's runtime watches
    /// costs two wake-ups for each message.
    fn register(self) -> Result<Streams, ProcessError> {
        let unregistered = |e: io::Error| ProcessError::Spawn(format!("its streams: {e}"));
        Ok(Streams {
            stdin: pipe::Sender::from_owned_fd(self.stdin).map_err(unregistered)?,
            stdout: pipe::Receiver::from_owned_fd(self.stdout).map_err(unregistered)?,
            stderr: pipe::Receiver::from_owned_fd(self.stderr).map_err(unregistered)?,
            lifeline: self.lifeline,
        })
    }
}

/// Held for as long as the child is needed.
pub struct Lifeline(#[allow(dead_code, reason = "dropping it is the signal")] oneshot::Sender<()>);

/// Starts it from the thread that owns all children. Its streams belong to the caller's runtime.
pub async fn start(resident: Resident) -> Result<Streams, ProcessError> {
    let children = CHILDREN.as_ref().ok_or_else(ProcessError::no_thread)?;
    let spawned = children.spawn(async move {
        let child = spawn(&resident).map_err(|e| ProcessError::Spawn(e.to_string()))?;
        take_pipes(child)
    });
    let pipes = spawned.await.map_err(|_| ProcessError::no_thread())??;
    pipes.register()
}

fn spawn(resident: &Resident) -> io::Result<Child> {
    let path = INHERITED.path.clone().unwrap_or_default();
    // Looked up here: the supervisor's stderr is the program's, so that it can't report a failure.
    let program = find_program(&resident.program, &resident.env)?;
    let user = resident.run_as.as_ref().map(RunAs::resolve).transpose();
    let user = user.map_err(io::Error::other)?;
    let mut command = Command::new(EXECUTABLE.as_path());
    command.arg(role::SUPERVISE);
    if let Some(sandbox) = &resident.sandbox {
        let confinement = Confinement::new(sandbox.clone(), Vec::new(), Vec::new());
        command.args(["--sandbox", &serde_json::to_string(&confinement)?]);
    }
    if let Some(user) = &user {
        command.args(["--run-as", &user.identity.to_string()]);
        // The folder that ati runs in may be closed to that user.
        command.current_dir(user.folder());
    }
    let home = user.as_ref().map(|user| user.home.as_os_str());
    command
        .arg("--")
        .arg(std::path::absolute(program)?)
        .args(&resident.args)
        .env_clear()
        .env("PATH", path)
        .envs(
            home.or(INHERITED.home.as_deref())
                .map(|home| ("HOME", home)),
        )
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
    match user {
        Some(_) => capabilities::lend(capabilities::TO_SWITCH_USERS, || command.spawn()),
        None => command.spawn(),
    }
}

/// The ati that supervisors run: the running binary, even where an update has replaced its file.
pub(super) static EXECUTABLE: LazyLock<PathBuf> = LazyLock::new(|| {
    if let Some(named) = NAMED_EXECUTABLE.get() {
        return named.clone();
    }
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() {
        running
    } else {
        std::env::current_exe().unwrap_or_else(|_| PathBuf::from("ati"))
    }
});

static NAMED_EXECUTABLE: OnceLock<PathBuf> = OnceLock::new();

/// Names the ati that supervisors run, for a process that links this library and isn't ati itself:
/// a test. To be called before the first child is started.
pub fn use_executable(path: PathBuf) {
    let _ = NAMED_EXECUTABLE.set(path);
}

/// The program that a resident with these variables would run: by its path, or in the PATH that it
/// is given, which is ati's own unless the variables have one.
pub fn find_program(program: &str, env: &[(String, Zeroizing<String>)]) -> io::Result<PathBuf> {
    let given = env.iter().rev().find(|(name, _)| name == "PATH");
    let inherited = || INHERITED.path.clone().unwrap_or_default();
    let search_path = given.map_or_else(inherited, |(_, value)| OsString::from(value.as_str()));
    find_in(program, &search_path)
}

fn find_in(program: &str, search_path: &OsStr) -> io::Result<PathBuf> {
    let is_program = |file: &Metadata| file.is_file() && file.permissions().mode() & 0o111 != 0;
    if program.contains('/') {
        let path = PathBuf::from(program);
        if !is_program(&path.metadata()?) {
            let kind = io::ErrorKind::PermissionDenied;
            return Err(io::Error::new(kind, "no file that can be executed"));
        }
        return Ok(path);
    }
    std::env::split_paths(search_path)
        .map(|folder| folder.join(program))
        .find(|path| path.metadata().is_ok_and(|file| is_program(&file)))
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such program in PATH"))
}

/// Takes the streams of a child, waits for its end in the background, and kills what is left of it
/// once the lifeline is dropped.
pub(super) fn take_pipes(mut child: Child) -> Result<Pipes, ProcessError> {
    let group = child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let stdin = child.stdin.take().map(|pipe| pipe.into_owned_fd());
    let stdout = child.stdout.take().map(|pipe| pipe.into_owned_fd());
    let stderr = child.stderr.take().map(|pipe| pipe.into_owned_fd());
    let (Some(Ok(stdin)), Some(Ok(stdout)), Some(Ok(stderr))) = (stdin, stdout, stderr) else {
        kill_group(group);
        return Err(ProcessError::Spawn("it has no streams".to_owned()));
    };
    let (lifeline, dropped) = oneshot::channel();
    tokio::spawn(async move {
        tokio::select! {
            _ = child.wait() => {}
            _ = dropped => {
                let ended = tokio::time::timeout(SUPERVISOR_END, child.wait()).await;
                if ended.is_err()
                    && let Some(group) = group
                {
                    // A child can hold its own input open, so that its supervisor waits on.
                    kill_descendants(group, None);
                }
            }
        }
        // The supervisor may have been killed before it could kill the rest.
        kill_group(group);
        let _ = child.wait().await;
    });
    Ok(Pipes {
        stdin,
        stdout,
        stderr,
        lifeline: Lifeline(lifeline),
    })
}

#[cfg(test)]
impl Streams {
    /// The streams of a shell script, without a supervisor.
    pub fn of_script(script: &str) -> Self {
        let child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn();
        take_pipes(child.unwrap()).unwrap().register().unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_found_in_the_search_path_only_if_it_is_executable() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, program) = (folder.path().join("plain"), folder.path().join("program"));
        for (path, mode) in [(&plain, 0o644), (&program, 0o755)] {
            std::fs::write(path, "").unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let search_path = folder.path().as_os_str();
        assert_eq!(find_in("program", search_path).unwrap(), program);
        for absent in ["plain", "nothing"] {
            let error = find_in(absent, search_path).unwrap_err();
            assert_eq!(error.to_string(), "no such program in PATH");
        }
        // A path is taken as it is, if there is such a program.
        let path = program.to_str().unwrap();
        assert_eq!(find_in(path, OsStr::new("")).unwrap(), program);
        assert!(find_in("/nonexistent/program", search_path).is_err());
        for other in [plain.to_str().unwrap(), folder.path().to_str().unwrap()] {
            let error = find_in(other, search_path).unwrap_err();
            assert_eq!(error.to_string(), "no file that can be executed");
        }
        // A PATH among the variables takes the place of ati's own.
        let given = search_path.to_str().unwrap().to_owned();
        let env = [("PATH".to_owned(), Zeroizing::new(given))];
        assert_eq!(find_program("program", &env).unwrap(), program);
        assert!(find_program("sh", &env).is_err() && find_program("sh", &[]).is_ok());
    }
}
