//! Problems in what an operator configured: collected, and reported together.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

/// One problem in what an operator configured: the file and the key, and what is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub file: Option<PathBuf>,
    pub key: Option<String>,
    pub message: String,
    pub intro: Intro,
    /// The name of the credential, if the problem is that one is missing.
    pub missing_credential: Option<String>,
}

/// How a problem in a file is introduced. Scripts look for the words about manifests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Intro {
    #[default]
    Plain,
    UnparsableManifest,
    InvalidManifest,
}

impl Problem {
    pub fn new(message: impl Into<String>) -> Self {
        Problem {
            file: None,
            key: None,
            message: message.into(),
            intro: Intro::Plain,
            missing_credential: None,
        }
    }

    /// Appends the causes, outermost first.
    pub fn because(mut self, error: &dyn Error) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            self.message += &format!(": {error}");
            next = error.source();
        }
        self
    }

    pub fn intro(mut self, intro: Intro) -> Self {
        self.intro = intro;
        self
    }

    pub fn missing_credential(mut self, name: &str) -> Self {
        self.missing_credential = Some(name.to_owned());
        self
    }

    pub fn file(mut self, file: &Path) -> Self {
        self.file = Some(file.to_path_buf());
        self
    }

    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            let file = file.display();
            match self.intro {
                Intro::Plain => write!(f, "{file}: ")?,
                Intro::UnparsableManifest => write!(f, "Failed to parse manifest {file}: ")?,
                Intro::InvalidManifest => write!(f, "Manifest {file} is invalid: ")?,
            }
        }
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_names_file_and_key() {
        let p = Problem::new("no such mode")
            .file(Path::new("/etc/ati.toml"))
            .key("signature.mode");
        assert_eq!(p.to_string(), "/etc/ati.toml: signature.mode: no such mode");
    }
}
