use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use serde_json::Value;

const BLOCK: u64 = 64 << 10;

/// Which entries to find.
#[derive(Debug, Default, Clone)]
pub struct Filter {
    /// The whole name, or its beginning with a `*` at the end.
    pub tool: Option<String>,
    /// The same, of a route.
    pub route: Option<String>,
    pub sub: Option<String>,
    pub job: Option<String>,
    pub request_id: Option<String>,
    pub status: Option<StatusFilter>,
    /// Not before this time, RFC 3339 in UTC.
    pub since: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusFilter {
    Ok,
    Error,
    /// What the caller got, from one status to another.
    Http(u16, u16),
}

impl StatusFilter {
    /// `ok`, `error`, a status such as `429`, or a class of them such as `4xx`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "ok" => return Some(StatusFilter::Ok),
            "error" => return Some(StatusFilter::Error),
            _ => {}
        }
        let class = text.strip_suffix("xx").or_else(|| text.strip_suffix("XX"));
        let (first, last) = match class {
            Some(class) => {
                let class: u16 = class.parse().ok()?;
                (class.checked_mul(100)?, class.checked_mul(100)? + 99)
            }
            None => (text.parse().ok()?, text.parse().ok()?),
        };
        (100..600)
            .contains(&first)
            .then_some(StatusFilter::Http(first, last))
    }
}

impl Filter {
    pub fn matches(&self, entry: &Value) -> bool {
        // A line without the key is about something else.
        let is_named = |key: &str, pattern: Option<&str>| match (pattern, entry[key].as_str()) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(pattern), Some(name)) => match pattern.strip_suffix('*') {
                Some(prefix) => name.starts_with(prefix),
                None => name == pattern,
            },
        };
        let is = |key: &str, wanted: Option<&str>| {
            wanted.is_none_or(|wanted| entry[key].as_str() == Some(wanted))
        };
        // Timestamps are all in UTC and of one form, so that their texts sort as the times do.
        let recent = self
            .since
            .as_deref()
            .is_none_or(|since| entry["ts"].as_str().is_some_and(|ts| ts >= since));
        let status = match self.status {
            None => true,
            Some(StatusFilter::Ok) => entry["status"] == "ok",
            Some(StatusFilter::Error) => entry["status"] == "error",
            Some(StatusFilter::Http(first, last)) => entry["http_status"]
                .as_u64()
                .is_some_and(|status| (first.into()..=last.into()).contains(&status)),
        };
        recent
            && status
            && is_named("tool", self.tool.as_deref())
            && is_named("route", self.route.as_deref())
            && is("agent_sub", self.sub.as_deref())
            && is("job_id", self.job.as_deref())
            && is("request_id", self.request_id.as_deref())
    }
}

/// The last entries that match, oldest first. Reads the file from its end, and no more of it than
/// needed.
pub fn tail(path: &Path, count: usize, filter: &Filter) -> io::Result<Vec<Value>> {
    match open(path)? {
        None => Ok(Vec::new()),
        Some(mut file) => {
            let end = file.seek(SeekFrom::End(0))?;
            tail_before(&mut file, end, count, filter)
        }
    }
}

/// The same of the first `end` bytes of a file.
pub(super) fn tail_before(
    file: &mut File,
    end: u64,
    count: usize,
    filter: &Filter,
) -> io::Result<Vec<Value>> {
    let mut start = end;
    let mut text: Vec<u8> = Vec::new();
    let mut found: Vec<Value> = Vec::new();
    while found.len() < count && start > 0 {
        let length = BLOCK.min(start);
        start -= length;
        let mut block = vec![0; length as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut block)?;
        block.append(&mut text);
        // The bytes before the first newline may continue a line of the block before.
        let whole = match block.iter().position(|byte| *byte == b'\n') {
            Some(end) if start > 0 => end + 1,
            None if start > 0 => block.len(),
            _ => 0,
        };
        let lines = block.split_off(whole);
        text = block;
        let lines = lines.split(|byte| *byte == b'\n').rev();
        found.extend(
            lines
                .filter_map(parse)
                .filter(|entry| filter.matches(entry)),
        );
    }
    found.truncate(count);
    found.reverse();
    Ok(found)
}

