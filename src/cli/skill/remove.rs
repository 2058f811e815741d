//! `ati skill remove`.

use serde_json::json;

use super::super::{Format, file_failure, output};
use super::bundled::BundledProvider;
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
    let provider = BundledProvider::of(&installed.path).ok().flatten();
    let provider = provider.filter(BundledProvider::is_installed);
    let provider = provider.map(|provider| provider.name);
    staging
        .take(&installed.path)
        .map_err(|e| file_failure(Code::ExecutionFailed, &installed.path, e))?;
    drop(staging);
    // Of two skills with the same name, the other one is used from now on.
    let twin = place::find(name).map(|twin| twin.path);
    output::lines_or_value(
        asked,
        || {
            output::line(&format!("Removed skill '{name}'."));
            if let Some(provider) = &provider {
                output::line(&format!(
                    "  its provider '{provider}' stays; 'ati provider remove {provider}' removes it"
                ));
            }
            if let Some(twin) = &twin {
                let twin = twin.display();
                output::line(&format!("  another skill has its name: {twin}"));
            }
        },
        || {
            let mut removed =
                json!({"status": "removed", "name": name, "directory": installed.path});
            if let Some(provider) = &provider {
                removed["provider_kept"] = json!(provider);
            }
            if let Some(twin) = &twin {
                removed["same_name"] = json!(twin);
            }
            removed
        },
    );
    Ok(0)
}
