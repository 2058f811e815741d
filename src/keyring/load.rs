//! Loads the keyring from the first form that is there: `keyring.enc` with a one-shot key, with the
//! session key of an earlier one-shot key, or with the persistent key; then plaintext credentials;
//! then nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::entries::{self, Malformed};
use super::kept::KeptKeys;
use super::locked::Locked;
use super::sealed::SessionKey;
use super::{Keyring, Secret, Source};
use crate::error::Problem;
use crate::files;

/// More than any keyring needs, and little enough to read whole.
const LIMIT: usize = 16 << 20;
const FILE_REFERENCE: &[u8] = b"@file:";

/// The files of a keyring.
#[derive(Debug, Clone)]
pub struct Places {
    pub dir: PathBuf,
    /// The one-shot session key: `ATI_KEY_FILE`, or `/run/ati/.key`.
    pub one_shot: PathBuf,
    /// Unlink the one-shot key when it is read. Only `ati check` leaves it in place.
    pub consume: bool,
}

impl Places {
    pub fn sealed(&self) -> PathBuf {
        self.dir.join("keyring.enc")
    }

    pub fn persistent_key(&self) -> PathBuf {
        self.dir.join(".keyring-key")
    }

    /// Whether loading would use up a one-shot key.
    pub fn would_spend(&self) -> bool {
        self.consume && self.one_shot.exists() && self.sealed().exists()
    }

    pub fn credentials(&self) -> PathBuf {
        self.dir.join("credentials")
    }
}

/// What to do where `keyring.enc` exists and can't be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    /// Fail. A server must not start as if there were no keys.
    Refuse,
    /// Go on with an empty keyring: the operator said so (`--allow-empty-keyring`).
    Empty,
    /// Go on to plaintext credentials, as the command line does.
    Credentials,
}

pub struct Loaded {
    pub keyring: Keyring,
    pub warnings: Vec<Problem>,
}

/// A one-shot key that is read is added to `kept`, whatever becomes of the rest.
pub fn load(places: &Places, kept: &KeptKeys, fallback: Fallback) -> Result<Loaded, Problem> {
    let mut warnings = Vec::new();
    let path = places.sealed();
    match read(&path) {
        Ok(Some(sealed)) => {
            warn_if_public(&path, &mut warnings);
            match open(places, kept, &path, sealed.as_slice(), &mut warnings) {
                Ok(keyring) => return Ok(Loaded { keyring, warnings }),
                Err(problem) if fallback == Fallback::Refuse => return Err(problem),
                Err(problem) => warnings.push(problem),
            }
            if fallback == Fallback::Empty {
                return Ok(Loaded {
                    keyring: Keyring::empty(),
                    warnings,
                });
            }
        }
        Ok(None) => {}
        Err(problem) => return Err(problem),
    }

    let path = places.credentials();
    let keyring = match read(&path)? {
        Some(text) => {
            warn_if_public(&path, &mut warnings);
            let entries = entries::parse(text.as_slice()).map_err(|e| malformed(&path, &e))?;
            Keyring::new(follow_references(&path, entries)?, Source::Credentials)
        }
        None => Keyring::empty(),
    };
    Ok(Loaded { keyring, warnings })
}

/// A `keyring.enc`, opened with this key and no other.
pub fn open_with(path: &Path, sealed: &[u8], key: &SessionKey) -> Result<Keyring, Problem> {
    let plain = key
        .open(sealed)
        .map_err(|e| Problem::new(e.to_string()).file(path))?;
    let entries = entries::parse(plain.as_slice()).map_err(|e| malformed(path, &e))?;
    Ok(Keyring::new(entries, Source::Persistent).sealed_with(key))
}

/// `ATI_KEY_<NAME>` variables, names in lower case. Empty ones are skipped.
pub fn load_environment() -> Keyring {
    let entries = std::env::vars_os()
        .filter_map(|(name, value)| {
            let name = name.to_str()?.strip_prefix("ATI_KEY_")?.to_lowercase();
            // The path of the one-shot key is configuration, not a credential.
            if name.is_empty() || name == "file" || value.is_empty() {
                return None;
            }
            Some((name, Secret::new(value.as_bytes()).ok()?))
        })
        .collect();
    Keyring::new(entries, Source::Environment)
}

