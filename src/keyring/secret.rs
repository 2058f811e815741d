use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::locked::Locked;

/// A secret value. It has no `Display` and no `Serialize`, and its `Debug` doesn't show it.
#[derive(Clone)]
pub struct Secret {
    pages: Arc<Locked>,
    range: Range<usize>,
}

impl Secret {
    pub fn new(bytes: &[u8]) -> io::Result<Self> {
        Secret::concat(&[bytes])
    }

    /// One secret out of several parts, joined in locked memory.
    pub fn concat(parts: &[&[u8]]) -> io::Result<Self> {
        let len = parts.iter().map(|part| part.len()).sum();
        let mut pages = Locked::with_capacity(len)?;
        for part in parts {
            pages.push(part)?;
        }
        Ok(Secret {
            pages: Arc::new(pages),
            range: 0..len,
        })
    }

    pub(super) fn within(pages: Arc<Locked>, range: Range<usize>) -> Self {
        Secret { pages, range }
    }

    /// The value. The caller of this function is responsible for where it goes.
    pub fn expose(&self) -> &[u8] {
        &self.pages.as_slice()[self.range.clone()]
    }

    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_printed_for_debugging_shows_no_value() {
        let secret = Secret::new(b"hunter2").unwrap();
        assert_eq!(
            format!("{secret:?} {:#?}", Some(&secret)).find("hunter2"),
            None
        );
        assert_eq!(secret.expose(), b"hunter2");
    }
}
