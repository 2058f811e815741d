//! Why an HTTP request that a command made got no answer.

use std::error::Error;
use std::fmt;

use crate::egress;

/// `Display` is the kind of fault in plain words, as everywhere in ati. The source is the innermost
/// error, which says what the system or TLS said; the layers between only repeat each other, and
/// the outermost one would print the URL.
#[derive(Debug)]
pub struct NoAnswer(reqwest::Error);

impl NoAnswer {
    pub fn new(error: reqwest::Error) -> Self {
        NoAnswer(error)
    }

    pub fn is_timeout(&self) -> bool {
        self.0.is_timeout()
    }
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match egress::fault(&self.0) {
            Ok(fault) => f.write_str(fault.words()),
            Err(blocked) => blocked.fmt(f),
        }
    }
}

impl Error for NoAnswer {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let mut innermost = self.0.source()?;
        while let Some(deeper) = innermost.source() {
            innermost = deeper;
        }
        Some(innermost)
    }
}
