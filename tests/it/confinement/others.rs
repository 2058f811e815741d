//! What a confined program could do to others with calls that Landlock doesn't guard.

use std::fs::{File, Permissions, set_permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use ati::process::Sandbox;
use rustix::io::{FdFlags, fcntl_setfd};

use super::sandbox::{Places, kernel_confines, python, text};

/// A system call by its number.
fn syscall(number: &str, args: &str) -> String {
    format!(
        "import ctypes, os; l = ctypes.CDLL(None, use_errno=True); \
         r = l.syscall({number}, {args}); \
         e = ctypes.get_errno()\nif r < 0: raise OSError(e, '')"
    )
}

fn mode(path: &std::path::Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

#[tokio::test]
async fn pair_of_sockets_without_the_net_leads_nowhere() {
    if !kernel_confines().await {
        return;
    }
    let places = Places::new();
    let path = places.own.join("service");
    let service = UnixDatagram::bind(&path).unwrap();
    service.set_nonblocking(true).unwrap();
    let sandbox = places.sandbox();
    let pair = |family: &str, kind: &str, more: &str| {
        format!("from socket import *; a, b = socketpair({family}, {kind}); {more}")
    };
    let send = format!("a.sendto(b'x', '{}')", text(&path));
    for kind in ["SOCK_DGRAM", "SOCK_DGRAM | SOCK_CLOEXEC", "SOCK_RAW"] {
        let script = pair("AF_UNIX", kind, &send);
        assert_eq!(python(Some(&sandbox), &script).await, "EPERM", "{script}");
        assert!(service.recv(&mut [0; 8]).is_err());
        assert_eq!(python(None, &script).await, "ok", "{script}");
        assert_eq!(service.recv(&mut [0; 8]).unwrap(), 1);
    }
    let tipc = pair("30", "SOCK_STREAM", "");
    assert_eq!(python(Some(&sandbox), &tipc).await, "EPERM");
    if cfg!(target_arch = "x86_64") {
        let x32 = syscall("0x40000035", "1, 2, 0, ctypes.create_string_buffer(8)");
        assert_eq!(python(Some(&sandbox), &x32).await, "EPERM");
    }
    for kind in ["SOCK_STREAM", "SOCK_SEQPACKET | SOCK_NONBLOCK"] {
        let script = pair("AF_UNIX", kind, "a.send(b'x'); b.recv(1)");
        assert_eq!(python(Some(&sandbox), &script).await, "ok", "{script}");
    }
    let open = Sandbox {
        net: true,
        ..sandbox
    };
    let script = pair("AF_UNIX", "SOCK_DGRAM", "");
    assert_eq!(python(Some(&open), &script).await, "ok");
}

#[tokio::test]
async fn confined_program_can_not_change_modes_and_owners_by_path() {
    if !kernel_confines().await {
        return;
    }
    let places = Places::new();
    let key = text(&places.key);
    set_permissions(&places.key, Permissions::from_mode(0o600)).unwrap();
    let sandbox = Sandbox {
        net: true,
        ..places.sandbox()
    };
    let at = "-100, ctypes.create_string_buffer(PATH), 0o666, 0";
    let at = at.replace("PATH", &format!("b'{key}'"));
    // They say that they did it: git and others give up where they fail.
    for script in [
        format!("import os; os.chmod('{key}', 0o666)"),
        format!(
            "import os; os.chmod(os.path.basename('{key}'), 0o666, \
             dir_fd=os.open(os.path.dirname('{key}'), os.O_PATH))"
        ),
        format!("import os; os.chmod(f'/proc/self/fd/{{os.open(\"{key}\", os.O_PATH)}}', 0o666)"),
        syscall("452", &at),
    ] {
        assert_eq!(python(Some(&sandbox), &script).await, "ok", "{script}");
        assert_eq!(mode(&places.key), 0o600, "{script}");
    }
    let unconfined = format!("import os; os.chmod('{key}', 0o640)");
    assert_eq!(python(None, &unconfined).await, "ok");
    assert_eq!(mode(&places.key), 0o640);
    for script in [
        format!("import os; os.chown('{key}', -1, os.getgid())"),
        format!("import os; os.lchown('{key}', -1, os.getgid())"),
        format!(
            "import os; os.chown(os.path.basename('{key}'), -1, os.getgid(), \
             dir_fd=os.open(os.path.dirname('{key}'), os.O_PATH))"
        ),
        format!("import os; os.setxattr('{key}', 'user.a', b'1')"),
        format!("import os; os.setxattr('{key}', 'user.a', b'1', follow_symlinks=False)"),
        format!("import os; os.removexattr('{key}', 'user.a')"),
        format!("import os; os.removexattr('{key}', 'user.a', follow_symlinks=False)"),
        syscall("463", "-100, 0, 0, 0, 0, 0"),
        syscall("466", "-100, 0, 0, 0"),
        // It could set attributes too.
        syscall("425", "1, ctypes.create_string_buffer(120)"),
    ] {
        assert_eq!(python(Some(&sandbox), &script).await, "EPERM", "{script}");
    }
    // By descriptor it can, where it may open the file. New files are its user's alone.
    let own = places.own.join("new");
    let file = text(&own);
    let script = format!("open('{file}', 'w')");
    assert_eq!(python(Some(&sandbox), &script).await, "ok");
    assert_eq!(mode(&own), 0o600);
    let script = format!("import os; f = open('{file}'); os.fchmod(f.fileno(), 0o640)");
    assert_eq!(python(Some(&sandbox), &script).await, "ok");
    assert_eq!(mode(&own), 0o640);
    let copy = format!("import shutil; shutil.copy('/etc/passwd', '{file}')");
    assert_eq!(python(Some(&sandbox), &copy).await, "ok");
}

#[tokio::test]
async fn confined_program_does_not_get_descriptors_of_ati() {
    if !kernel_confines().await {
        return;
    }
    let places = Places::new();
    let key = File::open(&places.key).unwrap();
    fcntl_setfd(&key, FdFlags::empty()).unwrap();
    let script = format!("import os; os.read({}, 1)", key.as_raw_fd());
    assert_eq!(python(None, &script).await, "ok");
    let confined = python(Some(&places.sandbox()), &script).await;
    assert_eq!(confined, "EBADF");
}

#[tokio::test]
async fn confined_program_can_not_slow_others_or_leave_memory_behind() {
    if !kernel_confines().await {
        return;
    }
    let sandbox = Sandbox::default();
    let ati = std::process::id();
    let numbers = |x86_64: &'static str, aarch64| {
        if cfg!(target_arch = "x86_64") {
            x86_64
        } else {
            aarch64
        }
    };
    let (ioprio, migrate, pages) = (
        numbers("251", "30"),
        numbers("256", "238"),
        numbers("279", "239"),
    );
    for script in [
        format!(
            "import os; os.setpriority(os.PRIO_PROCESS, {ati}, os.getpriority(os.PRIO_PROCESS, {ati}))"
        ),
        format!("import os; os.sched_setaffinity({ati}, os.sched_getaffinity({ati}))"),
        format!("import os; os.sched_setscheduler({ati}, os.SCHED_OTHER, os.sched_param(0))"),
        format!("import os; os.sched_setparam({ati}, os.sched_param(0))"),
        syscall(ioprio, &format!("1, {ati}, 0")),
    ] {
        assert_eq!(python(Some(&sandbox), &script).await, "EPERM", "{script}");
        assert_eq!(python(None, &script).await, "ok", "{script}");
    }
    for script in [
        "import os; os.setpriority(os.PRIO_USER, 0, 19)".to_owned(),
        "import os; os.setpriority(os.PRIO_PGRP, 0, 19)".to_owned(),
        syscall(ioprio, "3, 0, 0"),
        syscall(migrate, &format!("{ati}, 0, 0, 0")),
        syscall(pages, &format!("{ati}, 0, 0, 0, 0, 0")),
        syscall(numbers("29", "194"), "0, 4096, 0o600"),
        syscall(numbers("68", "186"), "0, 0o600"),
        syscall(numbers("64", "190"), "0, 1, 0o600"),
        syscall(numbers("240", "180"), "b'ati-test', 0o102, 0o600, 0"),
    ] {
        assert_eq!(python(Some(&sandbox), &script).await, "EPERM", "{script}");
    }
    for script in [
        "import os; os.setpriority(os.PRIO_PROCESS, 0, 19); os.nice(0)",
        "import os; os.sched_setaffinity(0, os.sched_getaffinity(0))",
        "import multiprocessing.shared_memory, mmap; mmap.mmap(-1, 4096)",
    ] {
        assert_eq!(python(Some(&sandbox), script).await, "ok", "{script}");
    }
}

#[tokio::test]
async fn folders_of_other_calls_stay_closed_where_all_is_open() {
    if !kernel_confines().await {
        return;
    }
    let temporary = std::env::temp_dir();
    let folder = |prefix: &str| {
        let made = tempfile::Builder::new().prefix(prefix).tempdir().unwrap();
        std::fs::write(made.path().join("file"), "planted").unwrap();
        made
    };
    let sandbox = |read: PathBuf| Sandbox {
        read: vec![read],
        ..Sandbox::default()
    };
    let all = [
        (folder("ati-call-"), "EACCES"),
        (folder(".ati-cli-out-"), "EACCES"),
        (folder("x"), "ok"),
    ];
    for open in [PathBuf::from("/"), temporary.canonicalize().unwrap()] {
        for (folder, expected) in &all {
            let script = format!("open('{}/file').read()", text(folder.path()));
            let found = python(Some(&sandbox(open.clone())), &script).await;
            assert_eq!(found, *expected, "{script}");
        }
    }
    // One that is made while the program runs.
    let later = "import time, glob, os; \
                 open(READY, 'w').close()\n\
                 while not os.path.exists(GO): time.sleep(0.01)\n\
                 open(open(GO).read()).read()";
    let places = Places::new();
    let (ready, go) = (places.own.join("ready"), places.own.join("go"));
    let script = later
        .replace("READY", &format!("'{}'", text(&ready)))
        .replace("GO", &format!("'{}'", text(&go)));
    let running = Sandbox {
        write: vec![places.own.clone()],
        ..sandbox(PathBuf::from("/"))
    };
    let make = async {
        super::eventually("the program runs", || ready.exists()).await;
        let made = folder("ati-call-");
        let whole = places.own.join("whole");
        std::fs::write(&whole, text(&made.path().join("file"))).unwrap();
        std::fs::rename(whole, &go).unwrap();
        made
    };
    let (found, _made) = tokio::join!(python(Some(&running), &script), make);
    assert_eq!(found, "EACCES");
}
