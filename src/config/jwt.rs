//! The settings that name JWT keys, and the keys themselves. A setting that can't be used is a
//! problem; it never turns authentication off.

use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::auth::keys::{KEY_ID, KeyError, NamedKey, PrivateKey, PublicKey, shared_secret};
use crate::auth::token::{Expectations, VerificationKey};
use crate::error::Problem;

#[derive(Debug, Clone)]
pub struct JwtSettings {
    pub key: KeySource,
    pub expect: Expectations,
}

/// A verification key: the setting that names it, and its value.
#[derive(Clone)]
pub struct KeySource {
    setting: &'static str,
    file: Option<PathBuf>,
    material: Material,
}

#[derive(Clone)]
enum Material {
    PublicKey(PathBuf),
    Secret(Zeroizing<String>),
    SecretFile(PathBuf),
}

impl std::fmt::Debug for KeySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("KeySource").field(&self.setting).finish()
    }
}

impl KeySource {
    /// The file with the secret of HS256, which no program may read.
    pub fn secret_path(&self) -> Option<&Path> {
        match &self.material {
            Material::SecretFile(path) => Some(path),
            Material::PublicKey(_) | Material::Secret(_) => None,
        }
    }

    /// `file` is the file that has the setting, where it isn't an environment variable.
    pub(super) fn public_key(setting: &'static str, file: Option<PathBuf>, path: PathBuf) -> Self {
        KeySource {
            setting,
            file,
            material: Material::PublicKey(path),
        }
    }

    pub(super) fn secret_file(setting: &'static str, file: Option<PathBuf>, path: PathBuf) -> Self {
        KeySource {
            setting,
            file,
            material: Material::SecretFile(path),
        }
    }

    pub(super) fn secret(
        setting: &'static str,
        file: Option<PathBuf>,
        secret: Zeroizing<String>,
    ) -> Self {
        KeySource {
            setting,
            file,
            material: Material::Secret(secret),
        }
    }

    /// Reads the key.
    pub fn load(&self) -> Result<VerificationKey, Problem> {
        let result = match &self.material {
            Material::PublicKey(path) => read_public(path).map(VerificationKey::Es256),
            Material::Secret(text) => shared_secret(text.as_bytes())
                .map(VerificationKey::Hs256)
                .map_err(|e| e.to_string()),
            Material::SecretFile(path) => read(path).and_then(|text| {
                shared_secret(&text)
                    .map(VerificationKey::Hs256)
                    .map_err(|e| at(path, &e))
            }),
        };
        result.map_err(|message| {
            let message = format!("{message} (unset it to run without JWT authentication)");
            Problem {
                file: self.file.clone(),
                ..Problem::new(message).key(self.setting)
            }
        })
    }
}

/// A PEM file, a JWKS file, or a folder of PEM files, each named after its key. The first key is
/// for tokens that name none.
fn read_public(path: &Path) -> Result<Vec<NamedKey>, String> {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut files: Vec<PathBuf> = entries
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|ext| ext == "pem"))
            // Editors leave hidden files there, and reading a pipe would never end.
            .filter(|path| {
                !path
                    .file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with('.'))
            })
            .filter(|path| path.is_file())
            .collect();
        files.sort();
        if files.is_empty() {
            return Err(format!("{}: has no .pem file", path.display()));
        }
        return files
            .iter()
            .map(|file| {
                let key = PublicKey::from_pem(&read(file)?).map_err(|e| at(file, &e))?;
                let kid = file.file_stem().unwrap_or_default().to_string_lossy();
                Ok(NamedKey {
                    kid: kid.into_owned(),
                    key,
                })
            })
            .collect();
    }
    let text = read(path)?;
    if !text.trim_ascii_start().starts_with(b"{") {
        let key = PublicKey::from_pem(&text).map_err(|e| at(path, &e))?;
        return Ok(vec![key.into()]);
    }
    let wrong = |why: &str| format!("{}: {why}", path.display());
    let jwks: serde_json::Value = serde_json::from_slice(&text).map_err(|_| wrong("not JSON"))?;
    let listed = jwks["keys"]
        .as_array()
        .ok_or_else(|| wrong("a JWKS has a list 'keys'"))?;
    let keys: Vec<NamedKey> = listed
        .iter()
        .filter_map(|jwk| {
            let key = PublicKey::from_jwk(jwk)?;
            let kid = jwk["kid"].as_str().unwrap_or(KEY_ID).to_owned();
            Some(NamedKey { kid, key })
        })
        .collect();
    let mut names: Vec<&str> = keys.iter().map(|named| named.kid.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if names.len() < keys.len() {
        return Err(wrong("two keys have the same kid, or none has one"));
    }
    if keys.len() < listed.len() || keys.is_empty() {
        return Err(wrong("has a key that is not P-256 (ES256), or none at all"));
    }
    Ok(keys)
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    if path.as_os_str().is_empty() {
        return Err("set, but empty".to_owned());
    }
    crate::files::read(path)
        .map(Zeroizing::new)
        .map_err(|e| format!("{}: can't be read: {e}", path.display()))
}

fn at(path: &Path, error: &KeyError) -> String {
    format!("{}: {error}", path.display())
}

/// `[proxy.jwt]` of the `config.toml` that `ati init --proxy` writes. Its other tables aren't read.
struct ConfigToml {
    path: PathBuf,
    secret: Option<Zeroizing<String>>,
    public_key: Option<PathBuf>,
    private_key: Option<PathBuf>,
}

