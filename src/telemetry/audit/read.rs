use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use serde_json::Value;

const BLOCK: u64 = 64 << 10;

/// Which entries to find.
#[derive(Debug, Default)]
pub struct Filter<'a> {
    /// The whole name, or its beginning with a `*` at the end.
    pub tool: Option<&'a str>,
    /// The same, of a route.
    pub route: Option<&'a str>,
    pub job: Option<&'a str>,
    /// Not before this time, RFC 3339 in UTC.
    pub since: Option<String>,
}

impl Filter<'_> {
    fn matches(&self, entry: &Value) -> bool {
        // A line without the key is about something else.
        let is_named = |key: &str, pattern: Option<&str>| match (pattern, entry[key].as_str()) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(pattern), Some(name)) => match pattern.strip_suffix('*') {
                Some(prefix) => name.starts_with(prefix),
                None => name == pattern,
            },
        };
        let named = is_named("tool", self.tool) && is_named("route", self.route);
        let of_job = self
            .job
            .is_none_or(|job| entry["job_id"].as_str() == Some(job));
        // Timestamps are all in UTC and of one form, so that their texts sort as the times do.
        let recent = self
            .since
            .as_deref()
            .is_none_or(|since| entry["ts"].as_str().is_some_and(|ts| ts >= since));
        named && of_job && recent
    }
}

/// The last entries, oldest first. Reads the file from its end, and no more of it than needed.
pub fn tail(path: &Path, count: usize) -> io::Result<Vec<Value>> {
    let Some(mut file) = open(path)? else {
        return Ok(Vec::new());
    };
    let mut start = file.seek(SeekFrom::End(0))?;
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
        let entries = lines.split(|byte| *byte == b'\n').rev().filter_map(parse);
        found.extend(entries);
    }
    found.truncate(count);
    found.reverse();
    Ok(found)
}

/// Every entry that matches, oldest first.
pub fn search(path: &Path, filter: &Filter<'_>) -> io::Result<Vec<Value>> {
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

fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// None for a line that isn't an entry: a killed process may have left half of one.
fn parse(line: impl AsRef<[u8]>) -> Option<Value> {
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
        assert!(tail(&path, 5).unwrap().is_empty());
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
            names(tail(&path, 3).unwrap()),
            ["t:4997", "t:4998", "t:4999"]
        );
        let all = names(tail(&path, 1_000_000).unwrap());
        assert_eq!(all.len(), 5_000);
        assert_eq!(all[0], "t:0");
        let filter = Filter {
            tool: Some("t:499*"),
            since: Some("2026-01-01T00:00:49".into()),
            ..Filter::default()
        };
        assert_eq!(names(search(&path, &filter).unwrap()).len(), 10);
    }

    #[test]
    fn filter_tells_tools_routes_and_jobs_apart() {
        let call = serde_json::json!({"tool": "a:b", "job_id": "1"});
        let request = serde_json::json!({"route": "a", "job_id": "2"});
        let found = |tool, route, job| {
            let filter = Filter {
                tool,
                route,
                job,
                since: None,
            };
            (filter.matches(&call), filter.matches(&request))
        };
        assert_eq!(found(None, None, None), (true, true));
        assert_eq!(found(Some("*"), None, None), (true, false));
        assert_eq!(found(None, Some("a*"), None), (false, true));
        assert_eq!(found(None, Some("b"), None), (false, false));
        assert_eq!(found(None, None, Some("2")), (false, true));
        assert_eq!(found(Some("a:b"), None, Some("2")), (false, false));
    }
}
