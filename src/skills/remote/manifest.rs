//! The files of a skill with their digests, as the index has them and as clients of MCP see them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// What an index knows about the files of a skill.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SkillFiles {
    /// The front matter of SKILL.md, as it is written there.
    pub frontmatter: serde_json::Map<String, serde_json::Value>,
    /// Every file, by its path.
    pub digests: BTreeMap<String, FileDigest>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDigest {
    pub sha256: String,
    pub size: u64,
}

impl FileDigest {
    pub fn of(content: &[u8]) -> Self {
        FileDigest {
            sha256: hex::encode(Sha256::digest(content)),
            size: content.len() as u64,
        }
    }
}
