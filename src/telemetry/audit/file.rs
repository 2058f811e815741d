use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::METRICS;

/// How often a disk that refuses is complained about.
const QUIET: Duration = Duration::from_secs(10);

/// The file behind the audit. Nobody who calls a tool waits for it or fails with it: what can't be written is counted, and said.
pub struct AuditFile {
    path: PathBuf,
    file: Option<File>,
    /// The last write ended in the middle of a line.
    torn: bool,
}

impl AuditFile {
    pub fn new(path: PathBuf) -> Self {
        AuditFile {
            path,
            file: None,
            torn: false,
        }
    }

    pub fn open(&mut self) {
        if let Err(e) = self.current() {
            complain(&format!("{}: {e}", self.path.display()));
        }
    }

    /// The file of that name, whoever moved the old one away.
    fn current(&mut self) -> io::Result<&mut File> {
        let here = std::fs::metadata(&self.path).ok();
        let same = self.file.as_ref().and_then(|file| {
            let (ours, here) = (file.metadata().ok()?, here.as_ref()?);
            (ours.ino() == here.ino() && ours.dev() == here.dev()).then_some(())
        });
        if same.is_none() {
            self.file = None;
        }
        match &mut self.file {
            Some(file) => Ok(file),
            none => Ok(none.insert(
                OpenOptions::new()
                    .append(true)
                    .create(true)
                    .mode(0o600)
                    .open(&self.path)?,
            )),
        }
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let torn = self.torn;
        let file = self.current()?;
        if torn {
            file.write_all(b"\n")?;
            self.torn = false;
        }
        let mut rest = lines;
        let file = self.current()?;
        while !rest.is_empty() {
            match file.write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    let done = lines.len() - rest.len();
                    self.torn = done > 0 && lines[done - 1] != b'\n';
                    return Err(e);
                }
            }
        }
        Ok(())
    }
}

impl Write for AuditFile {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        if let Err(e) = self.append(lines) {
            let lost = lines.iter().filter(|byte| **byte == b'\n').count();
            METRICS.audit_lost(lost as u64);
            complain(&format!("{}: {e}", self.path.display()));
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Loud, but not with every line.
pub fn complain(why: &str) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let Ok(mut last) = LAST.lock() else {
        return;
    };
    if last.is_none_or(|at| at.elapsed() > QUIET) {
        *last = Some(Instant::now());
        drop(last);
        tracing::error!("audit lines are being lost: {why}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_moved_away_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("audit.jsonl"), dir.path().join("old"));
        let mut file = AuditFile::new(path.clone());
        file.write_all(b"one\n").unwrap();
        std::fs::rename(&path, &old).unwrap();
        file.write_all(b"two\n").unwrap();
        assert_eq!(std::fs::read(&old).unwrap(), b"one\n");
        assert_eq!(std::fs::read(&path).unwrap(), b"two\n");
    }

    #[test]
    fn a_full_disk_fails_nobody_and_what_follows_stands_on_its_own_line() {
        let mut file = AuditFile::new(PathBuf::from("/dev/full"));
        file.write_all(b"one\n").unwrap();
        let dir = tempfile::tempdir().unwrap();
        file.path = dir.path().join("audit.jsonl");
        file.torn = true;
        file.write_all(b"two\n").unwrap();
        assert_eq!(std::fs::read(&file.path).unwrap(), b"\ntwo\n");
    }
}
