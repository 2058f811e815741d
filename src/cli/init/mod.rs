//! `ati init`: the ATI folder, a signing key for session tokens, and an example to try.

mod example;

use std::io::ErrorKind;
use std::path::Path;

use serde_json::json;
use tracing::{info, warn};
use zeroize::Zeroizing;

use super::{Format, output};
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
    /// Also make a key to sign session tokens with
    #[arg(long)]
    proxy: bool,

    /// With --proxy: make an ES256 (P-256) key pair instead of a shared HS256 secret
    #[arg(long, requires = "proxy")]
    es256: bool,

    /// Also write a tool and a route to try, with a made-up credential and a signing key for
    /// tokens, and print what to type next; files that exist are kept
    #[arg(long)]
    example: bool,

    /// Replace an existing config.toml and signing key; the old files are kept as *.bak
    #[arg(long)]
    force: bool,
}

/// What to type next, with a title for each group of lines.
type Next = &'static [(&'static str, &'static [&'static str])];

const NEXT: Next = &[
    ("A tool and a route to try", &["ati init --example"]),
    (
        "Tools of an OpenAPI document, or of an MCP server, and the key of an API",
        &[
            "ati provider import-openapi <URL>",
            "ati provider add-mcp <NAME> --transport http --url <URL>",
            "ati key set <NAME> -",
        ],
    ),
];
const NEXT_PROXY: Next = &[
    (
        "A token for a caller",
        &["ati token issue --sub <WHO> --scope 'tool:*'"],
    ),
    (
        "What the proxy would load, and the proxy",
        &["ati check", "ati proxy"],
    ),
];

/// Create the folders and a config.toml where they are missing. Best effort: a read-only folder is
/// no reason for a command to fail.
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
    // A config.toml that can't be read isn't replaced: it may hold the signing key.
    let path = dir.join("config.toml");
    match std::fs::read(&path) {
        Ok(text) if text == STUB.as_bytes() && config != STUB => {}
        Ok(_) => return Ok(()),
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    files::write_atomic(&path, config.as_bytes(), 0o600)
}

pub fn run(args: &Args, asked: Option<Format>) -> Result<u8, Failure> {
    let dir = config::ati_dir();
    let failed = |e: std::io::Error| {
        let message = format!("{}: can't be written", dir.display());
        Failure::new(Code::ExecutionFailed, message).because(e)
    };
    skeleton(&dir, PLAIN).map_err(failed)?;
    if args.proxy {
        init_proxy(&dir, args).map_err(|e| match e {
            Stop::Io(e) => failed(e),
            Stop::Failure(failure) => failure,
        })?;
    }
    let mut next = vec![NEXT];
    if args.proxy {
        next.push(NEXT_PROXY);
    }
    if args.example {
        if !args.proxy && !has_signing_key(&dir.join("config.toml")) {
            make_signing_key(&dir)?;
        }
        example::write(&dir)?;
        next = vec![example::NEXT];
    }
    info!("initialized {}", dir.display());
    let groups = next.into_iter().flatten();
    if let Some(format) = asked {
        let lines: Vec<&&str> = groups.flat_map(|(_, lines)| *lines).collect();
        let done = json!({"status": "initialized", "dir": dir, "next": lines});
        output::value(&done, format);
        return Ok(0);
    }
    for (title, lines) in groups {
        output::note(&format!("\n{title}:\n\n  {}", lines.join("\n  ")));
    }
    Ok(0)
}

/// A signing key for the example, in a config.toml without settings.
fn make_signing_key(dir: &Path) -> Result<(), Failure> {
    let args = Args {
        proxy: true,
        es256: false,
        example: true,
        force: false,
    };
    match init_proxy(dir, &args) {
        Ok(()) => Ok(()),
        Err(Stop::Io(e)) => Err(Failure::from_error(Code::ExecutionFailed, e)),
        // Without a key there are no tokens, and the example's tool needs none.
        Err(Stop::Failure(_)) => {
            warn!(
                "kept {}: it has no key for tokens",
                dir.join("config.toml").display()
            );
            Ok(())
        }
    }
}

fn has_signing_key(config: &Path) -> bool {
    let text = std::fs::read_to_string(config).unwrap_or_default();
    let table = text.parse::<toml::Table>().unwrap_or_default();
    let proxy = table.get("proxy");
    proxy.is_some_and(|proxy| proxy.get("jwt").is_some())
}

/// Why no signing key was made.
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
        Stop::Failure(Failure::new(Code::ExecutionFailed, "no new key").because(e))
    }
}

/// Make a signing key and name it in config.toml. A key in use is never replaced without --force:
/// every token that was issued with it would stop working.
fn init_proxy(dir: &Path, args: &Args) -> Result<(), Stop> {
    let config = dir.join("config.toml");
    let existing = std::fs::read_to_string(&config)?;
    let private = dir.join("jwt-private.pem");
    let public = dir.join("jwt-public.pem");
    let untouched = existing
        .lines()
        .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    if !args.force {
        if has_signing_key(&config) {
            warn!(
                "kept the signing key of {}; --force makes a new one",
                config.display()
            );
            return Ok(());
        }
        let in_the_way = (!untouched).then_some(&config).or_else(|| {
            let keys = [&private, &public].into_iter();
            keys.filter(|_| args.es256).find(|path| path.exists())
        });
        if let Some(path) = in_the_way {
            return Err(Stop::Failure(
                Failure::invalid(format!("{} exists and would be replaced", path.display()))
                    .hint("--force replaces it and keeps the old one as *.bak"),
            ));
        }
    }
    if !untouched {
        set_aside(&config)?;
    }
    if args.es256 {
        set_aside(&private)?;
        set_aside(&public)?;
    }
    let text = if args.es256 {
        let key = PrivateKey::generate()?;
        files::write_atomic(&private, key.to_pem().as_bytes(), 0o600)?;
        files::write_atomic(&public, key.public().to_pem().as_bytes(), 0o644)?;
        Zeroizing::new(proxy_config(
            "algorithm = \"ES256\"\nprivate_key = \"jwt-private.pem\"\n\
             public_key = \"jwt-public.pem\"\n",
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

/// Rename to the first of `.bak`, `.bak.1`, `.bak.2`… that is free, so that no old key is lost.
fn set_aside(path: &Path) -> std::io::Result<()> {
    if !path.exists() {
        return Ok(());
    }
    for n in 0.. {
        let mut name = path.as_os_str().to_owned();
        name.push(".bak");
        if n > 0 {
            name.push(format!(".{n}"));
        }
        if !Path::new(&name).exists() {
            return std::fs::rename(path, name);
        }
    }
    Ok(())
}

fn proxy_config(jwt: &str) -> String {
    format!(
        "# ATI configuration\n\n[proxy]\nport = 8090\nbind = \"127.0.0.1\"\n\n[proxy.jwt]\n{jwt}"
    )
}
