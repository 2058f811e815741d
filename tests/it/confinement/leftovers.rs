//! What is left of a program: nothing.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ati::process::program::{ProgramError, ProgramSpec, Status, run};

use super::{eventually, failure, lives, out, shell, spec, words_of};

/// A process in a session of its own and one that has lost its parent; both ignore SIGTERM. The
/// file gets their ids.
fn daemons(file: &Path) -> String {
    let daemon = "trap \"\" TERM; echo $$ >> \"$0\"; sleep 60; sleep 60";
    format!(
        "f='{}'; setsid sh -c '{daemon}' \"$f.part\" & (sh -c '{daemon}' \"$f.part\" &); \
         while [ \"$(cat \"$f.part\" 2>/dev/null | wc -l)\" -lt 2 ]; do sleep 0.01; done; \
         mv \"$f.part\" \"$f\"; ",
        file.display()
    )
}

fn call(folder: &Path, script: &str) -> ProgramSpec {
    let own = folder.join("own");
    std::fs::create_dir(&own).unwrap();
    std::fs::write(own.join("key"), "planted-secret").unwrap();
    std::fs::write(folder.join("credential"), "planted-secret").unwrap();
    let mut spec = shell(&(daemons(&folder.join("pids")) + script));
    spec.cwd = Some(own.clone());
    spec.grace = Duration::from_millis(200);
    spec.remove = vec![own, folder.join("credential"), folder.join("never-there")];
    spec
}

async fn assert_gone(folder: &Path) {
    let pids = words_of(&folder.join("pids")).await;
    assert_eq!(pids.len(), 2, "{pids:?}");
    for pid in &pids {
        eventually("the process is gone", || !lives(pid)).await;
    }
    let gone = || !folder.join("own").exists() && !folder.join("credential").exists();
    eventually("the files are removed", gone).await;
}

#[tokio::test]
async fn program_that_leaves_daemons_behind_takes_them_along() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = run(call(folder.path(), "echo ok; exit 3")).await.unwrap();
    assert_eq!(
        (outcome.status, out(&outcome)),
        (Status::Code(3), "ok\n".to_owned())
    );
    // Not eventually: nothing is left when it returns.
    let pids = words_of(&folder.path().join("pids")).await;
    assert!(
        pids.len() == 2 && !pids.iter().any(|pid| lives(pid)),
        "{pids:?}"
    );
    assert!(!folder.path().join("own").exists());
    assert_gone(folder.path()).await;
}

#[tokio::test]
async fn program_of_a_caller_that_leaves_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = Box::pin(run(call(folder.path(), "wait; sleep 60")));
    let pids = folder.path().join("pids");
    while !pids.exists() {
        tokio::select! {
            ended = &mut running => panic!("{:?}", ended.err()),
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
    }
    drop(running);
    assert_gone(folder.path()).await;
}

#[tokio::test]
async fn program_that_kills_its_supervisor_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let mut spec = call(folder.path(), "");
    spec.args = vec![
        "-c".into(),
        "echo $$ > ../main; kill -9 $PPID; sleep 60".into(),
    ];
    let error = failure(spec).await;
    assert!(matches!(error, ProgramError::Lost), "{error}");
    let main = words_of(&folder.path().join("main")).await;
    eventually("the program is gone", || !lives(&main[0])).await;
    assert!(!folder.path().join("own").exists());
}

/// Not a test of its own: another test runs it in a process that is killed.
#[tokio::test]
#[ignore = "needs ATI_TEST_FOLDER"]
async fn call_of_a_process_that_is_killed() {
    let Some(folder) = std::env::var_os("ATI_TEST_FOLDER") else {
        return;
    };
    let ended = run(call(Path::new(&folder), "wait; sleep 60")).await;
    panic!("{:?}", ended.err());
}

#[tokio::test]
async fn nothing_is_left_when_ati_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let test = "confinement::leftovers::call_of_a_process_that_is_killed";
    let mut caller = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", test])
        .env("ATI_TEST_FOLDER", folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    words_of(&folder.path().join("pids")).await;
    caller.kill().unwrap();
    caller.wait().unwrap();
    assert_gone(folder.path()).await;
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn zombies() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let children =
        threads.filter_map(|it| std::fs::read_to_string(it.path().join("children")).ok());
    let children = children.collect::<String>();
    children
        .split_whitespace()
        .filter(|pid| !lives(pid))
        .count()
}

async fn call_often(times: usize) {
    let folder = tempfile::tempdir().unwrap();
    let one = |n: usize| {
        let own = folder.path().join(n.to_string());
        std::fs::create_dir(&own).unwrap();
        ProgramSpec {
            cwd: Some(own.clone()),
            remove: vec![own],
            ..spec(
                "sh",
                &[
                    "-c",
                    "echo x > file; (sleep 60 &) ; echo $0",
                    &n.to_string(),
                ],
            )
        }
    };
    run(one(0)).await.unwrap();
    let before = descriptors();
    for n in 1..=times {
        let outcome = run(one(n)).await.unwrap();
        assert_eq!(out(&outcome), format!("{n}\n"));
    }
    assert_eq!((descriptors(), zombies()), (before, 0));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn calls_leave_no_zombie_no_descriptor_and_no_file() {
    call_often(30).await;
}

#[tokio::test]
#[ignore = "a thousand processes"]
async fn thousand_calls_leave_no_zombie_no_descriptor_and_no_file() {
    call_often(1000).await;
}