/// Tries the keys in their order: a new one-shot key, those that are kept, the persistent one. A
/// key that can't be used is skipped; it is reported as a warning, or in the error where none opens
/// the keyring.
fn open(
    places: &Places,
    kept: &KeptKeys,
    path: &Path,
    sealed: &[u8],
    warnings: &mut Vec<Problem>,
) -> Result<Keyring, Problem> {
    let mut skipped = Vec::new();
    let fresh = match one_shot(places) {
        Ok(fresh) => fresh,
        Err(problem) => {
            skipped.push(problem);
            None
        }
    };
    if let Some(key) = &fresh {
        kept.add(key.clone());
    }
    let mut failure = None;
    for key in kept.newest_first() {
        match key.open(sealed) {
            Ok(plain) => {
                kept.opened_with(&key);
                warnings.extend(skipped);
                if fresh.is_some_and(|fresh| !fresh.is_same_as(&key)) {
                    warnings.push(waits(places));
                }
                return keyring_of(path, &plain, &key, Source::Sealed);
            }
            Err(error) => failure = Some(error.to_string()),
        }
    }
    match persistent(places, warnings) {
        Ok(Some(key)) => match key.open(sealed) {
            Ok(plain) => {
                warnings.extend(skipped);
                warnings.extend(fresh.map(|_| waits(places)));
                return keyring_of(path, &plain, &key, Source::Persistent);
            }
            Err(error) => failure = Some(error.to_string()),
        },
        Ok(None) => {}
        Err(problem) => skipped.push(problem),
    }
    let mut reasons: Vec<String> = failure.into_iter().collect();
    reasons.extend(skipped.iter().map(ToString::to_string));
    if reasons.is_empty() {
        reasons.push(format!(
            "there is no key to open it: neither {} nor {} exists",
            places.one_shot.display(),
            places.persistent_key().display()
        ));
    }
    Err(Problem::new(reasons.join("; ")).file(path))
}

fn keyring_of(
    path: &Path,
    plain: &Locked,
    key: &SessionKey,
    source: Source,
) -> Result<Keyring, Problem> {
    let entries = entries::parse(plain.as_slice()).map_err(|e| {
        let problem = malformed(path, &e);
        Problem {
            message: format!("decrypted, but its content is {}", problem.message),
            ..problem
        }
    })?;
    Ok(Keyring::new(entries, source).sealed_with(key))
}

/// The operator may have written the key before the keyring that it is for.
fn waits(places: &Places) -> Problem {
    let message = "this one-shot key doesn't open keyring.enc, which another key opens; it is \
        kept in memory for the next keyring.enc";
    Problem::new(message).file(&places.one_shot)
}

/// Opens, unlinks, then reads: without a name, no other process can read it.
fn one_shot(places: &Places) -> Result<Option<SessionKey>, Problem> {
    let path = &places.one_shot;
    let mut file = match files::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(unreadable(path, &e)),
    };
    if places.consume {
        fs::remove_file(path).map_err(|e| {
            Problem::new(format!("the one-shot key can't be removed: {e}")).file(path)
        })?;
    }
    let text = Locked::read(&mut file, LIMIT).map_err(|e| unreadable(path, &e))?;
    parse_session_key(path, text.as_slice()).map(Some)
}

fn persistent(places: &Places, warnings: &mut Vec<Problem>) -> Result<Option<SessionKey>, Problem> {
    let path = places.persistent_key();
    let Some(text) = read(&path)? else {
        return Ok(None);
    };
    warn_if_public(&path, warnings);
    parse_session_key(&path, text.as_slice()).map(Some)
}

fn parse_session_key(path: &Path, text: &[u8]) -> Result<SessionKey, Problem> {
    SessionKey::from_base64(text)
        .ok_or_else(|| Problem::new("not a session key (base64 of 32 bytes)").file(path))
}

