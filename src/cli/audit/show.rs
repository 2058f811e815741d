use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tracing::info;

use crate::cli::{Format, file_failure, output};
use crate::error::{Code, Failure};
use crate::telemetry::audit::{self, Filter, Follower};

/// How often a file is looked at while it is followed.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What is shown, and how.
pub struct Shown {
    pub count: Count,
    pub filter: Filter,
    pub follows: bool,
    pub asked: Option<Format>,
}

#[derive(Clone, Copy)]
pub enum Count {
    Last(usize),
    All,
}

/// Shows entries of an audit file.
pub fn file(path: PathBuf, shown: &Shown) -> Result<u8, Failure> {
    let failure = |e| file_failure(Code::ExecutionFailed, &path, e);
    let filter = &shown.filter;
    if !shown.follows {
        let entries = match shown.count {
            Count::Last(count) => audit::tail(&path, count, filter),
            Count::All => audit::search(&path, filter),
        };
        let place = path.display().to_string();
        return Ok(shown.list(&entries.map_err(failure)?, &place));
    }
    let count = match shown.count {
        Count::Last(count) => count,
        Count::All => usize::MAX,
    };
    let started = Follower::start(path.clone(), filter.clone(), count);
    let (mut entries, mut follower) = started.map_err(failure)?;
    while shown.stream(&entries) {
        std::thread::sleep(LOOK_EVERY);
        entries = follower.more().map_err(failure)?;
    }
    Ok(0)
}

impl Shown {
    fn as_json(&self) -> bool {
        matches!(self.asked, None | Some(Format::Json))
    }

    /// All that was found. `place` is where.
    pub fn list(&self, entries: &[Value], place: &str) -> u8 {
        if entries.is_empty() {
            info!("No audit entries found in {place}");
            // Scripts that ask for JSON parse it; others test whether there is any output.
            if self.asked != Some(Format::Json) {
                return 0;
            }
        }
        if self.as_json() {
            output::compact(&entries);
        } else {
            entries.iter().for_each(|entry| output::line(&line(entry)));
        }
        0
    }

    /// What has come. False once there is no reader.
    pub fn stream(&self, entries: &[Value]) -> bool {
        let mut text = String::new();
        for entry in entries {
            match self.as_json() {
                true => text.push_str(&entry.to_string()),
                false => text.push_str(&line(entry)),
            }
            text.push('\n');
        }
        output::protocol(text.as_bytes())
    }
}

fn line(entry: &Value) -> String {
    let text = |key: &str| entry[key].as_str().unwrap_or_default();
    let mark = if text("status") == "ok" { "OK" } else { "ERR" };
    // A request to a route has no tool, and rarely a token that names its agent.
    let what = match entry["route"].as_str() {
        Some(route) => format!("{route}: {} {}", text("method"), text("path")),
        None => text("tool").to_owned(),
    };
    let agent = match entry["agent_sub"].as_str() {
        None if entry["route"].is_string() => String::new(),
        agent => format!(" agent={}", agent.unwrap_or_default()),
    };
    let line = format!(
        "{} [{mark}] {what} ({}ms){agent} {}",
        text("ts"),
        entry["duration_ms"],
        text("error"),
    );
    // Error texts come from upstreams: a control character must not reach the terminal.
    line.trim_end().replace(char::is_control, " ")
}
