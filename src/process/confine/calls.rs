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

/// A program of another architecture (32 bits) is killed at its first call: its numbers mean other
/// calls.
pub fn filter(net: bool) -> Result<BpfProgram, String> {
    let arch = TargetArch::try_from(ARCH).map_err(|e| format!("seccomp: {e}"))?;
    let deny = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let rules = rules(net).map_err(|e| format!("seccomp: {e}"))?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, deny, arch);
    let program = filter.and_then(BpfProgram::try_from);
    program.map_err(|e| format!("seccomp: {e}"))
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn rules(net: bool) -> Result<Rules, seccompiler::BackendError> {
    let is =
        |place, value: u64, length| SeccompCondition::new(place, length, SeccompCmpOp::Eq, value);
    let is_not = |place, value: u64| {
        SeccompCondition::new(place, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, value)
    };
    // What is typed into the caller's terminal, as if the caller had done so.
    let typing = |request: u64| SeccompRule::new(vec![is(1, request, SeccompCmpArgLen::Dword)?]);
    let typing = vec![typing(TIOCSTI)?, typing(TIOCLINUX)?];
    // The limits of another process: of ati, which has the same user.
    let others_limits = vec![SeccompRule::new(vec![is_not(0, 0)?, is_not(2, 0)?])?];
    let mut rules: Rules = [
        (libc::SYS_ioctl, typing.clone()),
        (libc::SYS_prlimit64, others_limits.clone()),
    ]
    .into();
    #[cfg(target_arch = "x86_64")]
    rules.extend([
        (X32_IOCTL, typing),
        (X32 + libc::SYS_prlimit64, others_limits),
    ]);
    if !net {
        // Of every kind: a socket by name leads to other services of this machine. Pairs of
        // sockets are left, which lead nowhere. io_uring opens sockets without a call of its own.
        for call in [
            libc::SYS_socket,
            libc::SYS_io_uring_setup,
            libc::SYS_io_uring_enter,
            libc::SYS_io_uring_register,
        ] {
            rules.insert(call, Vec::new());
            #[cfg(target_arch = "x86_64")]
            rules.insert(X32 + call, Vec::new());
        }
    }
    Ok(rules)
}
