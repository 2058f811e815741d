//! Whether the lines of audit files are the chain that they say they are.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::chain::{self, Chained, End, Hash, Link};

/// A chain without a misfit.
#[derive(Debug, PartialEq, Eq)]
pub struct Verified {
    /// Lines of the chain.
    pub lines: u64,
    /// The number of the first of them: more than 1 where earlier files were not given.
    pub begins_at: u64,
    pub last: Link,
    /// Lines before the chain began: nothing is known about them.
    pub before: u64,
    /// Lines that are half there, because a process was killed while it wrote.
    pub torn: u64,
}

/// The first line that doesn't fit.
#[derive(Debug, PartialEq, Eq)]
pub struct Misfit {
    pub file: PathBuf,
    /// Counted from 1, in its file. One more than the file has where its end is missing.
    pub line: u64,
    pub why: String,
}

/// Reads the files, oldest first, as one chain. `end_file` has the end of the chain of the last of
/// them. `contains` is a hash that a line must have.
pub fn verify(
    files: &[PathBuf],
    end_file: Option<&Path>,
    contains: Option<Hash>,
) -> io::Result<Result<Verified, Misfit>> {
    // Under the lock, and before the files: no process is in the middle of a write, and lines that
    // come later only follow this end.
    let end = match end_file.filter(|path| path.exists()) {
        Some(path) => End::read(&mut locked(path)?)?,
        None => None,
    };
    let mut walk = Walk {
        end,
        contains,
        is_last_file: false,
        ..Walk::default()
    };
    for (index, path) in files.iter().enumerate() {
        walk.is_last_file = index + 1 == files.len();
        let file = match File::open(path) {
            Ok(file) => file,
            // The file may have been moved away, or deleted: what is missing tells.
            Err(e) if e.kind() == io::ErrorKind::NotFound && walk.is_last_file && end.is_some() => {
                continue;
            }
            Err(e) => return Err(io::Error::new(e.kind(), format!("{}: {e}", path.display()))),
        };
        if let Err(misfit) = walk.file(path, file)? {
            return Ok(Err(misfit));
        }
    }
    let last = files.last().cloned().unwrap_or_default();
    Ok(walk.finish(last))
}

/// Who checks the audit may not be allowed to write to it.
fn locked(path: &Path) -> io::Result<File> {
    let denied = [
        io::ErrorKind::PermissionDenied,
        io::ErrorKind::ReadOnlyFilesystem,
    ];
    match crate::files::lock(path) {
        Err(e) if denied.contains(&e.kind()) => {
            let file = File::open(path)?;
            file.lock_shared()?;
            Ok(file)
        }
        locked => locked,
    }
}

#[derive(Default)]
struct Walk {
    end: Option<End>,
    contains: Option<Hash>,
    is_last_file: bool,
    /// The last line of the chain so far.
    last: Option<Link>,
    begins_at: u64,
    lines: u64,
    before: u64,
    torn: u64,
    /// Torn lines since the last line of the chain. They are the misfits, if the next one doesn't
    /// follow.
    torn_since: Option<u64>,
    /// In this file.
    line: u64,
}

impl Walk {
    fn file(&mut self, path: &Path, file: File) -> io::Result<Result<(), Misfit>> {
        self.line = 0;
        let mut is_first = true;
        for line in BufReader::new(file).split(b'\n') {
            let line = line?;
            self.line += 1;
            if line.is_empty() {
                continue;
            }
            let fits = match chain::read(&line) {
                Some(chained) => {
                    let fits = self.chained(&chained, std::mem::take(&mut is_first));
                    self.torn_since = None;
                    fits
                }
                None => self.unchained(&line),
            };
            if let Err((line, why)) = fits {
                let file = path.to_path_buf();
                return Ok(Err(Misfit { file, line, why }));
            }
        }
        Ok(Ok(()))
    }

    fn unchained(&mut self, line: &[u8]) -> Result<(), (u64, String)> {
        let is_entry = serde_json::from_slice::<serde_json::Value>(line).is_ok();
        match (is_entry, self.last) {
            (false, _) => {
                self.torn += 1;
                self.torn_since.get_or_insert(self.line);
                Ok(())
            }
            (true, None) => {
                self.before += 1;
                Ok(())
            }
            (true, Some(_)) => Err((self.line, "it has no hash".to_owned())),
        }
    }

