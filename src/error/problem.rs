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
    /// The line of the file that the key is in, where it is known.
    pub line: Option<u32>,
    pub intro: Intro,
    /// The message names the key itself, in the words of existing deployments.
    pub names_key: bool,
    pub weight: Weight,
    /// What `ati doctor` reports it under, and how it is mended.
    pub advice: Option<Box<Advice>>,
    /// The name of the credential, if the problem is that one is missing.
    pub missing_credential: Option<String>,
}

/// How much a warning weighs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Weight {
    /// `ati check --strict` doesn't fail on it: it is a step of a documented roll-out.
    Tolerated,
    #[default]
    Normal,
    /// It is logged as an error.
    Grave,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// The check of `ati doctor`.
    pub check: &'static str,
    pub fix: String,
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
            line: None,
            intro: Intro::Plain,
            names_key: false,
            weight: Weight::Normal,
            advice: None,
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

    /// The key, for a message that names it itself.
    pub fn about(mut self, key: impl Into<String>) -> Self {
        self.names_key = true;
        self.key(key)
    }

    pub fn weight(mut self, weight: Weight) -> Self {
        self.weight = weight;
        self
    }

    pub fn advice(mut self, check: &'static str, fix: impl Into<String>) -> Self {
        let fix = fix.into();
        self.advice = Some(Box::new(Advice { check, fix }));
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
        if let Some(key) = self.key.as_ref().filter(|_| !self.names_key) {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.message)?;
        match self.line {
            Some(line) => write!(f, " (line {line})"),
            None => Ok(()),
        }
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
        let p = Problem::new("path_prefix must start with '/'").about("path_prefix");
        assert_eq!(p.to_string(), "path_prefix must start with '/'");
        let p = Problem { line: Some(7), ..p };
        assert_eq!(p.to_string(), "path_prefix must start with '/' (line 7)");
    }
}
