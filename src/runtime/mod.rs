//! What outlives a snapshot: minted credentials, sessions and rate windows. It holds things by key, and knows nothing of where they come from.

mod fresh;
mod pool;
mod rate;

use std::path::Path;

pub use fresh::{Fresh, Key, Made};
pub use pool::{Pool, Pooled};
pub use rate::{Exceeded, Windows};

use crate::credential::Attachment;
use crate::error::{McpError, ToolError};

pub struct Runtime {
    pub minted: Fresh<Attachment, ToolError>,
    pub rates: Windows,
    pub sessions: Pool<McpError>,
}

impl Runtime {
    pub fn new(ati_dir: &Path) -> Self {
        Runtime {
            minted: Fresh::default(),
            rates: Windows::new(ati_dir),
            sessions: Pool::default(),
        }
    }
}
