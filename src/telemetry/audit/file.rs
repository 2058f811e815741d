use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::super::Throttle;
use super::METRICS;
use super::chain::{self, End, FileEnd, Link};
use crate::files;

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
    /// Lines are chained, also where no process has begun a chain yet.
    begins_chain: bool,
    /// The end of the chain, as this process left it.
    left: Option<Left>,
}

/// Which file a process wrote to last, how long that was, and the end of the chain in it. As long
/// as it is so, no other process has written.
#[derive(Clone, Copy)]
struct Left {
    place: Place,
    end: End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    device: u64,
    inode: u64,
    length: u64,
}

impl Place {
    fn of(file: &File) -> io::Result<Self> {
        let file = file.metadata()?;
        if !file.is_file() {
            return Err(io::Error::other(
                "it is no regular file, as a chain of lines needs",
            ));
        }
        Ok(Place {
            device: file.dev(),
            inode: file.ino(),
            length: file.len(),
        })
    }
}

impl AuditFile {
    /// `begins_chain`: lines are chained. Otherwise they are where a chain was begun before.
    pub fn new(path: PathBuf, begins_chain: bool) -> Self {
        AuditFile {
            path,
            file: None,
            checked: None,
            torn: false,
            begins_chain,
            left: None,
        }
    }

    pub fn open(&mut self) {
        let opened = self.current().map(drop);
        let opened = match self.begins_chain {
            // Commands that run before the first line have to know of the chain.
            true => opened.and_then(|()| files::lock(&chain::end_file(&self.path)).map(drop)),
            false => opened,
        };
        if let Err(e) = opened {
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
        let end_file = chain::end_file(&self.path);
        if self.begins_chain || end_file.exists() {
            // Held until the lines are written: each line names the one before it.
            let mut end_file = files::lock(&end_file)?;
            return self.append_chained(lines, &mut end_file);
        }
        self.append_plain(lines)
    }

    fn append_chained(&mut self, lines: &[u8], end_file: &mut File) -> io::Result<()> {
        // A process that found the file moved away may already write to the next one.
        self.checked = None;
        let place = Place::of(self.current()?)?;
        let left = self.left.take().filter(|left| left.place == place);
        let (mut end, is_torn) = match left {
            Some(left) => (left.end, false),
            None => self.find_end(end_file)?,
        };
        let begins_file = place.length == 0;
        if begins_file {
            end.file_begins_at = end.link.seq.saturating_add(1);
        }
        let count = lines.iter().filter(|byte| **byte == b'\n').count();
        let mut text = Vec::with_capacity(lines.len() + count * 180);
        if is_torn {
            text.push(b'\n');
        }
        for line in lines.split(|byte| *byte == b'\n') {
            if !line.is_empty() {
                end.link = end.link.seal(line, &mut text);
            }
        }
        self.torn = false;
        self.append_plain(&text)?;
        // The other way round, a process that is killed in between would leave a chain that looks
        // as if its end had been cut off.
        end.write(end_file)?;
        let length = place.length + text.len() as u64;
        let place = Place { length, ..place };
        self.left = Some(Left { place, end });
        Ok(())
    }

    /// Where the chain goes on, and whether the file ends in the middle of a line. The later of the
    /// two ends counts: a process may have been killed before it wrote the one, and the end of the
    /// other may have been cut off, which has to show.
    fn find_end(&self, end_file: &mut File) -> io::Result<(End, bool)> {
        let kept = End::read(end_file)?.unwrap_or(End {
            link: Link::START,
            file_begins_at: 1,
        });
        let last = FileEnd::read(&mut File::open(&self.path)?)?;
        let link = last.link.filter(|link| link.seq > kept.link.seq);
        let end = End {
            link: link.unwrap_or(kept.link),
            ..kept
        };
        Ok((end, last.is_torn))
    }

    fn append_plain(&mut self, lines: &[u8]) -> io::Result<()> {
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
    use super::super::verify::{Verified, verify};
    use super::*;
    use std::path::Path;

    fn plain(path: &Path) -> AuditFile {
        AuditFile::new(path.to_path_buf(), false)
    }

    #[test]
    fn file_moved_away_is_created_again() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("audit.jsonl"), dir.path().join("old"));
        let mut file = plain(&path);
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
        let mut file = plain(&path);
        file.write_all(b"one\n").unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(b"two\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two\n");
    }

