//! What a confined program can't do, and what the same program can do unconfined.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ati::process::program::{ProgramError, ProgramSpec, Status, run};
use ati::process::{Sandbox, abilities, close_to_programs};
use zeroize::Zeroizing;

use super::{err, failure, out, spec};

const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Prints what the kernel can. Where it can't confine, programs must not run as if it could.
pub async fn kernel_confines() -> bool {
    eprintln!("this kernel: {:?}", abilities());
    let Some(lack) = abilities().lack() else {
        return true;
    };
    let mut refused = spec("true", &[]);
    refused.sandbox = Some(Sandbox::default());
    let error = failure(refused).await;
    assert!(matches!(error, ProgramError::Sandbox(_)), "{lack}: {error}");
    false
}

/// Runs it in this sandbox, or in none.
pub fn within(sandbox: Option<&Sandbox>, program: &str, args: &[&str]) -> ProgramSpec {
    let variable = |name: &str, value: &str| (name.to_owned(), Zeroizing::new(value.to_owned()));
    ProgramSpec {
        env: vec![variable("PATH", PATH), variable("HOME", "/nonexistent")],
        sandbox: sandbox.cloned(),
        ..spec(program, args)
    }
}

/// The name of the error that a piece of Python ends with, or "ok".
const TRY: &str = r#"
import sys
try:
    exec(sys.argv[1])
    print("ok", end="")
except OSError as e:
    import errno
    print(errno.errorcode[e.errno], end="")
"#;

pub async fn python(sandbox: Option<&Sandbox>, script: &str) -> String {
    let outcome = run(within(sandbox, "python3", &["-c", TRY, script])).await;
    let outcome = outcome.unwrap_or_else(|e| panic!("{script}: {e}"));
    assert_eq!(
        outcome.status,
        Status::Code(0),
        "{script}: {}",
        err(&outcome)
    );
    out(&outcome)
}

/// A folder that may be written, one that may not, and a key file in a third.
pub struct Places {
    _all: tempfile::TempDir,
    pub own: PathBuf,
    outside: PathBuf,
    pub key: PathBuf,
}

impl Places {
    pub fn new() -> Self {
        let all = tempfile::tempdir().unwrap();
        let place = |name: &str| {
            let folder = all.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            folder
        };
        let (own, outside, keys) = (place("own"), place("outside"), place("keys"));
        let key = keys.join("key");
        std::fs::write(&key, "planted-key").unwrap();
        std::fs::write(outside.join("file"), "planted-file").unwrap();
        Places {
            _all: all,
            own,
            outside,
            key,
        }
    }

