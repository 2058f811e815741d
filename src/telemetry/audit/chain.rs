//! A hash chain over audit lines. Each line ends with its number, the hash of the line before it,
//! and its own hash, which is that of all text before the member `hash`:
//!
//! ```text
//! {"ts":…,"tool":…,"seq":7,"prev":"<hash of line 6>","hash":"<SHA-256 of {"ts":… to …line 6>">}
//! ```
//!
//! A file next to the audit file has the end of the chain. It goes on in the next file after a
//! rotation, tells where the end was cut off, and is what writers of several processes lock. While
//! it is there, every process that writes to the audit file continues the chain.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Where the last line of a file is looked for: no line is nearly as long.
const LONGEST_END: u64 = 1 << 20;
/// The length of a hash, in hex.
const HASH: usize = 64;
const SEQ: &[u8] = b",\"seq\":";
const PREV: &[u8] = b",\"prev\":\"";
const OWN: &[u8] = b",\"hash\":\"";

/// A hash in hex.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hash([u8; HASH]);

/// One line of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Lines are counted from 1, across files.
    pub seq: u64,
    pub hash: Hash,
}

/// The members of a line that make it part of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chained {
    pub link: Link,
    pub prev: Hash,
    /// The hash is that of the line's text.
    pub is_intact: bool,
}

/// The end of a chain, as its file has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    pub link: Link,
    /// The number of the first line of the audit file that is written now.
    pub file_begins_at: u64,
}

#[derive(Serialize, Deserialize)]
struct EndText {
    seq: u64,
    hash: String,
    file_begins_at: u64,
}

impl Hash {
    fn of(text: &[u8]) -> Self {
        let mut hash = [0; HASH];
        let encoded = hex::encode_to_slice(Sha256::digest(text), &mut hash);
        debug_assert!(encoded.is_ok());
        Hash(hash)
    }

    pub fn parse(text: &[u8]) -> Option<Self> {
        let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let hash: [u8; HASH] = text.try_into().ok()?;
        hash.iter().all(is_hex).then_some(Hash(hash))
    }

    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Link {
    /// Before the first line.
    pub const START: Link = Link {
        seq: 0,
        hash: Hash([b'0'; HASH]),
    };

    /// Appends `line`, a JSON object without its line break, to `out` as the line behind this one.
    pub fn seal(self, line: &[u8], out: &mut Vec<u8>) -> Link {
        let seq = self.seq.saturating_add(1);
        let begin = out.len();
        out.extend_from_slice(line.strip_suffix(b"}").unwrap_or(line));
        out.extend_from_slice(SEQ);
        out.extend_from_slice(seq.to_string().as_bytes());
        out.extend_from_slice(PREV);
        out.extend_from_slice(&self.hash.0);
        out.push(b'"');
        let hash = Hash::of(&out[begin..]);
        out.extend_from_slice(OWN);
        out.extend_from_slice(&hash.0);
        out.extend_from_slice(b"\"}\n");
        Link { seq, hash }
    }
}

/// What a line, without its line break, says of the chain. None where it isn't part of one. Only
/// the text that [`Link::seal`] writes is: no JSON is parsed.
pub fn read(line: &[u8]) -> Option<Chained> {
    let (text, hash) = cut_hash(line.strip_suffix(b"\"}")?, OWN)?;
    let (before, prev) = cut_hash(text.strip_suffix(b"\"")?, PREV)?;
    let digits = before.iter().rev().take_while(|byte| byte.is_ascii_digit());
    let (before, seq) = before.split_at(before.len() - digits.count());
    before.strip_suffix(SEQ)?;
    let seq = str::from_utf8(seq).ok()?.parse().ok()?;
    Some(Chained {
        link: Link { seq, hash },
        prev,
        is_intact: Hash::of(text) == hash,
    })
}

fn cut_hash<'a>(text: &'a [u8], name: &[u8]) -> Option<(&'a [u8], Hash)> {
    let (text, hash) = text.split_at_checked(text.len().checked_sub(HASH)?)?;
    Some((text.strip_suffix(name)?, Hash::parse(hash)?))
}

/// The file with the end of the chain of this audit file.
pub fn end_file(audit_file: &Path) -> PathBuf {
    let mut name = audit_file.file_name().unwrap_or_default().to_owned();
    name.push(".chain");
    audit_file.with_file_name(name)
}

impl End {
    /// None where the file is empty or damaged: the audit file's last line is the end then.
    pub fn read(file: &mut File) -> io::Result<Option<End>> {
        let mut text = String::new();
        file.seek(SeekFrom::Start(0))?;
        if file.take(4096).read_to_string(&mut text).is_err() {
            return Ok(None);
        }
        let line = text.lines().next().unwrap_or_default();
        Ok(serde_json::from_str::<EndText>(line).ok().and_then(|end| {
            let hash = Hash::parse(end.hash.as_bytes())?;
            let link = Link { seq: end.seq, hash };
            let file_begins_at = end.file_begins_at;
            Some(End {
                link,
                file_begins_at,
            })
        }))
    }

