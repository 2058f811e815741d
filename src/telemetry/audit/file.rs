use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::super::Throttle;
use super::METRICS;

const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The audit file. A tool call neither waits for it nor fails with it: lines that can't be written
/// are counted and logged.
pub struct AuditFile {
    path: PathBuf,
    file: Option<File>,
    /// When its name was last seen to lead to it.
    checked: Option<Instant>,
    /// The last write ended in the middle of a line.
    torn: bool,
}

impl AuditFile {
    pub fn new(path: PathBuf) -> Self {
        AuditFile {
            path,
            file: None,
            checked: None,
            torn: false,
        }
    }

    pub fn open(&mut self) {
        if let Err(e) = self.current() {
            report_loss(&format!("{}: {e}", self.path.display()));
        }
    }

    /// The file with that name: after log rotation it is another one than before. The name is
    /// looked up once a second. Until then lines go to the file that was moved away, and none is
    /// lost; a file that was deleted is noticed at once.
    fn current(&mut self) -> io::Result<&mut File> {
        let was_checked = self.checked.is_some_and(|at| at.elapsed() < CHECK_EVERY);
        let is_linked = |file: &File| file.metadata().is_ok_and(|file| file.nlink() > 0);
        if was_checked && self.file.as_ref().is_some_and(is_linked) {
            return self.file.as_mut().ok_or(io::ErrorKind::NotFound.into());
        }
        self.checked = Some(Instant::now());
        let named = std::fs::metadata(&self.path).ok();
        let same = self.file.as_ref().and_then(|file| {
            let (open, named) = (file.metadata().ok()?, named.as_ref()?);
            (open.ino() == named.ino() && open.dev() == named.dev()).then_some(())
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
        }
        let mut rest = lines;
        while !rest.is_empty() {
            match file.write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    let done = lines.len() - rest.len();
                    self.torn = done > 0 && lines[done - 1] != b'\n';
                    self.checked = None;
                    return Err(e);
                }
            }
        }
        self.torn = false;
        Ok(())
    }
}

impl Write for AuditFile {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        if let Err(e) = self.append(lines) {
            let lost = lines.iter().filter(|byte| **byte == b'\n').count();
            METRICS.audit_lost(lost as u64);
            report_loss(&format!("{}: {e}", self.path.display()));
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Logs that lines are lost, but not each of them.
pub fn report_loss(error: &str) {
    static THROTTLE: Throttle = Throttle::new();
    if THROTTLE.is_due() {
        tracing::error!(error, "audit lines are being lost");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_moved_away_is_created_again() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("audit.jsonl"), dir.path().join("old"));
        let mut file = AuditFile::new(path.clone());
        file.write_all(b"one\n").unwrap();
        std::fs::rename(&path, &old).unwrap();
        // As if a second had passed.
        file.checked = None;
        file.write_all(b"two\n").unwrap();
        assert_eq!(std::fs::read(&old).unwrap(), b"one\n");
        assert_eq!(std::fs::read(&path).unwrap(), b"two\n");
    }

    #[test]
    fn file_deleted_is_created_again_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let mut file = AuditFile::new(path.clone());
        file.write_all(b"one\n").unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(b"two\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two\n");
    }

    #[test]
    fn write_after_a_torn_line_starts_on_a_new_line() {
        let mut file = AuditFile::new(PathBuf::from("/dev/full"));
        file.write_all(b"one\n").unwrap();
        let dir = tempfile::tempdir().unwrap();
        file.path = dir.path().join("audit.jsonl");
        file.torn = true;
        file.write_all(b"two\n").unwrap();
        assert_eq!(std::fs::read(&file.path).unwrap(), b"\ntwo\n");
    }
}