    pub fn sandbox(&self) -> Sandbox {
        Sandbox {
            write: vec![self.own.clone()],
            net: false,
            ..Sandbox::default()
        }
    }
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn confined_python_can_not_read_write_or_connect_outside() {
    if !kernel_confines().await {
        return;
    }
    let places = Places::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let socket = places.outside.join("socket");
    let _unix = UnixListener::bind(&socket).unwrap();
    let (own, outside, key) = (text(&places.own), text(&places.outside), text(&places.key));
    let sandbox = places.sandbox();
    for (script, confined) in [
        (format!("open('{key}').read()"), "EACCES"),
        (format!("import os; os.listdir('{outside}')"), "EACCES"),
        (format!("open('{outside}/new', 'w')"), "EACCES"),
        (format!("import os; os.truncate('{outside}/file', 0)"), "EACCES"),
        (format!("import os; os.rename('{outside}/file', '{outside}/other')"), "EACCES"),
        (format!("import os; os.link('{outside}/other', '{own}/link')"), "EXDEV"),
        ("open('/tmp/ati-test-confined', 'w').close(); import os; os.unlink('/tmp/ati-test-confined')".to_owned(), "EACCES"),
        (format!("import socket; socket.create_connection(('127.0.0.1', {port}))"), "EPERM"),
        ("import socket; socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)".to_owned(), "EPERM"),
        ("import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)".to_owned(), "EPERM"),
        (format!("import socket; socket.socket(socket.AF_UNIX).connect('{text}')", text = text(&socket)), "EPERM"),
    ] {
        assert_eq!(python(Some(&sandbox), &script).await, confined, "{script}");
        assert_eq!(python(None, &script).await, "ok", "{script}");
    }
    for script in [
        format!("open('{own}/new', 'w').write('x'); open('{own}/new').read()"),
        format!("import os; os.mkdir('{own}/d'); os.rename('{own}/new', '{own}/d/n')"),
        "import ssl, json, subprocess; subprocess.run(['true'], check=True)".to_owned(),
        "open('/etc/passwd').read(); open('/proc/self/status').read()".to_owned(),
        "open('/dev/null', 'w').write('x'); open('/dev/urandom', 'rb').read(1)".to_owned(),
        "import socket; socket.socketpair()".to_owned(),
    ] {
        assert_eq!(python(Some(&sandbox), &script).await, "ok", "{script}");
    }
    // With the net, and with a folder that may be read.
    let open = Sandbox {
        read: vec![places.outside.clone()],
        net: true,
        ..sandbox
    };
    let connect = format!("import socket; socket.create_connection(('127.0.0.1', {port}))");
    let read = format!("open('{outside}/other').read()");
    for script in [&connect, &read] {
        assert_eq!(python(Some(&open), script).await, "ok", "{script}");
    }
    let write = format!("open('{outside}/other', 'a')");
    assert_eq!(python(Some(&open), &write).await, "EACCES");
}

#[tokio::test]
async fn confined_git_can_not_read_write_or_connect_outside() {
    if !kernel_confines().await {
        return;
    }
    let places = Places::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "git://127.0.0.1:{}/x",
        listener.local_addr().unwrap().port()
    );
    let (own, outside) = (text(&places.own), text(&places.outside));
    let (sandbox, key) = (places.sandbox(), text(&places.key));
    let git = async |sandbox: Option<&Sandbox>, args: &[&str]| {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"];
        let mut spec = within(sandbox, "git", &[&identity, args].concat());
        spec.cwd = Some(places.own.clone());
        // An unconfined one waits for the server's answer.
        spec.timeout = Duration::from_secs(3);
        run(spec).await
    };
    let succeeds = async |sandbox: Option<&Sandbox>, args: &[&str]| {
        let outcome = git(sandbox, args).await.unwrap();
        assert_eq!(
            outcome.status,
            Status::Code(0),
            "{args:?}: {}",
            err(&outcome)
        );
    };
    let repository = format!("{own}/repository");
    for sandbox in [None, Some(&sandbox)] {
        let _ = std::fs::remove_dir_all(&repository);
        succeeds(sandbox, &["init", "-q", &repository]).await;
        let commit = ["commit", "-q", "--allow-empty", "-m", "one"];
        succeeds(sandbox, &[&["-C", &repository], &commit[..]].concat()).await;
        succeeds(sandbox, &["-C", &repository, "gc", "-q"]).await;
    }
    let clone = format!("{outside}/clone");
    for args in [
        &["hash-object", "--no-filters", key][..],
        &["clone", "-q", &repository, &clone],
    ] {
        let confined = git(Some(&sandbox), args).await.unwrap();
        assert_ne!(confined.status, Status::Code(0), "{args:?}");
        let said = err(&confined);
        assert!(said.contains("Permission denied"), "{args:?}: {said}");
        succeeds(None, args).await;
    }
    let confined = git(Some(&sandbox), &["ls-remote", &url]).await.unwrap();
    let said = err(&confined);
    assert!(said.contains("unable to connect"), "{said}");
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err());
    // It connects, and waits for an answer that doesn't come.
    let unconfined = git(None, &["ls-remote", &url]).await;
    assert!(matches!(unconfined, Err(ProgramError::Timeout { .. })));
    assert!(listener.accept().is_ok());
}

#[tokio::test]
async fn confined_program_can_not_reach_ati_or_its_supervisor() {
    if !kernel_confines().await {
        return;
    }
    let places = Places::new();
    let sandbox = Sandbox {
        net: true,
        ..places.sandbox()
    };
    let address = format!("ati-test-{}", std::process::id());
    let abstract_name = SocketAddr::from_abstract_name(&address).unwrap();
    let _abstract = UnixListener::bind_addr(&abstract_name).unwrap();
    let ati = std::process::id();
    let syscall = |number: &str, args: &str| {
        format!(
            "import ctypes, os; l = ctypes.CDLL(None, use_errno=True); \
             r = l.syscall({number}, {args}); \
             e = ctypes.get_errno()\nif r < 0: raise OSError(e, '')"
        )
    };
    for (script, confined) in [
        (
            format!("open('/proc/{ati}/environ', 'rb').read()"),
            "EACCES",
        ),
        (
            "import os; open(f'/proc/{os.getppid()}/environ', 'rb').read()".to_owned(),
            "EACCES",
        ),
        (format!("open('/proc/{ati}/mem', 'rb')"), "EACCES"),
        (
            "import os; open(f'/proc/{os.getppid()}/mem', 'rb')".to_owned(),
            "EACCES",
        ),
        (
            format!("import os; os.readlink('/proc/{ati}/fd/0')"),
            "EACCES",
        ),
        (
            format!("import os; os.listdir('/proc/{ati}/root/')"),
            "EACCES",
        ),
        (format!("import os; os.kill({ati}, 0)"), "EPERM"),
        ("import os; os.kill(os.getppid(), 0)".to_owned(), "EPERM"),
        (
            format!(
                "import resource as r; r.prlimit({ati}, r.RLIMIT_CORE, r.prlimit({ati}, r.RLIMIT_CORE))"
            ),
            "EPERM",
        ),
        (
            format!("import socket; socket.socket(socket.AF_UNIX).connect('\\0{address}')"),
            "EPERM",
        ),
    ] {
        assert_eq!(python(Some(&sandbox), &script).await, confined, "{script}");
        assert_eq!(python(None, &script).await, "ok", "{script}");
    }
    // Without the net, not by other ways into the kernel either.
    let offline = places.sandbox();
    let io_uring = syscall("425", "1, ctypes.create_string_buffer(120)");
    assert_eq!(python(Some(&offline), &io_uring).await, "EPERM");
    if cfg!(target_arch = "x86_64") {
        let x32_socket = syscall("0x40000029", "2, 1, 0");
        assert_eq!(python(Some(&offline), &x32_socket).await, "EPERM");
    }
    // Nothing to gain by executing a file, and nothing that root's program could do.
    let status = run(within(Some(&sandbox), "cat", &["/proc/self/status"])).await;
    let status = out(&status.unwrap());
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_eq!(
        (field("NoNewPrivs:"), field("Seccomp:")),
        ("1".into(), "2".into())
    );
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
}

