//! A program that shares the terminal of ati.

use std::process::{Command, Stdio};

use ati::process::program::{Stdin, run};

use super::{eventually, lives, out, shell, words_of};

/// Not a test of its own: the other one runs it on a terminal.
#[tokio::test]
#[ignore = "needs ATI_TEST_FOLDER"]
async fn call_on_a_terminal() {
    let Some(folder) = std::env::var_os("ATI_TEST_FOLDER") else {
        return;
    };
    let mut spec = shell(
        "read line < /dev/tty; read more; echo \"$line $more\" > said; \
         setsid sleep 60 & echo $$ $! > pids; trap '' INT; wait; sleep 60",
    );
    spec.cwd = Some(folder.into());
    spec.stdin = Stdin::Inherit;
    let _ = run(spec).await;
}

/// Types two lines, then Ctrl-C, and prints how the process on the terminal ended.
const TYPE: &str = r#"
import os, pty, sys, time
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[1], sys.argv[1:])
os.write(terminal, b"first\nsecond\n")
pids = os.environ["ATI_TEST_FOLDER"] + "/pids"
end = time.time() + 60
while not (os.path.exists(pids) and open(pids).read().endswith("\n")):
    assert time.time() < end
    time.sleep(0.01)
os.write(terminal, b"\x03")
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"#;

#[tokio::test]
async fn program_reads_the_terminal_and_ctrl_c_ends_everything() {
    let folder = tempfile::tempdir().unwrap();
    let test = "confinement::terminal::call_on_a_terminal";
    let typing = Command::new("python3")
        .args(["-c", TYPE])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", test])
        .env("ATI_TEST_FOLDER", folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&typing.stdout).into_owned();
    // SIGINT, which a shell shows as 130.
    let shown = String::from_utf8_lossy(&typing.stderr);
    assert_eq!(said.trim(), "-2", "{shown}");
    assert_eq!(
        words_of(&folder.path().join("said")).await,
        ["first", "second"]
    );
    for pid in words_of(&folder.path().join("pids")).await {
        eventually("the process is gone", || !lives(&pid)).await;
    }
}

#[tokio::test]
async fn program_without_the_callers_input_has_no_terminal() {
    let outcome = run(shell("cat; (: < /dev/tty) 2>&1 || echo none")).await;
    assert!(out(&outcome.unwrap()).ends_with("none\n"));
}
