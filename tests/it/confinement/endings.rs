//! How a program ends, and what ati makes of it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use ati::process::program::{ProgramError, ProgramSpec, Status, run};
use ati::process::{Sandbox, abilities};
use zeroize::Zeroizing;

use super::{err, failure, out, shell, spec};

#[tokio::test]
async fn program_gets_what_it_is_given_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut spec =
        shell("pwd; env | cut -d= -f1 | sort | tr '\\n' ' '; cat; echo oops >&2; exit 7");
    spec.cwd = Some(folder.path().to_owned());
    spec.env
        .push(("GIVEN".to_owned(), Zeroizing::new("yes".to_owned())));
    let outcome = run(spec).await.unwrap();
    assert_eq!(outcome.status, Status::Code(7));
    // The shell adds PWD.
    let expected = format!("{}\nGIVEN PATH PWD ", folder.path().display());
    assert_eq!(
        out(&outcome).replace("OLDPWD ", "").replace("_ ", ""),
        expected
    );
    assert_eq!(err(&outcome), "oops\n");
    let killed = run(shell("kill -SEGV $$")).await.unwrap();
    assert_eq!(
        killed.status,
        Status::Signal(rustix::process::Signal::SEGV.as_raw())
    );
}

#[tokio::test]
async fn program_inherits_neither_descriptors_nor_ignored_signals() {
    let script = "ls /proc/self/fd | tr '\\n' ' '; grep SigIgn /proc/self/status";
    // What this test itself was started with reaches every child but confined ones.
    let direct = std::process::Command::new("sh")
        .args(["-c", script])
        .output();
    let direct = String::from_utf8(direct.unwrap().stdout).unwrap();
    let (_, signals) = direct.split_once("SigIgn").unwrap();
    let streams_and_ls = format!("0 1 2 3 SigIgn{signals}");
    let confined = abilities().lack().is_none().then(Sandbox::default);
    for sandbox in [None, confined] {
        let expected = match sandbox {
            None => &direct,
            Some(_) => &streams_and_ls,
        };
        let mut spec = shell(script);
        spec.sandbox = sandbox;
        let outcome = run(spec).await.unwrap();
        assert_eq!(out(&outcome), *expected, "{}", err(&outcome));
    }
}

#[tokio::test]
async fn words_arrive_as_they_are() {
    let words = [
        "$(id)",
        "\"; id; \"",
        "`id`",
        "--flag",
        "a\nb",
        "",
        "*",
        "\\",
        "'",
    ];
    let outcome = run(spec("printf", &[&["%s|"], &words[..]].concat()))
        .await
        .unwrap();
    assert_eq!(out(&outcome), words.join("|") + "|");
    let many = ProgramSpec {
        args: (0..100_000)
            .map(|n| OsString::from(format!("{n}")))
            .collect(),
        ..shell("")
    };
    let many = ProgramSpec {
        args: [vec!["-c".into(), "echo $#".into(), "sh".into()], many.args].concat(),
        ..shell("")
    };
    assert_eq!(out(&run(many).await.unwrap()), "100000\n");
    let bytes = ProgramSpec {
        args: vec!["%s".into(), OsString::from_vec(vec![0xff, 0xfe])],
        ..spec("printf", &[])
    };
    let outcome = run(bytes).await.unwrap();
    assert_eq!(outcome.stdout.in_memory().unwrap(), [0xff, 0xfe]);
    // The kernel takes no longer word.
    let long = spec("printf", &["%s", &"x".repeat(1 << 20)]);
    assert!(matches!(failure(long).await, ProgramError::TooLong));
    let nul = failure(spec("printf", &["a\0b"])).await;
    assert!(matches!(nul, ProgramError::Nul));
}

#[tokio::test]
async fn program_that_can_not_be_started_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let missing = failure(spec("no-such-program-at-all", &[])).await;
    assert!(matches!(missing, ProgramError::NotFound(_)), "{missing}");
    let missing = failure(spec("/nonexistent/program", &[])).await;
    assert!(matches!(missing, ProgramError::NotFound(_)), "{missing}");
    let plain = failure(spec(&file("plain", "x", 0o644), &[])).await;
    assert!(matches!(plain, ProgramError::NotExecutable(_)), "{plain}");
    let script = file("script", "#!/nonexistent/interpreter\n", 0o755);
    let orphan = failure(spec(&script, &[])).await.to_string();
    assert!(orphan.contains("interpreter"), "{orphan}");
    let mut nowhere = shell("true");
    nowhere.cwd = Some("/nonexistent/folder".into());
    let nowhere = failure(nowhere).await;
    assert!(matches!(nowhere, ProgramError::Folder(_)), "{nowhere}");
}

#[tokio::test]
async fn program_that_ignores_sigterm_is_killed_after_its_grace() {
    let mut spec = shell("trap '' TERM; echo begun >&2; while :; do sleep 60; done");
    spec.timeout = Duration::from_millis(500);
    spec.grace = Duration::from_millis(300);
    let begun = Instant::now();
    let error = failure(spec).await;
    let elapsed = begun.elapsed();
    let ProgramError::Timeout { after, stderr } = error else {
        panic!("{error}");
    };
    assert_eq!(after, Duration::from_millis(500));
    assert_eq!(*stderr.to_bytes(), b"begun\n");
    assert!(elapsed >= Duration::from_millis(800), "{elapsed:?}");
    assert!(elapsed < Duration::from_secs(30), "{elapsed:?}");
}

#[tokio::test]
async fn program_that_heeds_sigterm_is_not_waited_for_longer() {
    let mut spec = shell("trap 'echo bye >&2; exit 0' TERM; sleep 60 & wait");
    spec.timeout = Duration::from_millis(300);
    spec.grace = Duration::from_secs(50);
    let begun = Instant::now();
    let error = failure(spec).await;
    let ProgramError::Timeout { stderr, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(*stderr.to_bytes(), b"bye\n");
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn output_is_bounded_and_never_blocks_the_program() {
    let endless = failure(spec("yes", &[])).await;
    assert!(
        matches!(endless, ProgramError::TooMuch { limit: 1_048_576 }),
        "{endless}"
    );
    let mut ignoring = shell("trap '' PIPE TERM; while :; do echo x 2>/dev/null; done");
    (ignoring.max_stdout, ignoring.grace) = (1000, Duration::from_millis(200));
    let ignoring = failure(ignoring).await;
    assert!(
        matches!(ignoring, ProgramError::TooMuch { limit: 1000 }),
        "{ignoring}"
    );
    let script = "echo first >&2; head -c 50000000 /dev/zero >&2; echo last >&2; echo done";
    let outcome = run(shell(script)).await.unwrap();
    assert_eq!(out(&outcome), "done\n");
    let said = err(&outcome);
    assert!(said.starts_with("first\n") && said.ends_with("last\n"));
    assert_eq!(outcome.stderr.left_out, 50_000_011 - 4096);
    // One that closes its output goes on.
    let outcome = run(shell("exec >&- 2>&-; sleep 0.2; exit 5"))
        .await
        .unwrap();
    assert_eq!(outcome.status, Status::Code(5));
}