fn read_config_toml(ati_dir: &Path, problems: &mut Vec<Problem>) -> Option<ConfigToml> {
    let path = ati_dir.join("config.toml");
    if !path.exists() {
        return None;
    }
    let mut table = super::read_toml(&path, problems)?;
    let jwt = table
        .remove("proxy")
        .and_then(|proxy| proxy.as_table()?.get("jwt").cloned())?;
    let toml::Value::Table(mut jwt) = jwt else {
        problems.push(
            Problem::new("expected a table")
                .file(&path)
                .key("proxy.jwt"),
        );
        return None;
    };
    let mut text = |key: &str| match jwt.remove(key) {
        Some(toml::Value::String(value)) => Some(value),
        Some(_) => {
            let problem = Problem::new("expected a string").file(&path);
            problems.push(problem.key(format!("proxy.jwt.{key}")));
            None
        }
        None => None,
    };
    Some(ConfigToml {
        secret: text("secret").map(Zeroizing::new),
        public_key: text("public_key").map(|file| ati_dir.join(file)),
        private_key: text("private_key").map(|file| ati_dir.join(file)),
        path,
    })
}

/// The verification key that `config.toml` names.
pub(super) fn of_config_toml(ati_dir: &Path, problems: &mut Vec<Problem>) -> Option<KeySource> {
    let config = read_config_toml(ati_dir, problems)?;
    if let Some(path) = config.public_key {
        let setting = "proxy.jwt.public_key";
        return Some(KeySource::public_key(setting, Some(config.path), path));
    }
    let Some(secret) = config.secret else {
        // A misspelt key must not turn authentication off.
        let message = "names no key to verify with: neither secret nor public_key";
        problems.push(Problem::new(message).file(&config.path).key("proxy.jwt"));
        return None;
    };
    Some(KeySource::secret(
        "proxy.jwt.secret",
        Some(config.path),
        secret,
    ))
}

/// The private key that `ATI_JWT_PRIVATE_KEY` names, where it is set.
pub fn private_key_of_environment() -> Result<Option<PrivateKey>, Problem> {
    let path = std::env::var_os("ATI_JWT_PRIVATE_KEY").filter(|path| !path.is_empty());
    path.map(|path| read_private_key(Path::new(&path)))
        .transpose()
}

/// The private key that `config.toml` names, where it does.
pub fn private_key_of_config(ati_dir: &Path) -> Result<Option<PrivateKey>, Problem> {
    let mut problems = Vec::new();
    let config = read_config_toml(ati_dir, &mut problems);
    if let Some(problem) = problems.pop() {
        return Err(problem);
    }
    let path = config.and_then(|config| config.private_key);
    path.map(|path| read_private_key(&path)).transpose()
}

fn read_private_key(path: &Path) -> Result<PrivateKey, Problem> {
    read(path)
        .and_then(|text| PrivateKey::from_pem(&text).map_err(|e| at(path, &e)))
        .map_err(Problem::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(text: &str) -> (tempfile::TempDir, Option<KeySource>, Vec<Problem>) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.toml"), text).unwrap();
        let mut problems = Vec::new();
        let source = of_config_toml(dir.path(), &mut problems);
        (dir, source, problems)
    }

    #[test]
    fn config_toml_names_a_secret_or_a_public_key() {
        let (_dir, source, _) =
            key_of("[proxy]\nport = 1\n[proxy.jwt]\nalgorithm = 'HS256'\nsecret = '00ff'\n");
        assert!(matches!(
            source.unwrap().load(),
            Ok(VerificationKey::Hs256(_))
        ));
        let (dir, source, _) = key_of("[proxy.jwt]\npublic_key = 'jwt-public.pem'\n");
        let key = PrivateKey::generate().unwrap();
        std::fs::write(dir.path().join("jwt-public.pem"), key.public().to_pem()).unwrap();
        assert!(matches!(
            source.unwrap().load(),
            Ok(VerificationKey::Es256(_))
        ));
        assert!(key_of("# ATI configuration\n").1.is_none());
    }

    #[test]
    fn unusable_key_setting_is_always_a_problem() {
        let (_dir, source, _) = key_of("[proxy.jwt]\nsecret = ''\n");
        let problem = source.unwrap().load().unwrap_err().to_string();
        assert!(problem.contains("proxy.jwt.secret: empty"), "{problem}");
        let (_dir, _, problems) = key_of("[proxy.jwt]\nsecret = 5\n");
        assert!(
            problems[0]
                .to_string()
                .contains("proxy.jwt.secret: expected a string")
        );
        for text in [
            "[proxy.jwt]\nsecert = '00'\n",
            "[proxy.jwt]\nprivate_key = 'x'\n",
            "[proxy]\njwt = 'x'\n",
        ] {
            let (_dir, source, problems) = key_of(text);
            assert!(source.is_none() && !problems.is_empty(), "{text}");
        }
        let (_dir, _, problems) = key_of("[proxy.jwt\n");
        assert_eq!(problems.len(), 1);

        let empty = KeySource::public_key("ATI_JWT_PUBLIC_KEY", None, PathBuf::new());
        assert!(empty.load().unwrap_err().message.contains("set, but empty"));
        let garbled = KeySource::secret("ATI_JWT_SECRET", None, Zeroizing::new("s3cret!".into()));
        let problem = garbled.load().unwrap_err().to_string();
        assert!(problem.contains("ATI_JWT_SECRET: not valid hex"));
        assert!(!problem.contains("s3cret"));
    }
}