#[tokio::test]
async fn ati_folder_stays_closed_where_its_parent_is_open() {
    if !kernel_confines().await {
        return;
    }
    let all = tempfile::tempdir().unwrap();
    let ati = all.path().join("lib").join("ati");
    std::fs::create_dir_all(&ati).unwrap();
    let files = [
        (ati.join("credentials"), "EACCES"),
        (all.path().join("lib/file"), "ok"),
        (all.path().join("lib/ati-file"), "ok"),
    ];
    for (file, _) in &files {
        std::fs::write(file, "x").unwrap();
    }
    let link = all.path().join("link");
    std::os::unix::fs::symlink(ati.join("credentials"), &link).unwrap();
    close_to_programs([ati.clone()]);
    for open in [all.path().to_owned(), PathBuf::from("/")] {
        let sandbox = Sandbox {
            read: vec![open],
            ..Sandbox::default()
        };
        for (file, expected) in &files {
            let script = format!("open('{}').read()", text(file));
            assert_eq!(python(Some(&sandbox), &script).await, *expected, "{script}");
        }
        let script = format!("open('{}').read()", text(&link));
        assert_eq!(python(Some(&sandbox), &script).await, "EACCES");
    }
    // What the call itself needs is open there.
    let credential = ati.join("credential");
    std::fs::write(&credential, "planted").unwrap();
    let mut spec = within(Some(&Sandbox::default()), "cat", &[text(&credential)]);
    spec.sandbox_read = vec![credential];
    assert_eq!(out(&run(spec).await.unwrap()), "planted");
    // A path that has become a link opens nothing.
    let swapped = Sandbox {
        read: vec![link],
        ..Sandbox::default()
    };
    let error = failure(within(Some(&swapped), "true", &[])).await;
    assert!(
        error.to_string().contains("leads through a link"),
        "{error}"
    );
    let missing = Sandbox {
        write: vec![all.path().join("missing")],
        ..Sandbox::default()
    };
    let error = failure(within(Some(&missing), "true", &[])).await;
    assert!(
        error.to_string().contains("missing: No such file"),
        "{error}"
    );
    // Root's own files, where this is root.
    let sandbox = Sandbox::default();
    let shadow = "open('/etc/shadow').read()";
    assert_eq!(python(Some(&sandbox), shadow).await, "EACCES");
}

#[tokio::test]
async fn limits_of_a_sandbox_hold() {
    if !kernel_confines().await {
        return;
    }
    let places = Places::new();
    let sandbox = |change: fn(&mut Sandbox)| {
        let mut sandbox = places.sandbox();
        change(&mut sandbox);
        sandbox
    };
    let busy = sandbox(|it| it.cpu_seconds = Some(1));
    let outcome = run(within(Some(&busy), "python3", &["-c", "while True: pass"])).await;
    // SIGXCPU
    assert_eq!(outcome.unwrap().status, Status::Signal(24));
    let small = sandbox(|it| it.memory_bytes = Some(256 << 20));
    let script = "try:\n  x = bytearray(1 << 30)\nexcept MemoryError: print('no memory')";
    let outcome = run(within(Some(&small), "python3", &["-c", script]))
        .await
        .unwrap();
    assert_eq!(out(&outcome), "no memory\n", "{}", err(&outcome));
    let short = sandbox(|it| it.file_bytes = Some(1000));
    let file = places.own.join("file");
    let script = format!(
        "with open('{}', 'wb') as f: f.write(b'x' * 2000)",
        text(&file)
    );
    assert_eq!(python(Some(&short), &script).await, "EFBIG");
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 1000);
    let few = sandbox(|it| it.processes = Some(5));
    let many = "i=0; while [ $i -lt 20 ]; do sleep 30 & i=$((i+1)); done; wait";
    let error = failure(within(Some(&few), "sh", &["-c", many])).await;
    assert!(
        matches!(error, ProgramError::TooManyProcesses { limit: 5, .. }),
        "{error}"
    );
    let fine = "for i in 1 2 3; do sleep 0.2 & done; wait; echo fine";
    let outcome = run(within(Some(&few), "sh", &["-c", fine])).await.unwrap();
    assert_eq!(out(&outcome), "fine\n");
}
