use std::path::Path;

use tracing::{info, warn};
use zeroize::Zeroizing;

use crate::auth::keys::{KeyError, PrivateKey, generate_secret};
use crate::config;
use crate::error::{Code, Failure};
use crate::files;

const STUB: &str = "# ATI configuration\n";
const PLAIN: &str = "\
# ATI configuration
#
# [proxy]
# port = 8090
# bind = \"127.0.0.1\"
";

#[derive(clap::Args)]
pub struct Args {
    /// Also make a key that session tokens are signed with
    #[arg(long)]
    proxy: bool,

    /// With --proxy: a P-256 key pair instead of a shared secret
    #[arg(long, requires = "proxy")]
    es256: bool,

    /// Replace an existing config.toml and signing key; the old files are kept as *.bak
    #[arg(long)]
    force: bool,
}

/// What every command finds: the folders and a config.toml. Best effort: not every machine may be written to.
pub fn ensure(dir: &Path) {
    if dir.join("manifests").is_dir() {
        return;
    }
    let _ = skeleton(dir, STUB);
}

fn skeleton(dir: &Path, config: &str) -> std::io::Result<()> {
    for folder in ["manifests", "specs", "skills"] {
        files::create_private_dir(&dir.join(folder))?;
    }
    let path = dir.join("config.toml");
    match std::fs::read_to_string(&path) {
        Ok(text) if text != STUB => Ok(()),
        _ => files::write_atomic(&path, config.as_bytes(), 0o600),
    }
}

pub fn run(args: &Args) -> Result<u8, Failure> {
    let dir = config::ati_dir();
    let failed = |e: std::io::Error| {
        Failure::new(
            Code::ExecutionFailed,
            format!("{}: can't be written: {e}", dir.display()),
        )
    };
    skeleton(&dir, PLAIN).map_err(failed)?;
    if args.proxy {
        init_proxy(&dir, args).map_err(|e| match e {
            Stop::Io(e) => failed(e),
            Stop::Failure(failure) => failure,
        })?;
    }
    info!(dir = %dir.display(), "initialized");
    Ok(0)
}

enum Stop {
    Io(std::io::Error),
    Failure(Failure),
}

impl From<std::io::Error> for Stop {
    fn from(e: std::io::Error) -> Self {
        Stop::Io(e)
    }
}

impl From<KeyError> for Stop {
    fn from(e: KeyError) -> Self {
        Stop::Failure(Failure::new(
            Code::ExecutionFailed,
            format!("no new key: {e}"),
        ))
    }
}

/// A signing key in use is never replaced silently: every token in the field would stop working.
fn init_proxy(dir: &Path, args: &Args) -> Result<(), Stop> {
    let config = dir.join("config.toml");
    let existing = std::fs::read_to_string(&config).unwrap_or_default();
    let private = dir.join("jwt-private.pem");
    let public = dir.join("jwt-public.pem");
    if !args.force {
        let has_key = existing.parse::<toml::Table>().is_ok_and(|table| {
            table
                .get("proxy")
                .is_some_and(|proxy| proxy.get("jwt").is_some())
        });
        if has_key {
            warn!(file = %config.display(), "kept the signing key that is there; --force makes a new one");
            return Ok(());
        }
        let untouched = existing
            .lines()
            .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
        if !untouched || (args.es256 && private.exists()) {
            let path = if untouched { &private } else { &config };
            return Err(Stop::Failure(
                Failure::invalid(format!("{} exists and would be replaced", path.display()))
                    .hint("--force replaces it and keeps the old one as *.bak"),
            ));
        }
    }
    for path in [&config, &private, &public] {
        if path.exists() {
            let mut backup = path.clone().into_os_string();
            backup.push(".bak");
            std::fs::rename(path, backup)?;
        }
    }
    let text = if args.es256 {
        let key = PrivateKey::generate()?;
        files::write_atomic(&private, key.to_pem().as_bytes(), 0o600)?;
        files::write_atomic(&public, key.public().to_pem().as_bytes(), 0o644)?;
        Zeroizing::new(proxy_config(
            "algorithm = \"ES256\"\nprivate_key = \"jwt-private.pem\"\npublic_key = \"jwt-public.pem\"\n",
        ))
    } else {
        let secret = generate_secret()?;
        Zeroizing::new(proxy_config(&format!(
            "algorithm = \"HS256\"\nsecret = \"{}\"\n",
            secret.as_str()
        )))
    };
    files::write_atomic(&config, text.as_bytes(), 0o600)?;
    Ok(())
}

fn proxy_config(jwt: &str) -> String {
    format!(
        "# ATI configuration\n\n[proxy]\nport = 8090\nbind = \"127.0.0.1\"\n\n[proxy.jwt]\n{jwt}"
    )
}
