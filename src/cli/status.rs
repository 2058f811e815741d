//! `ati status`: what the running proxy is and does, as it tells over its upgrade socket.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{Format, output};
use crate::config::{self, Environment};
use crate::error::Failure;
use crate::server;

/// Which proxy is asked: the one that runs with this folder and conf file.
#[derive(clap::Args)]
pub struct Args {
    /// Folder of the proxy [default: $ATI_DIR, then ~/.ati]
    #[arg(long, value_name = "DIR")]
    ati_dir: Option<PathBuf>,

    /// Conf file of the proxy
    #[arg(long, value_name = "FILE")]
    conf: Option<PathBuf>,
}

impl Args {
    /// Where the proxy listens. What is wrong with the conf file is part of a failure: the proxy
    /// may have started with a better one.
    pub fn ask(&self, ask: impl Fn(&Path) -> Result<Value, Failure>) -> Result<Value, Failure> {
        let dir = self.ati_dir.clone();
        let dir = dir.unwrap_or_else(|| Environment::read().ati_dir);
        let (socket, problems) = config::upgrade_socket(&dir, self.conf.as_deref());
        ask(&socket).map_err(|failure| match problems.first() {
            Some(problem) => failure.hint(format!("the conf file can't be read: {problem}")),
            None => failure,
        })
    }
}

pub fn run(args: &Args, format: Format) -> Result<u8, Failure> {
    let status = args.ask(server::ask_status)?;
    match format {
        Format::Json => output::pretty(&status),
        Format::Text | Format::Table => lines(&status).iter().for_each(|line| output::line(line)),
    }
    Ok(0)
}

/// The answer for people. Keys that are empty are left out.
fn lines(status: &Value) -> Vec<String> {
    let text = |key: &str| plain(&status[key]);
    let mut lines = vec![format!(
        "ati {} {}, pid {}, started {}",
        text("version"),
        text("state"),
        text("pid"),
        ago(&status["started_at"]),
    )];
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            lines.push(format!("{name:<12} {value}"));
        }
    };
    add("folder", text("ati_dir"));
    add("conf", text("conf"));
    add("listeners", pairs(&status["listeners"]));
    add(
        "loaded",
        format!(
            "{} tools of {} providers, {} routes",
            text("tools"),
            text("providers"),
            text("routes")
        ),
    );
    let keyring = &status["keyring"];
    add(
        "keyring",
        format!(
            "{}, {} keys, loaded {}",
            plain(&keyring["source"]),
            plain(&keyring["keys"]),
            ago(&keyring["loaded_at"])
        ),
    );
    add(
        "admission",
        format!(
            "tokens {}, signatures {}",
            text("auth"),
            text("sig_verify_mode")
        ),
    );
    add(
        "under way",
        format!(
            "{} requests, {} connections, {} WebSockets",
            text("in_flight"),
            text("connections"),
            text("websockets")
        ),
    );
    add("last reload", last_reload(&status["last_reload"]));
    add("refused keys", list(&status["credentials_refused"]));
    for (name, state) in status["mcp"].as_object().into_iter().flatten() {
        let error = state["error"].as_str().map(|error| format!(": {error}"));
        add(
            "mcp",
            format!(
                "{name} {}{}",
                plain(&state["state"]),
                error.unwrap_or_default()
            ),
        );
    }
    lines.iter().map(|line| output::printable(line)).collect()
}

fn last_reload(report: &Value) -> String {
    if report.is_null() {
        return "none since the start".to_owned();
    }
    let problems = list(&report["problems"]);
    let problems = Some(problems).filter(|problems| !problems.is_empty());
    format!(
        "{} {}, {} ms{}",
        plain(&report["outcome"]),
        ago(&report["at"]),
        plain(&report["ms"]),
        problems.map(|text| format!(": {text}")).unwrap_or_default()
    )
}

fn ago(at: &Value) -> String {
    at.as_u64().map(output::ago).unwrap_or_default()
}

fn pairs(value: &Value) -> String {
    let map = value.as_object().map_or_else(Map::new, Clone::clone);
    let pairs: Vec<String> = map
        .iter()
        .map(|(name, value)| format!("{name} {}", plain(value)))
        .collect();
    pairs.join(", ")
}

pub fn list(value: &Value) -> String {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    let items: Vec<String> = items.iter().map(plain).collect();
    items.join("; ")
}

/// A text without quotes; nothing for null.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
