//! The search for credentials in a file that a program wrote.

use std::io::{self, Read, Seek, Write};

use crate::credential::{Attachment, Redactor};

const READ_SIZE: usize = 256 << 10;

/// The search in one file. Most files have nothing in them that has to be replaced, so a first pass
/// only looks; a second one writes a copy.
pub struct Search {
    /// `None` where there is nothing to look for.
    passes: Option<(Redactor, Redactor)>,
}

impl Search {
    pub fn new(attachment: &Attachment) -> Self {
        let passes = || (attachment.redactor(), attachment.redactor());
        Search {
            passes: attachment.redacts().then(passes),
        }
    }

    /// The file itself, or a copy without credentials, made in a new file. `None` if the search
    /// would take too long: what the caller got would end early.
    pub fn run<F: Read + Write + Seek>(
        self,
        mut file: F,
        new_file: impl FnOnce() -> io::Result<F>,
    ) -> io::Result<Option<F>> {
        let Some((first, second)) = self.passes else {
            return Ok(Some(file));
        };
        if !is_changed_by(first, &mut file)? {
            return Ok(Some(file));
        }
        let mut copy = new_file()?;
        Ok(write_clean(second, &mut file, &mut copy)?.then_some(copy))
    }
}

/// Whether there is something to replace.
fn is_changed_by(mut redactor: Redactor, file: &mut (impl Read + Seek)) -> io::Result<bool> {
    file.rewind()?;
    let mut buffer = vec![0; READ_SIZE];
    // What went in and hasn't come out yet.
    let mut inside: Vec<u8> = Vec::new();
    loop {
        let size = file.read(&mut buffer)?;
        if size == 0 {
            return Ok(redactor.finish() != inside);
        }
        inside.extend_from_slice(&buffer[..size]);
        let out = redactor.push(&buffer[..size]);
        if !inside.starts_with(&out) {
            return Ok(true);
        }
        inside.drain(..out.len());
    }
}

/// False if the redactor gave up.
fn write_clean(
    mut redactor: Redactor,
    file: &mut (impl Read + Seek),
    copy: &mut impl Write,
) -> io::Result<bool> {
    file.rewind()?;
    let mut buffer = vec![0; READ_SIZE];
    loop {
        let size = file.read(&mut buffer)?;
        if size == 0 {
            copy.write_all(&redactor.finish())?;
            return Ok(true);
        }
        copy.write_all(&redactor.push(&buffer[..size]))?;
        if redactor.gave_up() {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn searched(secret: &[u8], content: &[u8]) -> (Option<Vec<u8>>, bool) {
        let attachment = Attachment::default().with_redacted([secret].into_iter());
        let mut is_copied = false;
        let found = Search::new(&attachment).run(Cursor::new(content.to_vec()), || {
            is_copied = true;
            Ok(Cursor::default())
        });
        (found.unwrap().map(Cursor::into_inner), is_copied)
    }

    #[test]
    fn file_is_copied_only_where_a_credential_is_replaced() {
        let secret = b"planted-secret-value";
        // Ends with half of it, and is longer than one piece.
        let mut content: Vec<u8> = (0..READ_SIZE + 10).map(|n| (n % 251) as u8).collect();
        content.extend_from_slice(b"planted-secret");
        assert_eq!(searched(secret, &content), (Some(content.clone()), false));
        assert_eq!(searched(b"", &content), (Some(content), false));

        // Across the border of two pieces.
        for begin in [0, READ_SIZE - 5, READ_SIZE + 1] {
            let mut content = vec![b'x'; begin];
            content.extend_from_slice(secret);
            content.extend_from_slice(b" and more");
            let mut expected = vec![b'x'; begin];
            expected.extend_from_slice(b"[REDACTED] and more");
            assert_eq!(
                searched(secret, &content),
                (Some(expected), true),
                "{begin}"
            );
        }
    }

    #[test]
    fn credential_as_long_as_its_replacement_is_found() {
        let (found, is_copied) = searched(b"0123456789", b"at 0123456789 end");
        assert_eq!(found.unwrap(), b"at [REDACTED] end");
        assert!(is_copied);
    }

    #[test]
    fn search_that_takes_too_long_gives_no_file() {
        let secret = "a".repeat(100_000) + "b";
        let (found, _) = searched(secret.as_bytes(), &vec![b'a'; 2 * READ_SIZE]);
        assert_eq!(found, None);
    }
}
