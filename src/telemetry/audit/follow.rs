use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde_json::Value;

use super::Filter;
use super::read::{open, parse, tail_before};

/// Bytes that are read at once.
const BLOCK: usize = 64 << 10;
/// A line that is longer is no entry.
const LONGEST_LINE: usize = 1 << 20;

/// Reads an audit file as it grows, and the next one after it was rotated.
pub struct Follower {
    path: PathBuf,
    filter: Filter,
    file: Option<File>,
    read: u64,
    /// The beginning of a line whose end isn't there yet.
    begun: Vec<u8>,
}

impl Follower {
    /// The last `count` entries that match, and what will follow them. The file may not be there
    /// yet.
    pub fn start(
        path: PathBuf,
        filter: Filter,
        count: usize,
    ) -> io::Result<(Vec<Value>, Follower)> {
        let mut follower = Follower {
            file: open(&path)?,
            path,
            filter,
            read: 0,
            begun: Vec::new(),
        };
        let Some(file) = &mut follower.file else {
            return Ok((Vec::new(), follower));
        };
        let end = file.seek(SeekFrom::End(0))?;
        // A line without its end is read when it has one.
        let back = end.saturating_sub(LONGEST_LINE as u64);
        file.seek(SeekFrom::Start(back))?;
        let mut text = Vec::new();
        (&*file).take(end - back).read_to_end(&mut text)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n');
        follower.read = back + whole.map_or(0, |at| at as u64 + 1);
        let found = tail_before(file, follower.read, count, &follower.filter)?;
        Ok((found, follower))
    }

    /// The entries that have been added.
    pub fn more(&mut self) -> io::Result<Vec<Value>> {
        let mut found = Vec::new();
        self.read_on(&mut found)?;
        if self.was_rotated()? {
            // What was still written to the old file.
            self.read_on(&mut found)?;
            self.file = None;
        }
        if self.file.is_none() {
            self.file = open(&self.path)?;
            self.read = 0;
            self.begun.clear();
            self.read_on(&mut found)?;
        }
        Ok(found)
    }

    /// Another file has the name, or none.
    fn was_rotated(&self) -> io::Result<bool> {
        let Some(file) = &self.file else {
            return Ok(false);
        };
        let open = file.metadata()?;
        match std::fs::metadata(&self.path) {
            Ok(named) => Ok((named.dev(), named.ino()) != (open.dev(), open.ino())),
            // Until there is a next file, lines may still come to this one.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn read_on(&mut self, found: &mut Vec<Value>) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        if file.metadata()?.len() < self.read {
            // It was emptied and begun anew.
            self.read = 0;
            self.begun.clear();
        }
        file.seek(SeekFrom::Start(self.read))?;
        let mut block = vec![0; BLOCK];
        loop {
            let length = file.read(&mut block)?;
            if length == 0 {
                return Ok(());
            }
            self.read += length as u64;
            let mut rest = &block[..length];
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                self.begun.extend_from_slice(&rest[..end]);
                let entry = parse(&self.begun);
                found.extend(entry.filter(|entry| self.filter.matches(entry)));
                self.begun.clear();
                rest = &rest[end + 1..];
            }
            if self.begun.len() < LONGEST_LINE {
                self.begun.extend_from_slice(rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::io::Write;

    fn numbers(found: &[Value]) -> Vec<i64> {
        found
            .iter()
            .map(|entry| entry["n"].as_i64().unwrap())
            .collect()
    }

    #[test]
    fn follower_reads_what_comes_across_a_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let append = |path: &PathBuf, text: &str| {
            let mut options = OpenOptions::new();
            let file = options.create(true).append(true).open(path);
            file.unwrap().write_all(text.as_bytes()).unwrap();
        };
        let start = |count| Follower::start(path.clone(), Filter::default(), count).unwrap();
        let (none, mut early) = start(5);
        assert!(none.is_empty() && early.more().unwrap().is_empty());
        append(&path, "{\"n\":1}\n{\"n\":2}\nbroken\n{\"n\":3}\n{\"n\":");
        let (last, mut late) = start(2);
        assert_eq!(numbers(&last), [2, 3]);
        assert_eq!(numbers(&early.more().unwrap()), [1, 2, 3]);
        append(&path, "4}\n");
        for follower in [&mut early, &mut late] {
            assert_eq!(numbers(&follower.more().unwrap()), [4]);
            assert!(follower.more().unwrap().is_empty());
        }
        let old = dir.path().join("old");
        std::fs::rename(&path, &old).unwrap();
        append(&old, "{\"n\":5}\n");
        assert_eq!(numbers(&early.more().unwrap()), [5]);
        append(&old, "{\"n\":6}\n");
        append(&path, "{\"n\":7}\n");
        assert_eq!(numbers(&early.more().unwrap()), [6, 7]);
        assert_eq!(numbers(&late.more().unwrap()), [5, 6, 7]);
        // As `copytruncate` does it.
        std::fs::write(&path, "").unwrap();
        assert!(late.more().unwrap().is_empty());
        append(&path, "{\"n\":8}\n");
        assert_eq!(numbers(&late.more().unwrap()), [8]);
    }
}