    fn chained(&mut self, found: &Chained, first_of_file: bool) -> Result<(), (u64, String)> {
        let here = self.line;
        let link = found.link;
        if !found.is_intact {
            return Err((
                here,
                "it was changed: its hash isn't that of its text".to_owned(),
            ));
        }
        let follows = |last: Link| found.prev == last.hash && link.seq == last.seq + 1;
        match self.last {
            Some(last) if follows(last) => {}
            Some(last) => {
                if let Some(torn) = self.torn_since {
                    return Err((
                        torn,
                        "it isn't whole, and the next line isn't the one that \
                         should follow it"
                            .to_owned(),
                    ));
                }
                return Err((here, gap(last, link)));
            }
            None => self.begin(found)?,
        }
        if let Some(end) = self.end {
            let begins_at = end.file_begins_at;
            if first_of_file && self.is_last_file && self.before == 0 && link.seq > begins_at {
                return Err((here, missing(begins_at, link.seq - 1)));
            }
            if end.link.seq == link.seq && end.link.hash != link.hash {
                return Err((here, "it isn't the line that ati wrote last".to_owned()));
            }
        }
        if self.contains == Some(link.hash) {
            self.contains = None;
        }
        self.last = Some(link);
        self.lines += 1;
        Ok(())
    }

    /// The first line of the chain that there is.
    fn begin(&mut self, found: &Chained) -> Result<(), (u64, String)> {
        let seq = found.link.seq;
        if seq <= 1 && found.prev != Link::START.hash {
            return Err((self.line, "it is no beginning of a chain".to_owned()));
        }
        if seq > 1 && self.before > 0 {
            let why = "the lines before it have no hash, though the chain had begun before them";
            return Err((self.line, why.to_owned()));
        }
        self.begins_at = seq;
        Ok(())
    }

    fn finish(self, file: PathBuf) -> Result<Verified, Misfit> {
        let line = self.line + 1;
        let misfit = |why: String| Misfit {
            file: file.clone(),
            line,
            why,
        };
        let last = self.last.unwrap_or(Link::START);
        if let Some(end) = self.end
            && end.link.seq > last.seq
        {
            let first = match self.last {
                Some(last) => last.seq + 1,
                None => end.file_begins_at,
            };
            return Err(misfit(match self.lines {
                0 => format!(
                    "the file has no line of the chain, whose last line is {}: if it was moved \
                     away, name the file it was moved to before it",
                    end.link.seq
                ),
                _ => format!("the end is missing: {}", missing(first, end.link.seq)),
            }));
        }
        if let Some(hash) = self.contains {
            return Err(misfit(format!("no line has the hash {}", hash.as_str())));
        }
        Ok(Verified {
            lines: self.lines,
            begins_at: self.begins_at,
            last,
            before: self.before,
            torn: self.torn,
        })
    }
}

fn gap(last: Link, found: Link) -> String {
    match found.seq.checked_sub(last.seq) {
        None | Some(0) => format!(
            "it is line {} of the chain, and comes behind line {}",
            found.seq, last.seq
        ),
        Some(1) => "the line before it isn't the one that it was written behind".to_owned(),
        Some(_) => missing(last.seq + 1, found.seq - 1),
    }
}

