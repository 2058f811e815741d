//! Capabilities of a server that isn't root's. They stay with the server: its children get none but
//! those that they are lent, because CAP_SETUID in the hands of a program is as good as root.
//!
//! A process without root's id inherits the ambient set of the thread that starts it. So that set
//! is emptied when the server starts, and filled for the time of a start that needs some of it.

use std::io;
use std::sync::OnceLock;

use rustix::thread::{
    CapabilitySet, capabilities, capability_is_in_ambient_set, clear_ambient_capability_set,
    configure_capability_in_ambient_set, set_capabilities,
};

/// What it takes to start a program as another user.
pub const TO_SWITCH_USERS: CapabilitySet = CapabilitySet::SETUID.union(CapabilitySet::SETGID);

/// The ambient set that this process was started with.
static AT_START: OnceLock<CapabilitySet> = OnceLock::new();

/// Empties the ambient set of this thread and of those that it starts. The server's capabilities
/// stay.
pub fn keep_from_children() {
    AT_START.get_or_init(|| {
        let all = (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit));
        let ambient = all
            .filter(|one| capability_is_in_ambient_set(*one).unwrap_or(false))
            .collect();
        // Fails on kernels that have no such set.
        let _ = clear_ambient_capability_set();
        ambient
    });
}

/// The ambient set that this process was started with, for a process that takes its place.
pub fn at_start() -> CapabilitySet {
    AT_START.get().copied().unwrap_or(CapabilitySet::empty())
}

/// Whether this process may start programs as other users.
pub fn can_switch_users() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(TO_SWITCH_USERS))
}

/// Runs `spawn`, whose child inherits these capabilities as far as this process has them. Root's
/// children have them in any case.
pub fn lend<T>(lent: CapabilitySet, spawn: impl FnOnce() -> T) -> T {
    let Ok(own) = capabilities(None) else {
        return spawn();
    };
    let lent = lent & own.permitted;
    if lent.is_empty() || rustix::process::geteuid().is_root() {
        return spawn();
    }
    let mut lending = own;
    lending.inheritable |= lent;
    // Where this fails, the child is started without them, and says what it may not do.
    let _ = set_capabilities(None, lending);
    for one in lent.iter() {
        let _ = configure_capability_in_ambient_set(one, true);
    }
    let spawned = spawn();
    let _ = clear_ambient_capability_set();
    let _ = set_capabilities(None, own);
    spawned
}

/// Gives up all of this thread's capabilities.
pub fn drop_all() -> io::Result<()> {
    let _ = clear_ambient_capability_set();
    let mut none = capabilities(None)?;
    none.effective = CapabilitySet::empty();
    none.permitted = CapabilitySet::empty();
    none.inheritable = CapabilitySet::empty();
    // A sandbox may forbid the call, where there is nothing to give up either.
    let dropped = set_capabilities(None, none);
    let left = capabilities(None)?;
    if (left.effective | left.permitted).is_empty() {
        return Ok(());
    }
    dropped?;
    Err(io::Error::other("it keeps capabilities"))
}
