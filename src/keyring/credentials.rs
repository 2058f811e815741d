//! The plaintext `credentials` file, which `ati key` edits: pretty JSON, sorted by name, mode 0600.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use zeroize::Zeroizing;

use crate::files;

/// The content of the file. It holds a lock, so that two editors don't lose each other's changes.
pub struct Credentials {
    path: PathBuf,
    entries: BTreeMap<String, Zeroizing<String>>,
    _lock: File,
}

impl Credentials {
    pub fn open(dir: PathBuf) -> io::Result<Self> {
        files::create_private_dir(&dir)?;
        let lock = files::lock(&dir.join(".credentials.lock"))?;
        let path = dir.join("credentials");
        let entries = match files::read(&path).map(Zeroizing::new) {
            Ok(text) => parse(&text)?,
            Err(e) if e.kind() == ErrorKind::NotFound => BTreeMap::new(),
            Err(e) => return Err(e),
        };
        Ok(Credentials {
            path,
            entries,
            _lock: lock,
        })
    }

    pub fn set(&mut self, name: &str, value: &str) -> io::Result<()> {
        self.entries
            .insert(name.to_owned(), Zeroizing::new(value.to_owned()));
        self.save()
    }

    /// True where there was an entry to remove.
    pub fn remove(&mut self, name: &str) -> io::Result<bool> {
        let found = self.entries.remove(name).is_some();
        if found {
            self.save()?;
        }
        Ok(found)
    }

    /// Names with their masked values.
    pub fn masked(&self) -> impl Iterator<Item = (&str, String)> {
        self.entries
            .iter()
            .map(|(name, value)| (name.as_str(), mask(value)))
    }

    fn save(&self) -> io::Result<()> {
        let plain: BTreeMap<&str, &str> = self
            .entries
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let mut text = Zeroizing::new(serde_json::to_vec_pretty(&plain)?);
        text.push(b'\n');
        files::write_atomic(&self.path, &text, 0o600)
    }
}

fn parse(text: &[u8]) -> io::Result<BTreeMap<String, Zeroizing<String>>> {
    let plain: BTreeMap<String, String> = serde_json::from_slice(text).map_err(|e| {
        // serde_json's own message may quote the value.
        io::Error::new(
            ErrorKind::InvalidData,
            format!(
                "not a JSON object of strings (line {}, column {})",
                e.line(),
                e.column()
            ),
        )
    })?;
    Ok(plain
        .into_iter()
        .map(|(name, value)| (name, Zeroizing::new(value)))
        .collect())
}

/// The first and the last characters: enough to recognise a key, too little to use it.
pub fn mask(value: &str) -> String {
    let characters: Vec<char> = value.chars().collect();
    let ends = |n: usize| -> String {
        let head = &characters[..n];
        let tail = &characters[characters.len() - n..];
        head.iter().chain(&['.'; 3]).chain(tail).collect()
    };
    match characters.len() {
        n @ 0..=4 => "*".repeat(n),
        5..=10 => ends(2),
        _ => ends(4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn mask_counts_characters_and_not_bytes() {
        assert_eq!(mask(""), "");
        assert_eq!(mask("äöü"), "***");
        assert_eq!(mask("äbcdé"), "äb...dé");
        assert_eq!(mask("sk-1234567890cdef"), "sk-1...cdef");
    }

    #[test]
    fn broken_file_is_neither_changed_nor_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials");
        fs::write(&path, r#"{"k": "s3cret""#).unwrap();
        let error = Credentials::open(dir.path().to_path_buf()).err().unwrap();
        assert!(!error.to_string().contains("s3cret"));
        assert_eq!(fs::read_to_string(&path).unwrap(), r#"{"k": "s3cret""#);
    }

    #[test]
    fn concurrent_editors_keep_all_keys() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_path_buf();
        std::thread::scope(|scope| {
            for n in 0..8 {
                let path = path.clone();
                scope.spawn(move || {
                    Credentials::open(path)
                        .unwrap()
                        .set(&format!("k{n}"), "v")
                        .unwrap();
                });
            }
        });
        let all = Credentials::open(path).unwrap();
        assert_eq!(all.masked().count(), 8);
    }
}
