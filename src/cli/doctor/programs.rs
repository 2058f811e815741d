//! Checks of the programs that are tools.

use super::Findings;
use crate::cli::programs;
use crate::snapshot::Snapshot;

const CHECK: &str = "programs";

pub fn check(snapshot: &Snapshot, found: &mut Findings) {
    let faults = programs::faults(snapshot);
    for fault in &faults {
        let field = fault.key.trim_start_matches("provider.");
        let message = format!("'{}', {field}: {}", fault.provider.name, fault.message);
        found.fail(CHECK, message, &fault.fix);
    }
    let count = programs::programs(snapshot).count();
    if faults.is_empty() && count > 0 {
        found.ok(CHECK, format!("{count} programs of tools can be started"));
    }
}
