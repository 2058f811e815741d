//! One line for each tool call, and for each request to a route where the conf file says so, in a
//! file of its own. The server hands lines to a thread and never
//! waits for the disk; a command writes its one line before it ends.

mod chain;
mod file;
mod follow;
mod read;
mod redact;
mod verify;
mod words;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::value::RawValue;

pub use chain::{Hash, end_file as chain_file};
pub use follow::Follower;
pub use read::{Filter, StatusFilter, search, tail};
pub use redact::{not_parsed, redact};
pub use verify::{Misfit, Verified, verify};
pub use words::{redact_words, secret_words};

use super::metrics::METRICS;
use super::record::timestamp_with_offset;
use super::trail::FileFacts;
use super::writer::Writer;
use crate::request_id::RequestId;
use file::AuditFile;

/// How long a server that ends waits until the calls it answered are on disk.
const FLUSH: Duration = Duration::from_secs(10);
/// An error message is cut to this many characters in its entry.
pub const LONGEST_ERROR: usize = 1000;

/// One call, in the format of existing deployments.
#[derive(Debug, Serialize)]
pub struct AuditEntry<'a> {
    pub ts: String,
    /// As the caller named it.
    pub tool: &'a str,
    pub args: &'a RawValue,
    pub status: &'static str,
    pub duration_ms: u64,
    pub agent_sub: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<&'a str>,
    /// None where another process makes the call, which has its own id for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// The file that the call transferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<&'a FileFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One request to a route, in the same file. It has no `tool`, and no arguments: what passes
/// through a route isn't read.
#[derive(Debug, Serialize)]
pub struct RouteEntry<'a> {
    pub ts: String,
    pub route: &'a str,
    pub method: &'a str,
    /// Never with its query, which may hold a key.
    pub path: &'a str,
    /// `ok`, or `error` for a status of 400 or more, and where there was no answer.
    pub status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
    pub duration_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_sub: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<&'a str>,
    /// `token`, which proves the job, or `header`, which doesn't.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id_from: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<&'a str>,
    pub request_id: RequestId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

pub enum Audit {
    Background(Writer),
    Direct(PathBuf),
}

impl Audit {
    /// For the server. A file that can't be opened is logged, and opened again with every batch.
    /// `chain`: lines are a hash chain.
    pub fn background(path: &Path, chain: bool) -> Self {
        let mut file = AuditFile::new(path.to_path_buf(), chain);
        file.open();
        Audit::Background(Writer::spawn("audit", file))
    }

    /// For a command, which makes one call.
    pub fn direct(path: &Path) -> Self {
        Audit::Direct(path.to_path_buf())
    }

    pub fn record(&self, entry: &AuditEntry<'_>) {
        self.write(entry);
    }

    pub fn record_route(&self, entry: &RouteEntry<'_>) {
        self.write(entry);
    }

    fn write(&self, entry: &impl Serialize) {
        let Ok(mut line) = serde_json::to_vec(entry) else {
            METRICS.audit_lost(1);
            return;
        };
        line.push(b'\n');
        match self {
            Audit::Background(writer) => {
                if !writer.push(&line) {
                    METRICS.audit_lost(1);
                    file::report_loss("more calls than the disk can take");
                }
            }
            Audit::Direct(path) => {
                let mut file = AuditFile::new(path.clone(), false);
                // It never fails: the file counts and logs what it loses.
                let _ = file.write_all(&line);
            }
        }
    }

    /// Waits until every line so far is in the file.
    pub fn flush(&self) {
        if let Audit::Background(writer) = self {
            writer.flush(FLUSH);
        }
    }
}

/// RFC 3339, in UTC, with its offset.
pub fn timestamp(now: SystemTime) -> String {
    let mut text = Vec::with_capacity(32);
    timestamp_with_offset(&mut text, now, b"+00:00");
    String::from_utf8(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn timestamp_has_microseconds_and_an_offset() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000+00:00"),
            (1_763_258_400_000_042, "2025-11-16T02:00:00.000042+00:00"),
            (1_763_258_400_999_999, "2025-11-16T02:00:00.999999+00:00"),
            (1_763_258_401_100_000, "2025-11-16T02:00:01.100000+00:00"),
        ] {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_micros(micros)), text);
        }
    }
}
