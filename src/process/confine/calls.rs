//! System calls that a confined program may not make, by a seccomp filter: they fail with EPERM.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// Another numbering of the calls of a 64-bit program.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;
/// `ioctl` has a number of its own there.
#[cfg(target_arch = "x86_64")]
const X32_IOCTL: i64 = X32 + 514;

/// Of `ioctl`: a byte as if it had been typed, and the same by way of a virtual console.
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;

/// `move_pages` too.
#[cfg(target_arch = "x86_64")]
const X32_MOVE_PAGES: i64 = X32 + 533;

/// Newer than the C libraries' lists; the same everywhere.
const FCHMODAT2: i64 = 452;
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;
const FILE_SETATTR: i64 = 469;

/// Which of a process, a group and a user `setpriority` and `ioprio_set` mean: a process.
const PRIO_PROCESS: u64 = 0;
const IOPRIO_WHO_PROCESS: u64 = 1;

const AF_UNIX: u64 = 1;
/// What `socketpair` adds its flags to.
const SOCKET_KIND: u64 = 0xf;
const SOCK_STREAM: u64 = 1;
const SOCK_SEQPACKET: u64 = 5;

/// The filters, all of which apply. A program of another architecture (32 bits) is killed at its
/// first call: its numbers mean other calls.
pub fn filters(net: bool) -> Result<Vec<BpfProgram>, String> {
    let arch = TargetArch::try_from(ARCH).map_err(|e| format!("seccomp: {e}"))?;
    let filter = |rules: Rules, number: i32| {
        let answer = SeccompAction::Errno(number.unsigned_abs());
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, answer, arch);
        filter.and_then(BpfProgram::try_from)
    };
    let denied = denied(net).and_then(|rules| filter(rules, libc::EPERM));
    let ignored = filter(ignored(), 0);
    let all = denied.and_then(|denied| Ok(vec![denied, ignored?]));
    all.map_err(|e| format!("seccomp: {e}"))
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;
type Conditions = Result<Vec<SeccompRule>, seccompiler::BackendError>;

/// Adds a call under both of its numbers. Without rules it matches always.
fn add(all: &mut Rules, call: i64, rules: &[SeccompRule]) {
    all.insert(call, rules.to_vec());
    #[cfg(target_arch = "x86_64")]
    all.insert(X32 + call, rules.to_vec());
}

/// Matches calls of which one argument (its lower half, which is all that the kernel looks at) is
/// not as given.
fn unless(wanted: &[(u8, u64)]) -> Conditions {
    let rule = |(place, value): &(u8, u64)| {
        let length = SeccompCmpArgLen::Dword;
        let condition = SeccompCondition::new(*place, length, SeccompCmpOp::Ne, *value)?;
        SeccompRule::new(vec![condition])
    };
    wanted.iter().map(rule).collect()
}

/// Pairs of sockets that aren't connected to each other for good: a socket of datagrams can be
/// connected anew, to any socket of the machine that has a path.
fn loose_pairs() -> Conditions {
    let mut rules = unless(&[(0, AF_UNIX)])?;
    let kinds = (0..=SOCKET_KIND).filter(|kind| ![SOCK_STREAM, SOCK_SEQPACKET].contains(kind));
    for kind in kinds {
        let operator = SeccompCmpOp::MaskedEq(SOCKET_KIND);
        let condition = SeccompCondition::new(1, SeccompCmpArgLen::Dword, operator, kind)?;
        rules.push(SeccompRule::new(vec![condition])?);
    }
    Ok(rules)
}

/// Modes by path. Landlock doesn't guard them, and ati's files are this user's: a program could
/// open them to all users, and then they would be taken for public. Many programs (git, Python's
/// `shutil`) give up where this fails, so it does nothing instead.
fn ignored() -> Rules {
    let mut rules = Rules::new();
    #[cfg(target_arch = "x86_64")]
    add(&mut rules, libc::SYS_chmod, &[]);
    for call in [libc::SYS_fchmodat, FCHMODAT2] {
        add(&mut rules, call, &[]);
    }
    rules
}

fn denied(net: bool) -> Result<Rules, seccompiler::BackendError> {
    let is = |place, value: u64| {
        SeccompCondition::new(place, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
    };
    let is_not = |place, value: u64| {
        SeccompCondition::new(place, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, value)
    };
    let mut rules = Rules::new();
    // What is typed into the caller's terminal, as if the caller had done so.
    let typing = |request: u64| SeccompRule::new(vec![is(1, request)?]);
    let typing = [typing(TIOCSTI)?, typing(TIOCLINUX)?];
    add(&mut rules, libc::SYS_ioctl, &typing);
    // The limits of another process: of ati, which has the same user.
    let others_limits = [SeccompRule::new(vec![is_not(0, 0)?, is_not(2, 0)?])?];
    add(&mut rules, libc::SYS_prlimit64, &others_limits);
    // Its priority, processors and memory.
    let others_priority = unless(&[(0, PRIO_PROCESS), (1, 0)])?;
    add(&mut rules, libc::SYS_setpriority, &others_priority);
    let others_priority = unless(&[(0, IOPRIO_WHO_PROCESS), (1, 0)])?;
    add(&mut rules, libc::SYS_ioprio_set, &others_priority);
    let another = unless(&[(0, 0)])?;
    for call in [
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setattr,
        libc::SYS_sched_setaffinity,
        libc::SYS_move_pages,
        libc::SYS_migrate_pages,
    ] {
        add(&mut rules, call, &another);
    }
    #[cfg(target_arch = "x86_64")]
    rules.extend([
        (X32_IOCTL, typing.to_vec()),
        (X32_MOVE_PAGES, another.clone()),
    ]);
    // Owners and attributes by path, as modes; an access list is an attribute.
    #[cfg(target_arch = "x86_64")]
    for call in [libc::SYS_chown, libc::SYS_lchown] {
        add(&mut rules, call, &[]);
    }
    for call in [
        libc::SYS_fchownat,
        libc::SYS_setxattr,
        libc::SYS_lsetxattr,
        libc::SYS_removexattr,
        libc::SYS_lremovexattr,
        SETXATTRAT,
        REMOVEXATTRAT,
        FILE_SETATTR,
        // It opens sockets and sets attributes without a call of its own.
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        // Memory and queues that stay when all processes of the call are gone.
        libc::SYS_shmget,
        libc::SYS_msgget,
        libc::SYS_semget,
        libc::SYS_mq_open,
    ] {
        add(&mut rules, call, &[]);
    }
    if !net {
        // Of every kind: a socket by name leads to other services of this machine. Pairs of
        // streams are left, which lead nowhere.
        add(&mut rules, libc::SYS_socket, &[]);
        add(&mut rules, libc::SYS_socketpair, &loose_pairs()?);
    }
    Ok(rules)
}