fn missing(first: u64, last: u64) -> String {
    match last.saturating_sub(first) {
        0 => format!("line {first} of the chain is missing before it"),
        more => format!(
            "lines {first} to {last} of the chain, {} of them, are missing before it",
            more + 1
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::AuditFile;
    use super::*;
    use std::io::Write;

    struct Log {
        _dir: tempfile::TempDir,
        path: PathBuf,
        lines: Vec<String>,
    }

    fn log(count: usize) -> Log {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let mut file = AuditFile::new(path.clone(), true);
        for n in 0..count {
            let line = format!("{{\"n\":{n}}}\n");
            file.write_all(line.as_bytes()).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        Log {
            _dir: dir,
            path,
            lines: text.lines().map(str::to_owned).collect(),
        }
    }

    impl Log {
        fn check(&self, lines: &[&str]) -> Result<Verified, Misfit> {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            self.check_text(&text)
        }

        fn check_text(&self, text: &str) -> Result<Verified, Misfit> {
            std::fs::write(&self.path, text).unwrap();
            let end = chain::end_file(&self.path);
            verify(std::slice::from_ref(&self.path), Some(&end), None).unwrap()
        }
    }

    #[test]
    fn misfit_is_the_first_line_that_does_not_fit() {
        let log = log(5);
        let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|n| log.lines[n].as_str());
        assert_eq!(log.check(&[a, b, c, d, e]).unwrap().lines, 5);
        let changed = c.replace("\"n\":2", "\"n\":9");
        let half = &c[..c.len() / 2];
        for (lines, line, why) in [
            (vec![a, b, &changed, d, e], 3, "changed"),
            (vec![a, b, d, e], 3, "line 3 of the chain is missing"),
            (vec![a, e], 2, "lines 2 to 4 of the chain, 3 of them"),
            (vec![b, c, d, e], 1, "line 1 of the chain is missing"),
            (vec![a, c, b, d, e], 2, "line 2 of the chain is missing"),
            (vec![a, b, b, c, d, e], 3, "comes behind"),
            (vec![a, b, r#"{"n":7}"#, c, d, e], 3, "no hash"),
            (vec![a, b, half, d, e], 3, "isn't whole"),
            (vec![a, b, c, d], 5, "the end is missing: line 5"),
            (vec![a, b, c], 4, "the end is missing: lines 4 to 5"),
            (vec![], 1, "no line of the chain"),
        ] {
            let misfit = log.check(&lines).unwrap_err();
            assert_eq!(misfit.line, line, "{misfit:?}");
            assert!(misfit.why.contains(why), "{misfit:?}");
        }
        let cut = format!("{a}\n{b}\n{c}\n{d}\n{}", &e[..30]);
        assert_eq!(log.check_text(&cut).unwrap_err().line, 6);
    }

    /// All hashes are made anew from the changed line on. Only the end tells.
    #[test]
    fn chain_that_was_made_anew_does_not_end_where_ati_ended_it() {
        let log = log(3);
        let mut text = format!("{}\n", log.lines[0]).into_bytes();
        let first = chain::read(log.lines[0].as_bytes()).unwrap().link;
        let second = first.seal(br#"{"n":9}"#, &mut text);
        second.seal(br#"{"n":2}"#, &mut text);
        let misfit = log.check_text(str::from_utf8(&text).unwrap()).unwrap_err();
        assert_eq!(misfit.line, 3);
        assert!(misfit.why.contains("ati wrote last"), "{misfit:?}");
    }

    #[test]
    fn lines_before_the_chain_are_counted_and_later_ones_without_hash_are_misfits() {
        let log = log(2);
        let [a, b] = [log.lines[0].as_str(), log.lines[1].as_str()];
        let found = log.check(&[r#"{"old":1}"#, "half", a, b]).unwrap();
        assert_eq!((found.lines, found.before, found.torn), (2, 1, 1));
        assert_eq!(log.check(&[a, b, r#"{"new":1}"#]).unwrap_err().line, 3);
        let misfit = log.check(&[r#"{"old":1}"#, b]).unwrap_err();
        assert!(misfit.why.contains("had begun before"), "{misfit:?}");
    }

    #[test]
    fn hash_that_was_noted_is_looked_for() {
        let log = log(3);
        let text: String = log.lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&log.path, text).unwrap();
        let files = std::slice::from_ref(&log.path);
        let noted = chain::read(log.lines[1].as_bytes()).unwrap().link.hash;
        assert!(verify(files, None, Some(noted)).unwrap().is_ok());
        let other = Some(Link::START.hash);
        let misfit = verify(files, None, other).unwrap().unwrap_err();
        assert!(misfit.why.contains("no line has the hash"), "{misfit:?}");
    }
}