/// Every entry that matches, oldest first.
pub fn search(path: &Path, filter: &Filter) -> io::Result<Vec<Value>> {
    let Some(file) = open(path)? else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for line in BufReader::new(file).split(b'\n') {
        if let Some(entry) = parse(&line?).filter(|entry| filter.matches(entry)) {
            found.push(entry);
        }
    }
    Ok(found)
}

pub(super) fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// None for a line that isn't an entry: a killed process may have left half of one.
pub(super) fn parse(line: impl AsRef<[u8]>) -> Option<Value> {
    serde_json::from_slice(line.as_ref())
        .ok()
        .filter(Value::is_object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn tail_skips_broken_lines_and_reads_across_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let all = Filter::default();
        assert!(tail(&path, 5, &all).unwrap().is_empty());
        let mut file = File::create(&path).unwrap();
        for n in 0..5_000 {
            let ts = format!("2026-01-01T00:00:{:02}.000000+00:00", n / 100);
            writeln!(
                file,
                r#"{{"tool":"t:{n}","ts":"{ts}","filler":"{}"}}"#,
                "x".repeat(n % 300)
            )
            .unwrap();
            if n % 7 == 0 {
                writeln!(file, r#"{{"tool":"broken"#).unwrap();
            }
        }
        write!(file, r#"{{"tool":"last","half"#).unwrap();
        let names = |entries: Vec<Value>| -> Vec<String> {
            entries
                .iter()
                .map(|e| e["tool"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(
            names(tail(&path, 3, &all).unwrap()),
            ["t:4997", "t:4998", "t:4999"]
        );
        let names_of_all = names(tail(&path, 1_000_000, &all).unwrap());
        assert_eq!(names_of_all.len(), 5_000);
        assert_eq!(names_of_all[0], "t:0");
        let filter = Filter {
            tool: Some("t:1*".into()),
            ..Filter::default()
        };
        assert_eq!(
            names(tail(&path, 2, &filter).unwrap()),
            ["t:1998", "t:1999"]
        );
        let filter = Filter {
            tool: Some("t:499*".into()),
            since: Some("2026-01-01T00:00:49".into()),
            ..Filter::default()
        };
        assert_eq!(names(search(&path, &filter).unwrap()).len(), 10);
    }

    #[test]
    fn filter_tells_tools_routes_and_callers_apart() {
        let call = serde_json::json!(
            {"tool": "a:b", "job_id": "1", "agent_sub": "x", "status": "ok", "request_id": "r1"}
        );
        let request = serde_json::json!(
            {"route": "a", "job_id": "2", "agent_sub": "y", "status": "error", "http_status": 429}
        );
        for (name, value, found) in [
            ("tool", "*", (true, false)),
            ("tool", "a:b", (true, false)),
            ("route", "a*", (false, true)),
            ("route", "b", (false, false)),
            ("job", "2", (false, true)),
            ("sub", "x", (true, false)),
            ("request_id", "r1", (true, false)),
            ("status", "ok", (true, false)),
            ("status", "error", (false, true)),
            ("status", "429", (false, true)),
            ("status", "4xx", (false, true)),
            ("status", "5xx", (false, false)),
            ("none", "", (true, true)),
        ] {
            let of = |key: &str| (name == key).then(|| value.to_owned());
            let filter = Filter {
                tool: of("tool"),
                route: of("route"),
                sub: of("sub"),
                job: of("job"),
                request_id: of("request_id"),
                status: of("status").map(|text| StatusFilter::parse(&text).unwrap()),
                since: None,
            };
            let matches = (filter.matches(&call), filter.matches(&request));
            assert_eq!(matches, found, "{name} {value}");
        }
        for bad in ["", "good", "99", "600", "xx", "0xx", "-1", "4x", "99999xx"] {
            assert_eq!(StatusFilter::parse(bad), None, "{bad}");
        }
    }
}
