//! `ati audit`: the log of tool calls.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tracing::info;

use super::{Format, file_failure, output};
use crate::auth::session::{self, SESSION_TOKEN};
use crate::auth::token;
use crate::config::{AUDIT_FILE, Environment};
use crate::error::{Code, Failure};
use crate::request_id::RequestId;
use crate::telemetry::audit::{self, Audit, AuditEntry, Filter};
use crate::text;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Show the most recent tool calls, and requests to routes where they are audited
    Tail {
        /// How many to show
        #[arg(short = 'n', long = "count", default_value_t = 20)]
        count: usize,
    },
    /// Show the tool calls and requests that match every given option
    Search {
        /// Only this tool; a name that ends in * matches every tool that begins so
        #[arg(long)]
        tool: Option<String>,

        /// Only requests to this route; a name that ends in * matches every route that begins so
        #[arg(long)]
        route: Option<String>,

        /// Only what this job did
        #[arg(long, value_name = "ID")]
        job: Option<String>,

        /// Only calls within this time: 30s, 15m, 1h, 7d
        #[arg(long, value_parser = parse_since)]
        since: Option<Duration>,
    },
}

pub fn run(command: Command, asked: Option<Format>) -> Result<u8, Failure> {
    let path = path(&Environment::read());
    let entries = match command {
        Command::Tail { count } => audit::tail(&path, count),
        Command::Search {
            tool,
            route,
            job,
            since,
        } => {
            let since = since.and_then(|back| SystemTime::now().checked_sub(back));
            let filter = Filter {
                tool: tool.as_deref(),
                route: route.as_deref(),
                job: job.as_deref(),
                since: since.map(audit::timestamp),
            };
            audit::search(&path, &filter)
        }
    };
    let entries = entries.map_err(|e| file_failure(Code::ExecutionFailed, &path, e))?;
    if entries.is_empty() {
        info!("No audit entries found in {}", path.display());
        // Scripts that ask for JSON parse it; others test whether there is any output.
        if asked != Some(Format::Json) {
            return Ok(0);
        }
    }
    if matches!(asked, None | Some(Format::Json)) {
        output::compact(&entries);
    } else {
        entries.iter().for_each(|entry| output::line(&line(entry)));
    }
    Ok(0)
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

/// The audit log of this machine.
pub fn path(env: &Environment) -> PathBuf {
    let set = env.audit_file.clone();
    set.unwrap_or_else(|| env.ati_dir.join(AUDIT_FILE))
}

fn parse_since(text: &str) -> Result<Duration, String> {
    let expected = || "expected a number with s, m, h or d, like 30m".to_owned();
    let unit = text.chars().last().ok_or_else(expected)?;
    let count: u64 = text[..text.len() - unit.len_utf8()]
        .parse()
        .map_err(|_| expected())?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(expected()),
    };
    Ok(Duration::from_secs(count.saturating_mul(seconds)))
}

/// The audit record of a call that the proxy runs, written on the caller's machine.
pub struct RemoteCall<'a> {
    tool: &'a str,
    args: Box<RawValue>,
    started: Instant,
    /// The proxy's id of the call, from its answer.
    pub request_id: Option<RequestId>,
}

impl<'a> RemoteCall<'a> {
    pub fn start(tool: &'a str, args: &Map<String, Value>) -> Self {
        RemoteCall {
            tool,
            args: audit::redact(args),
            started: Instant::now(),
            request_id: None,
        }
    }

    /// The tool is a program: its words are recorded.
    pub fn of_program(&mut self, words: &[String]) {
        self.args = audit::redact_words(words);
    }

    pub fn end(self, failure: Option<&Failure>) {
        let claims = session::resolve(SESSION_TOKEN)
            .ok()
            .flatten()
            .and_then(|token| token::inspect(&token))
            .unwrap_or_default();
        let claim = |name: &str| claims.get(name).and_then(Value::as_str);
        Audit::direct(&path(&Environment::read())).record(&AuditEntry {
            ts: audit::timestamp(SystemTime::now()),
            tool: self.tool,
            args: &self.args,
            status: if failure.is_none() { "ok" } else { "error" },
            duration_ms: self.started.elapsed().as_millis() as u64,
            agent_sub: claim("sub").unwrap_or("unknown"),
            job_id: claim("job_id"),
            sandbox_id: claim("sandbox_id"),
            request_id: self.request_id,
            error: failure.map(|failure| {
                text::clip_chars(&failure.one_line(), audit::LONGEST_ERROR).to_owned()
            }),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_takes_a_number_with_a_unit() {
        assert_eq!(parse_since("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_since("7d"), Ok(Duration::from_secs(7 * 86_400)));
        for bad in ["", "5", "m", "-1h", "1w", "1.5h", "ü"] {
            assert!(parse_since(bad).is_err(), "{bad}");
        }
    }
}