    /// In one write, and never shorter than before: a process that is killed leaves the old text
    /// or the new one.
    pub fn write(&self, file: &File) -> io::Result<()> {
        let end = EndText {
            seq: self.link.seq,
            hash: self.link.hash.as_str().to_owned(),
            file_begins_at: self.file_begins_at,
        };
        let mut text = serde_json::to_vec(&end)?;
        text.push(b'\n');
        file.write_all_at(&text, 0)
    }
}

/// The end of an audit file.
#[derive(Debug, PartialEq, Eq)]
pub struct FileEnd {
    /// The last whole line that is part of the chain.
    pub link: Option<Link>,
    /// The last line has no line break: a process was killed while it wrote.
    pub is_torn: bool,
}

impl FileEnd {
    pub fn read(file: &mut File) -> io::Result<FileEnd> {
        let length = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(length.saturating_sub(LONGEST_END)))?;
        let mut text = Vec::new();
        file.take(LONGEST_END).read_to_end(&mut text)?;
        let mut lines = text.split(|byte| *byte == b'\n').rev();
        // Behind the last line break.
        let is_torn = lines.next().is_some_and(|rest| !rest.is_empty());
        let link = lines.find_map(read).map(|line| line.link);
        Ok(FileEnd { link, is_torn })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(line: &str, last: Link) -> (String, Link) {
        let mut out = Vec::new();
        let link = last.seal(line.as_bytes(), &mut out);
        (String::from_utf8(out).unwrap(), link)
    }

    #[test]
    fn sealed_line_is_json_and_reads_as_it_was_sealed() {
        let (first, one) = sealed(r#"{"tool":"a"}"#, Link::START);
        let (second, two) = sealed(r#"{"tool":"b,\"hash\":\"x"}"#, one);
        let value: serde_json::Value = serde_json::from_str(&second).unwrap();
        assert_eq!(value["tool"], "b,\"hash\":\"x");
        assert_eq!(
            (&value["seq"], &value["prev"]),
            (&2.into(), &one.hash.as_str().into())
        );
        for (line, prev, link) in [(&first, Link::START, one), (&second, one, two)] {
            let read = read(line.trim_end().as_bytes()).unwrap();
            assert_eq!(
                (read.prev, read.link, read.is_intact),
                (prev.hash, link, true)
            );
        }
        let changed = second.replace("\"tool\":\"b", "\"tool\":\"c");
        assert!(!read(changed.trim_end().as_bytes()).unwrap().is_intact);
    }

    #[test]
    fn other_lines_are_no_part_of_the_chain() {
        let (line, _) = sealed(r#"{"a":1}"#, Link::START);
        let line = line.trim_end();
        for other in [
            "",
            "}",
            "\"}",
            r#"{"a":1}"#,
            &line[..line.len() - 1],
            &line.replace("\"hash\"", "\"Hash\""),
            &line.replace("\"seq\":1", "\"seq\":x"),
            &line.replace("\"seq\":1", "\"seq\":99999999999999999999"),
            &format!("{{\"nested\":{line}}}"),
        ] {
            assert_eq!(read(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn end_of_a_file_is_its_last_whole_line_of_the_chain() {
        let (first, one) = sealed(r#"{"a":1}"#, Link::START);
        let (second, two) = sealed(r#"{"a":2}"#, one);
        for (text, link, is_torn) in [
            (String::new(), None, false),
            (first.clone(), Some(one), false),
            (format!("{first}{second}"), Some(two), false),
            (format!("{first}{}", &second[..20]), Some(one), true),
            (format!("{first}{}", second.trim_end()), Some(one), true),
            (format!("{first}{{\"a\":3}}\n"), Some(one), false),
            ("{\"a\":3}\n".repeat(300_000), None, false),
        ] {
            let mut file = tempfile::tempfile().unwrap();
            io::Write::write_all(&mut file, text.as_bytes()).unwrap();
            assert_eq!(FileEnd::read(&mut file).unwrap(), FileEnd { link, is_torn });
        }
    }

    #[test]
    fn end_that_was_written_is_read_and_a_damaged_one_is_none() {
        let mut file = tempfile::tempfile().unwrap();
        assert_eq!(End::read(&mut file).unwrap(), None);
        for seq in [7, 1234] {
            let hash = Hash::of(b"x");
            let end = End {
                link: Link { seq, hash },
                file_begins_at: 3,
            };
            end.write(&file).unwrap();
            assert_eq!(End::read(&mut file).unwrap(), Some(end));
        }
        file.write_all_at(b"x", 0).unwrap();
        assert_eq!(End::read(&mut file).unwrap(), None);
    }
}