    #[test]
    fn write_after_a_torn_line_starts_on_a_new_line() {
        let mut file = plain(Path::new("/dev/full"));
        file.write_all(b"one\n").unwrap();
        let dir = tempfile::tempdir().unwrap();
        file.path = dir.path().join("audit.jsonl");
        file.torn = true;
        file.write_all(b"two\n").unwrap();
        assert_eq!(std::fs::read(&file.path).unwrap(), b"\ntwo\n");
    }

    fn intact(files: &[&Path]) -> Verified {
        let files: Vec<PathBuf> = files.iter().map(|path| path.to_path_buf()).collect();
        let end = files.last().map(|path| chain::end_file(path));
        verify(&files, end.as_deref(), None).unwrap().unwrap()
    }

    #[test]
    fn chain_goes_on_in_the_next_file_whichever_process_writes_first() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("audit.jsonl"), dir.path().join("old"));
        let mut server = AuditFile::new(path.clone(), true);
        server.write_all(b"{\"n\":1}\n{\"n\":2}\n").unwrap();
        // A command, which knows nothing of the conf file.
        plain(&path).write_all(b"{\"n\":3}\n").unwrap();
        server.write_all(b"{\"n\":4}\n").unwrap();
        assert_eq!(intact(&[&path]).lines, 4);
        std::fs::rename(&path, &old).unwrap();
        plain(&path).write_all(b"{\"n\":5}\n").unwrap();
        server.write_all(b"{\"n\":6}\n").unwrap();
        let alone = intact(&[&path]);
        assert_eq!((alone.lines, alone.begins_at), (2, 5));
        assert_eq!(intact(&[&old, &path]).lines, 6);
        // A process that is started anew.
        AuditFile::new(path.clone(), true)
            .write_all(b"{\"n\":7}\n")
            .unwrap();
        server.write_all(b"{\"n\":8}\n").unwrap();
        assert_eq!(intact(&[&old, &path]).lines, 8);
    }

    #[test]
    fn chain_of_many_processes_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut file = AuditFile::new(path.clone(), true);
                    for _ in 0..50 {
                        file.write_all(b"{\"a\":1}\n{\"b\":2}\n").unwrap();
                    }
                });
            }
        });
        assert_eq!(intact(&[&path]).lines, 800);
    }

    #[test]
    fn chain_goes_on_behind_a_torn_line_and_an_end_that_was_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let mut file = AuditFile::new(path.clone(), true);
        file.write_all(b"{\"n\":1}\n").unwrap();
        let kept = std::fs::read(chain::end_file(&path)).unwrap();
        file.write_all(b"{\"n\":2}\n").unwrap();
        std::fs::write(chain::end_file(&path), kept).unwrap();
        let mut half = std::fs::read(&path).unwrap();
        half.extend_from_slice(b"{\"n\":3,\"ha");
        std::fs::write(&path, half).unwrap();
        file.write_all(b"{\"n\":4}\n").unwrap();
        let found = intact(&[&path]);
        assert_eq!((found.lines, found.torn), (3, 1));
    }

    #[test]
    fn chain_of_a_file_that_is_no_regular_one_is_refused() {
        let mut file = AuditFile::new(PathBuf::from("/dev/null"), true);
        let dir = tempfile::tempdir().unwrap();
        let mut end_file = files::lock(&dir.path().join("end")).unwrap();
        let refused = file.append_chained(b"{}\n", &mut end_file).unwrap_err();
        assert!(refused.to_string().contains("no regular file"), "{refused}");
    }
}
