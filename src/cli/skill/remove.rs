//! `ati skill remove`.

use serde_json::json;

use super::super::{Format, file_failure, output};
use super::place::{self, Staging};
use crate::error::{Code, Failure};

/// A skill is found by its name among those that are installed: a name can't lead to another
/// folder. It leaves its place at once, and is deleted then.
pub fn run(name: &str, asked: Option<Format>) -> Result<u8, Failure> {
    let absent = || {
        let message = format!("Skill '{name}' not found.");
        Failure::new(Code::ExecutionFailed, message)
    };
    let staging = Staging::open()?;
    let installed = place::find(name).ok_or_else(absent)?;
    staging
        .take(&installed.path)
        .map_err(|e| file_failure(Code::ExecutionFailed, &installed.path, e))?;
    drop(staging);
    output::lines_or_value(
        asked,
        || output::line(&format!("Removed skill '{name}'.")),
        || json!({"status": "removed", "name": name, "directory": installed.path}),
    );
    Ok(0)
}