/// `@file:/path` values stand for the trimmed content of that file.
fn follow_references(
    path: &Path,
    mut entries: BTreeMap<String, Secret>,
) -> Result<BTreeMap<String, Secret>, Problem> {
    for (name, secret) in &mut entries {
        let Some(reference) = secret.expose().strip_prefix(FILE_REFERENCE) else {
            continue;
        };
        let target = Path::new(std::ffi::OsStr::from_bytes(reference));
        let value = Locked::read_file(target, LIMIT)
            .and_then(|content| Secret::new(content.as_slice().trim_ascii()))
            .map_err(|e| {
                Problem::new(format!("{} can't be read: {e}", target.display()))
                    .file(path)
                    .key(name.clone())
            })?;
        *secret = value;
    }
    Ok(entries)
}

fn read(path: &Path) -> Result<Option<Locked>, Problem> {
    match Locked::read_file(path, LIMIT) {
        Ok(content) => Ok(Some(content)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(unreadable(path, &e)),
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Problem {
    Problem::new(format!("can't be read: {error}")).file(path)
}

fn malformed(path: &Path, error: &Malformed) -> Problem {
    Problem::new(error.to_string()).file(path)
}

fn warn_if_public(path: &Path, warnings: &mut Vec<Problem>) {
    let Ok(metadata) = fs::metadata(path) else {
        return;
    };
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o007 != 0 {
        warnings.push(
            Problem::new(format!(
                "open to every user of this machine (mode {mode:04o}); chmod 600 it"
            ))
            .file(path),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const JSON: &str = r#"{"api_key":"sk-1","multi":"a\nb"}"#;

    struct Fixture {
        dir: TempDir,
        places: Places,
    }

    fn fixture() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let places = Places {
            dir: dir.path().to_path_buf(),
            one_shot: dir.path().join("one-shot"),
            consume: true,
        };
        Fixture { dir, places }
    }

    impl Fixture {
        fn write(&self, name: &str, content: &[u8]) {
            crate::files::write_atomic(&self.dir.path().join(name), content, 0o600).unwrap();
        }

        fn seal(&self, key: &SessionKey) {
            self.write("keyring.enc", &key.seal(JSON.as_bytes()).unwrap());
        }

        fn load(&self) -> Result<Loaded, Problem> {
            load(&self.places, &KeptKeys::default(), Fallback::Refuse)
        }
    }

    fn value<'a>(keyring: &'a Keyring, name: &str) -> &'a [u8] {
        keyring.get(name).unwrap().expose()
    }

    #[test]
    fn one_shot_key_is_used_once_and_kept_in_memory() {
        let f = fixture();
        let key = SessionKey::generate().unwrap();
        f.seal(&key);
        f.write("one-shot", key.to_base64().as_bytes());
        let kept = KeptKeys::default();
        let first = load(&f.places, &kept, Fallback::Refuse).unwrap();
        assert_eq!(first.keyring.source(), Source::Sealed);
        assert_eq!(value(&first.keyring, "multi"), b"a\nb");
        assert!(!f.places.one_shot.exists());

        assert!(
            f.load()
                .err()
                .unwrap()
                .message
                .contains("no key to open it")
        );
        let again = load(&f.places, &kept, Fallback::Refuse).unwrap();
        assert_eq!(again.keyring.source(), Source::Sealed);
    }

    #[test]
    fn one_shot_key_that_comes_before_its_keyring_is_kept_for_it() {
        let f = fixture();
        let (old, new) = (
            SessionKey::generate().unwrap(),
            SessionKey::generate().unwrap(),
        );
        let kept = KeptKeys::default();
        let load = || load(&f.places, &kept, Fallback::Refuse);
        f.seal(&old);
        f.write("one-shot", old.to_base64().as_bytes());
        assert!(load().unwrap().warnings.is_empty());
        // The next key, and a load before its keyring is there.
        f.write("one-shot", new.to_base64().as_bytes());
        let between = load().unwrap();
        assert!(!f.places.one_shot.exists());
        let warning = between.warnings[0].to_string();
        assert!(
            warning.contains("one-shot: this one-shot key doesn't open"),
            "{warning}"
        );
        f.seal(&new);
        assert!(load().unwrap().warnings.is_empty());
        // The same where the load in between fails, because none of the keys fits.
        let third = SessionKey::generate().unwrap();
        f.seal(&SessionKey::generate().unwrap());
        f.write("one-shot", third.to_base64().as_bytes());
        assert!(load().is_err());
        f.seal(&third);
        assert_eq!(load().unwrap().keyring.source(), Source::Sealed);
    }

    #[test]
    fn one_shot_key_stays_where_nothing_is_consumed() {
        let mut f = fixture();
        f.places.consume = false;
        let key = SessionKey::generate().unwrap();
        f.seal(&key);
        f.write("one-shot", key.to_base64().as_bytes());
        f.load().unwrap();
        assert!(f.places.one_shot.exists());
    }

    #[test]
    fn wrong_one_shot_key_is_skipped_for_the_persistent_one() {
        let f = fixture();
        let key = SessionKey::generate().unwrap();
        f.seal(&key);
        let other = SessionKey::generate().unwrap();
        f.write("one-shot", other.to_base64().as_bytes());
        f.write(
            ".keyring-key",
            format!("{}\n", key.to_base64().as_str()).as_bytes(),
        );
        assert_eq!(f.load().unwrap().keyring.source(), Source::Persistent);
    }

    #[test]
    fn malformed_key_is_skipped_with_a_warning() {
        let f = fixture();
        let key = SessionKey::generate().unwrap();
        f.seal(&key);
        f.write("one-shot", b"nonsense");
        f.write(".keyring-key", key.to_base64().as_bytes());
        let loaded = f.load().unwrap();
        assert_eq!(loaded.keyring.source(), Source::Persistent);
        assert!(
            loaded.warnings[0]
                .to_string()
                .contains("one-shot: not a session key")
        );
        f.write("one-shot", key.to_base64().as_bytes());
        f.write(".keyring-key", b"nonsense");
        assert_eq!(f.load().unwrap().keyring.source(), Source::Sealed);
    }

    #[test]
    fn defective_keyring_is_refused_with_its_own_message() {
        let f = fixture();
        let key = SessionKey::generate().unwrap();
        f.write(".keyring-key", key.to_base64().as_bytes());
        let message = |f: &Fixture| f.load().err().unwrap().to_string();

        f.write("keyring.enc", b"short");
        assert!(message(&f).contains("keyring.enc: truncated: 5 bytes"));
        f.seal(&SessionKey::generate().unwrap());
        assert!(message(&f).contains("sealed with another key"));
        f.write("keyring.enc", &key.seal(b"[1]").unwrap());
        assert!(message(&f).contains("decrypted, but its content is not a JSON object"));
        f.seal(&key);
        f.write(".keyring-key", b"nonsense");
        assert!(message(&f).contains(".keyring-key: not a session key"));
    }

    #[test]
    fn keyring_that_does_not_open_falls_back_only_where_allowed() {
        let f = fixture();
        f.seal(&SessionKey::generate().unwrap());
        f.write("credentials", br#"{"k":"v"}"#);
        assert!(f.load().is_err());
        let kept = KeptKeys::default();
        let empty = load(&f.places, &kept, Fallback::Empty).unwrap();
        assert!(empty.keyring.is_empty() && empty.warnings.len() == 1);
        let cli = load(&f.places, &kept, Fallback::Credentials).unwrap();
        assert_eq!(value(&cli.keyring, "k"), b"v");
    }

    #[test]
    fn credentials_with_file_references_read_those_files() {
        let f = fixture();
        let secret = f.dir.path().join("mounted");
        f.write("mounted", b"  from-file\n");
        let text = serde_json::json!({"a": format!("@file:{}", secret.display()), "b": "plain"});
        f.write("credentials", text.to_string().as_bytes());
        let loaded = f.load().unwrap();
        assert_eq!(value(&loaded.keyring, "a"), b"from-file");

        fs::remove_file(secret).unwrap();
        let problem = f.load().err().unwrap().to_string();
        assert!(
            problem.contains("a: ") && problem.contains("can't be read"),
            "{problem}"
        );
    }

    #[test]
    fn world_readable_file_is_reported() {
        let f = fixture();
        f.write("credentials", b"{}");
        assert!(f.load().unwrap().warnings.is_empty());
        let path = f.places.credentials();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let warnings = f.load().unwrap().warnings;
        assert!(warnings[0].to_string().contains("mode 0644"));
    }

    #[test]
    fn keyring_without_any_file_is_empty() {
        assert_eq!(fixture().load().unwrap().keyring.source(), Source::Empty);
    }
}
