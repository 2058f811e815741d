//! The secret that the command line signs its requests with: from a variable, from the file that
//! another one names, or from the default file. Files are read at each use, so that a supervisor
//! can rotate them.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::signature::SigningKey;
use crate::keyring::Secret;

const VARIABLE: &str = "ATI_SANDBOX_SECRET";
const FILE_VARIABLE: &str = "ATI_SANDBOX_SECRET_FILE";
const DEFAULT_FILE: &str = "/run/ati/sandbox_secret";

/// Where the secret may be, for people who have to put it there.
pub const SOURCES: &str = "ATI_SANDBOX_SECRET, the file that ATI_SANDBOX_SECRET_FILE names, or \
                           /run/ati/sandbox_secret";

/// Bytes of a secret. The limit is for a path that leads to something endless.
const LONGEST: usize = 16 << 10;

/// The key to sign with, and where its secret came from.
pub struct SandboxKey {
    pub key: SigningKey,
    pub source: SecretSource,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    Variable,
    NamedFile(PathBuf),
    DefaultFile(PathBuf),
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::Variable => f.write_str(VARIABLE),
            SecretSource::NamedFile(path) => write!(f, "{FILE_VARIABLE} ({})", path.display()),
            SecretSource::DefaultFile(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Why a secret that is there can't be used. Never quotes it.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("the secret of {VARIABLE}, or of its file, is not valid text")]
    NotText,
    #[error("{0}: can't be read")]
    Unreadable(SecretSource, #[source] io::Error),
    #[error("{0}: empty")]
    Empty(SecretSource),
    #[error("{0}: longer than {LONGEST} bytes")]
    TooLong(SecretSource),
    #[error("no memory for the secret")]
    Memory(#[source] io::Error),
}

/// The caller's key, if there is one. A file that is named and can't be used is an error: the
/// operator meant requests to be signed.
pub fn resolve() -> Result<Option<SandboxKey>, SecretError> {
    let Some((secret, source)) = secret()? else {
        return Ok(None);
    };
    key(&secret, source).map(Some)
}

/// The secret itself, for the variables of another sandbox.
pub fn text() -> Result<Option<Zeroizing<String>>, SecretError> {
    let Some((secret, _)) = secret()? else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&secret).map_err(|_| SecretError::NotText)?;
    Ok(Some(Zeroizing::new(text.to_owned())))
}

type Found = (Zeroizing<Vec<u8>>, SecretSource);

fn secret() -> Result<Option<Found>, SecretError> {
    let variable = match std::env::var(VARIABLE) {
        Ok(value) => Some(Zeroizing::new(value)),
        Err(std::env::VarError::NotPresent) => None,
        Err(std::env::VarError::NotUnicode(_)) => return Err(SecretError::NotText),
    };
    let file = std::env::var_os(FILE_VARIABLE).map(PathBuf::from);
    find(variable, file, Path::new(DEFAULT_FILE))
}

fn find(
    variable: Option<Zeroizing<String>>,
    named: Option<PathBuf>,
    default: &Path,
) -> Result<Option<Found>, SecretError> {
    if let Some(text) = variable.filter(|text| !text.trim().is_empty()) {
        let secret = Zeroizing::new(text.trim().as_bytes().to_vec());
        return Ok(Some((secret, SecretSource::Variable)));
    }
    let is_blank = |path: &Path| path.to_string_lossy().trim().is_empty();
    let source = match named.filter(|path| !is_blank(path)) {
        Some(path) => SecretSource::NamedFile(path),
        None => SecretSource::DefaultFile(default.to_owned()),
    };
    let (path, is_default) = match &source {
        SecretSource::NamedFile(path) => (path, false),
        SecretSource::DefaultFile(path) => (path, true),
        SecretSource::Variable => return Ok(None),
    };
    let text = match read(path) {
        Ok(text) => text,
        Err(e) if is_default && e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(SecretError::Unreadable(source, e)),
    };
    match text.trim_ascii() {
        _ if text.len() > LONGEST => Err(SecretError::TooLong(source)),
        b"" if is_default => Ok(None),
        b"" => Err(SecretError::Empty(source)),
        secret => Ok(Some((Zeroizing::new(secret.to_vec()), source))),
    }
}

fn key(secret: &[u8], source: SecretSource) -> Result<SandboxKey, SecretError> {
    let secret = Secret::new(secret).map_err(SecretError::Memory)?;
    Ok(SandboxKey {
        key: SigningKey::new(&secret),
        source,
    })
}

fn read(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    // Large enough from the start: a buffer that grows leaves copies behind.
    let mut text = Zeroizing::new(Vec::with_capacity(LONGEST + 2));
    let file = File::open(path)?;
    file.take(LONGEST as u64 + 1).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve_from(
        variable: Option<Zeroizing<String>>,
        named: Option<PathBuf>,
        default: &Path,
    ) -> Result<Option<SandboxKey>, SecretError> {
        let found = find(variable, named, default)?;
        found
            .map(|(secret, source)| key(&secret, source))
            .transpose()
    }

    fn signs(found: &SandboxKey) -> String {
        found.key.sign(1, "GET", "/")
    }

    fn key_of(text: &str) -> String {
        let secret = Secret::new(text.as_bytes()).unwrap();
        SigningKey::new(&secret).sign(1, "GET", "/")
    }

    #[test]
    fn secret_comes_from_the_variable_then_the_named_file_then_the_default_file() {
        let dir = tempfile::tempdir().unwrap();
        let (named, default) = (dir.path().join("named"), dir.path().join("default"));
        std::fs::write(&named, " 73656372 \n").unwrap();
        std::fs::write(&default, "by-default\n").unwrap();
        let of = |variable: Option<&str>, file: Option<&Path>| {
            let variable = variable.map(|text| Zeroizing::new(text.to_owned()));
            let found = resolve_from(variable, file.map(Path::to_owned), &default).unwrap();
            let found = found.unwrap();
            (signs(&found), found.source.to_string())
        };
        let (signature, source) = of(Some(" direct "), Some(&named));
        assert_eq!(signature, key_of("direct"));
        assert_eq!(source, "ATI_SANDBOX_SECRET");
        for blank in [None, Some("  ")] {
            let (signature, source) = of(blank, Some(&named));
            // Hex is decoded, as the server does.
            assert_eq!(signature, key_of("secr"));
            assert!(source.starts_with("ATI_SANDBOX_SECRET_FILE ("), "{source}");
        }
        assert_eq!(of(None, None).0, key_of("by-default"));
        assert_eq!(of(None, Some(Path::new(""))).0, key_of("by-default"));
    }

    #[test]
    fn named_file_that_cannot_be_used_is_an_error_and_a_missing_default_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        assert!(resolve_from(None, None, &missing).unwrap().is_none());
        let empty = dir.path().join("empty");
        std::fs::write(&empty, "\n").unwrap();
        assert!(resolve_from(None, None, &empty).unwrap().is_none());
        let error = |path: &Path| {
            let found = resolve_from(None, Some(path.to_owned()), &missing);
            found.err().unwrap().to_string()
        };
        assert!(error(&missing).ends_with("missing): can't be read"));
        assert!(error(&empty).ends_with("empty): empty"));
        assert!(error(dir.path()).ends_with("can't be read"));
        assert!(error(Path::new("/dev/zero")).ends_with("longer than 16384 bytes"));
        // A default that is there and can't be read is an error, too.
        assert!(resolve_from(None, None, dir.path()).is_err());
    }
}
