//! The bytes of a file, spooled, counted and hashed while they come in.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use sha2::{Digest as _, Sha256};

use super::error::FilesError;
use crate::exec::{ExecContext, SharedState};
use crate::spool::{Spool, Spooled};

/// Letters of base64 that are decoded at a time. Four of them are three bytes.
const LETTERS: usize = 64 << 10;

const LAST: GeneralPurpose = decoder(DecodePaddingMode::RequireCanonical);
const NOT_LAST: GeneralPurpose = decoder(DecodePaddingMode::RequireNone);

const fn decoder(padding: DecodePaddingMode) -> GeneralPurpose {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(padding);
    GeneralPurpose::new(&STANDARD, config)
}

/// A file up to this size stays in memory. Less than for other bodies: most files are longer, and
/// what was in memory once is kept as a buffer.
const IN_MEMORY: usize = 64 << 10;

/// A whole file.
#[derive(Debug, Clone)]
pub struct Content {
    pub body: Spooled,
    pub sha256: [u8; 32],
}

impl Content {
    pub fn len(&self) -> u64 {
        self.body.len()
    }

    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// As answers show it.
    pub fn sha256_hex(&self) -> String {
        hex::encode(self.sha256)
    }
}

/// A file that waits for the next request of its caller.
#[derive(Debug, Clone)]
pub struct StoredFile {
    pub content: Content,
    pub name: Option<String>,
    pub content_type: Option<String>,
}

/// A file while it comes in.
pub struct Incoming {
    spool: Spool,
    digest: Sha256,
    most: u64,
}

impl Incoming {
    /// A file of at most `most` bytes.
    pub fn new(most: u64, runtime: &SharedState) -> Self {
        let spool = Spool::new(IN_MEMORY, runtime.file_spools.clone());
        Incoming {
            spool: spool.within(&runtime.memory),
            digest: Sha256::new(),
            most,
        }
    }

    pub fn len(&self) -> u64 {
        self.spool.len()
    }

    pub fn is_empty(&self) -> bool {
        self.spool.is_empty()
    }

    pub async fn write(&mut self, piece: &[u8]) -> Result<(), FilesError> {
        if self.len() + piece.len() as u64 > self.most {
            return Err(FilesError::TooLarge(self.most));
        }
        self.digest.update(piece);
        Ok(self.spool.write(piece).await?)
    }

    pub async fn finish(self) -> Result<Content, FilesError> {
        Ok(Content {
            body: self.spool.finish().await?,
            sha256: self.digest.finalize().into(),
        })
    }
}

/// The file that is in this text, decoded piece by piece.
pub async fn from_base64(
    text: &str,
    most: u64,
    context: ExecContext<'_>,
) -> Result<Content, FilesError> {
    let mut incoming = Incoming::new(most, context.runtime);
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.len().min(LETTERS));
        rest = after;
        // Padding is the end: where more follows, it is a mistake.
        let decoder = if rest.is_empty() { LAST } else { NOT_LAST };
        let bytes = decoder.decode(piece);
        let bytes = bytes.map_err(|e| FilesError::Base64(e.to_string()))?;
        incoming.write(&bytes).await?;
    }
    incoming.finish().await
}
