//! What an operator sets: flags over environment over `--conf` over an existing `config.toml`, checked whole.

mod cached;
mod conf;
mod environment;
pub mod fields;
mod flags;
mod jwt;
mod listener;
mod manifest;
pub mod provider;
mod section;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use cached::path as cached_provider;
pub use environment::{Environment, VARIABLES, ati_dir};
pub use flags::Flags;
pub use jwt::{JwtSettings, KeySource, private_key_of_config, private_key_of_environment};
pub use listener::{
    Address, EDGE, Listener, MOST_LISTENERS, Peer, Tls, TrustedProxies, check as check_listeners,
};
pub use manifest::{
    LONGEST_PROVIDER_NAME, ManifestFile, Origin, is_provider_name, mcp_url_env, read_manifest,
    read_manifests, session_token_env,
};
pub use section::Section;

use crate::auth::signature::{self, Mode};
use crate::egress::{self, Guard};
use crate::error::Problem;
use crate::keyring::{Places, Secret};
use crate::pattern::Pattern;

/// Beside the manifests, unless `ATI_AUDIT_FILE` says otherwise.
pub const AUDIT_FILE: &str = "audit.jsonl";

/// In a folder of its own, which nobody else may enter.
const UPGRADE_SOCKET: &str = "run/upgrade.sock";

/// Everything that the server needs to know, checked. Secrets and keys are named here, not held.
#[derive(Debug, Clone)]
pub struct Settings {
    pub ati_dir: PathBuf,
    pub conf: Option<PathBuf>,
    /// The edge first, then the conf file's.
    pub listeners: Vec<Listener>,
    pub trusted_proxies: TrustedProxies,
    pub admin: Option<SocketAddr>,
    /// Where a successor asks for the listeners.
    pub upgrade_socket: PathBuf,
    pub ready_file: Option<PathBuf>,
    pub workers: usize,
    pub drain: Duration,
    pub keyring: KeyringSettings,
    pub passthrough: bool,
    /// Whether requests to routes' upstreams carry their request id.
    pub forward_request_id: bool,
    pub egress: egress::Settings,
    pub guard: Guard,
    pub tools: ToolSettings,
    pub audit_file: PathBuf,
    pub signature: signature::Settings,
    pub jwt: Option<JwtSettings>,
    pub admin_token: Option<Secret>,
    pub limits: Limits,
    pub log: LogSettings,
    /// Worth an operator's attention, and no reason not to start.
    pub warnings: Vec<Problem>,
}

/// What holds where nothing is set.
impl Default for Settings {
    fn default() -> Self {
        let env = Environment::default();
        Settings {
            ati_dir: env.ati_dir.clone(),
            conf: None,
            listeners: Vec::new(),
            trusted_proxies: TrustedProxies::default(),
            admin: None,
            upgrade_socket: PathBuf::new(),
            ready_file: None,
            workers: cores(),
            drain: Duration::from_secs(30),
            keyring: KeyringSettings {
                places: Places {
                    dir: env.ati_dir,
                    one_shot: env.key_file,
                    consume: true,
                },
                from_environment: false,
                allow_empty: false,
            },
            passthrough: false,
            forward_request_id: false,
            egress: egress::Settings::default(),
            guard: Guard::Off,
            tools: ToolSettings::default(),
            audit_file: PathBuf::from(AUDIT_FILE),
            signature: signature::Settings {
                mode: Mode::Log,
                drift_seconds: 60,
                exempt: signature::DEFAULT_EXEMPT.map(Pattern::new).to_vec(),
            },
            jwt: None,
            admin_token: None,
            limits: Limits::default(),
            log: LogSettings::default(),
            warnings: Vec::new(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 8_192,
            requests_in_flight: 5_000,
            header: Duration::from_secs(10),
            keepalive: Duration::from_secs(60),
            stall: Duration::from_secs(60),
        }
    }
}

impl Default for ToolSettings {
    fn default() -> Self {
        ToolSettings {
            max_call_bytes: 16 << 20,
            max_response_bytes: 64 << 20,
            timeout: Duration::from_secs(60),
        }
    }
}

impl Default for LogSettings {
    fn default() -> Self {
        LogSettings {
            access: true,
            signatures: true,
        }
    }
}

#[derive(Debug, Clone)]
pub struct KeyringSettings {
    pub places: Places,
    pub from_environment: bool,
    pub allow_empty: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    pub connections: usize,
    pub requests_in_flight: usize,
    /// From the first byte of a connection, or from the end of a keep-alive pause, to the end of the header.
    pub header: Duration,
    /// How long an idle connection is kept.
    pub keepalive: Duration,
    /// A caller that takes or sends no byte for so long is gone.
    pub stall: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSettings {
    /// The body of a `/call`.
    pub max_call_bytes: usize,
    /// What an upstream may answer to a tool.
    pub max_response_bytes: usize,
    /// For one call, everything included.
    pub timeout: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// One line per request.
    pub access: bool,
    /// One line per signature checked.
    pub signatures: bool,
}

/// Put the layers together. Every problem is reported, not only the first.
pub fn resolve(flags: &Flags, env: &Environment) -> Result<Settings, Vec<Problem>> {
    let mut problems = env.problems.clone();
    let ati_dir = flags.ati_dir.clone().unwrap_or_else(|| env.ati_dir.clone());
    let file = conf::read(flags.conf.as_deref(), &mut problems);
    let legacy = jwt::legacy(&ati_dir, &mut problems);
    let mut warnings = env.warnings.clone();

    if env.database_url {
        problems.push(
            Problem::new(
                "persistence is not part of this build: unset it, or rebuild with --features db where a version has it",
            )
            .key("ATI_DB_URL"),
        );
    } else if flags.migrate {
        warnings.push(Problem::new("there is no database to migrate").key("--migrate"));
    }

    let bind = flags.bind.clone().or(file.bind).unwrap_or_default();
    let ip = parse_ip(&bind).unwrap_or_else(|| {
        problems.push(
            Problem::new(format!(
                "'{bind}' is not an IP address (host names are not resolved here)"
            ))
            .key("--bind"),
        );
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    });
    let port = flags.port.or(file.port).unwrap_or(8090);
    let admin = flags.admin.clone().or(file.admin).and_then(|text| {
        text.parse().map_or_else(
            |_| {
                let message = format!("'{text}' is not an address and port, like 127.0.0.1:9090");
                problems.push(Problem::new(message).key("--admin"));
                None
            },
            Some,
        )
    });

    let mut listeners = vec![Listener {
        name: EDGE.to_owned(),
        address: Address::Tcp(SocketAddr::new(ip, port)),
        proxy_protocol: file.proxy_protocol.unwrap_or(false),
        tls: file.tls,
    }];
    listeners.extend(file.listeners);
    let in_conf = |message: String| Problem {
        file: flags.conf.clone(),
        ..Problem::new(message)
    };
    let trusted_proxies = TrustedProxies::parse(&file.trusted_proxies.unwrap_or_default())
        .unwrap_or_else(|message| {
            problems.push(in_conf(message).key("server.trusted_proxies"));
            TrustedProxies::default()
        });
    let together = listener::check(&listeners, &trusted_proxies);
    problems.extend(together.into_iter().map(in_conf));

    let exempt: Option<Vec<String>> = match &flags.sig_exempt_paths {
        Some(csv) => {
            let patterns = csv.split(',').map(|pattern| pattern.trim().to_owned());
            Some(patterns.filter(|pattern| !pattern.is_empty()).collect())
        }
        None => file.exempt,
    };
    for pattern in exempt
        .iter()
        .flatten()
        .filter(|p| !p.starts_with(['/', '*']))
    {
        let message = format!("'{pattern}' can match no path: a pattern starts with / or *");
        problems.push(Problem::new(message).key("--sig-exempt-paths"));
    }

    problems.extend(file.egress.check().into_iter().map(|problem| Problem {
        file: flags.conf.clone(),
        ..problem
    }));

    let expect = env.expectations(file.issuer, file.audiences);
    let expect_issuer = expect.issuer.is_some();
    let jwt = env
        .jwt_key()
        .or(file.jwt_key)
        .or(legacy)
        .map(|key| JwtSettings { key, expect });

    if jwt.is_none() && (expect_issuer || env.private_key || env.audiences.is_some()) {
        warnings.push(Problem::new(
            "JWT settings are there, but no key to verify with: every caller is let in (ATI_JWT_PUBLIC_KEY or ATI_JWT_SECRET)",
        ));
    }

    let default = Settings::default();
    let seconds =
        |value: Option<u64>, default: Duration| value.map_or(default, Duration::from_secs);
    let settings = Settings {
        conf: flags.conf.clone(),
        listeners,
        trusted_proxies,
        admin,
        upgrade_socket: file
            .upgrade_socket
            .unwrap_or_else(|| ati_dir.join(UPGRADE_SOCKET)),
        ready_file: flags.ready_file.clone(),
        workers: file.workers.unwrap_or(default.workers),
        drain: seconds(file.drain, default.drain),
        keyring: KeyringSettings {
            places: Places {
                dir: ati_dir.clone(),
                one_shot: env.key_file.clone(),
                consume: true,
            },
            from_environment: flags.env_keys || file.env_keys.unwrap_or(false),
            allow_empty: flags.allow_empty_keyring || file.allow_empty.unwrap_or(false),
        },
        passthrough: flags.enable_passthrough || file.passthrough.unwrap_or(false),
        forward_request_id: file.forward_request_id.unwrap_or(false),
        egress: file.egress,
        guard: env.guard,
        tools: ToolSettings {
            max_call_bytes: file.max_call.unwrap_or(default.tools.max_call_bytes),
            max_response_bytes: file
                .max_response
                .unwrap_or(default.tools.max_response_bytes),
            timeout: seconds(file.tool_timeout, default.tools.timeout),
        },
        audit_file: env
            .audit_file
            .clone()
            .unwrap_or_else(|| ati_dir.join(AUDIT_FILE)),
        signature: signature::Settings {
            mode: flags
                .sig_verify_mode
                .or(file.mode)
                .unwrap_or(default.signature.mode),
            drift_seconds: flags
                .sig_drift_seconds
                .or(file.drift)
                .unwrap_or(default.signature.drift_seconds),
            exempt: exempt.map_or(default.signature.exempt, |patterns| {
                patterns
                    .iter()
                    .map(|pattern| Pattern::new(pattern))
                    .collect()
            }),
        },
        jwt,
        admin_token: env.admin_token.clone(),
        limits: Limits {
            connections: file.connections.unwrap_or(default.limits.connections),
            requests_in_flight: file
                .requests_in_flight
                .unwrap_or(default.limits.requests_in_flight),
            header: seconds(file.header, default.limits.header),
            keepalive: seconds(file.keepalive, default.limits.keepalive),
            stall: seconds(file.stall, default.limits.stall),
        },
        log: LogSettings {
            access: file.access_log.unwrap_or(default.log.access),
            signatures: file.signature_log.unwrap_or(default.log.signatures),
        },
        ati_dir,
        warnings,
    };
    if problems.is_empty() {
        Ok(settings)
    } else {
        Err(problems)
    }
}

/// A path in the conf file is relative to it.
fn beside(conf: &Path, path: &Path) -> PathBuf {
    conf.parent().unwrap_or(Path::new("")).join(path)
}

/// A TOML file as a table; what is wrong with it goes to `problems`.
pub fn read_toml(path: &Path, problems: &mut Vec<Problem>) -> Option<toml::Table> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) => {
            problems.push(Problem::new(format!("can't be read: {e}")).file(path));
            return None;
        }
    };
    parse_toml(&text)
        .map_err(|message| problems.push(Problem::new(message).file(path)))
        .ok()
}

/// The table, or which line is wrong.
fn parse_toml(text: &str) -> Result<toml::Table, String> {
    text.parse::<toml::Table>().map_err(|e| {
        let before = e.span().map_or("", |span| &text[..span.start]);
        format!("line {}: {}", 1 + before.matches('\n').count(), e.message())
    })
}

/// IPv6 with or without brackets. Nothing means loopback.
fn parse_ip(text: &str) -> Option<IpAddr> {
    if text.is_empty() {
        return Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let inner = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    inner.parse().ok()
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve_conf(text: &str) -> Result<Settings, Vec<Problem>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ati.toml");
        std::fs::write(&path, text).unwrap();
        let flags = Flags {
            conf: Some(path),
            ati_dir: Some(dir.path().to_path_buf()),
            ..Flags::default()
        };
        resolve(&flags, &Environment::default())
    }

    #[test]
    fn flags_win_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ati.toml");
        std::fs::write(
            &path,
            "[server]\nport = 1\nbind = '::1'\n[signature]\nmode = 'warn'",
        )
        .unwrap();
        let flags = Flags {
            port: Some(2),
            conf: Some(path),
            ati_dir: Some(dir.path().to_path_buf()),
            sig_verify_mode: Some(Mode::Enforce),
            ..Flags::default()
        };
        let settings = resolve(&flags, &Environment::default()).unwrap();
        assert_eq!(settings.listeners[0].address.to_string(), "[::1]:2");
        assert_eq!(settings.signature.mode, Mode::Enforce);
        assert_eq!(settings.signature.drift_seconds, 60);
    }

    #[test]
    fn all_problems_of_all_sections() {
        let problems = resolve_conf(
            "[server]\nport = 70000\nbind = 'localhost'\n[admin]\nlisten = 'x'\n[signature]\nmode = 'loud'\n\
             exempt_paths = ['health']\n[limits]\nconnections = 0\n[jwt]\naudiences = []\n[sever]\n",
        )
        .unwrap_err();
        let keys: Vec<String> = problems.iter().filter_map(|p| p.key.clone()).collect();
        assert_eq!(
            keys,
            [
                "server.port",
                "signature.mode",
                "jwt.audiences",
                "limits.connections",
                "sever",
                "--bind",
                "--admin",
                "--sig-exempt-paths"
            ]
        );
    }

    #[test]
    fn a_syntax_error_names_its_line() {
        let problems = resolve_conf("[server]\nport = \n").unwrap_err();
        assert!(
            problems[0].message.starts_with("line 2: "),
            "{}",
            problems[0]
        );
    }

    #[test]
    fn bind_takes_ip_literals() {
        for (text, ip) in [
            ("", "127.0.0.1"),
            ("0.0.0.0", "0.0.0.0"),
            ("[::]", "::"),
            ("::1", "::1"),
        ] {
            assert_eq!(parse_ip(text).unwrap().to_string(), ip);
        }
        assert_eq!(parse_ip("localhost"), None);
    }

    #[test]
    fn a_database_is_refused_rather_than_ignored() {
        let env = Environment {
            database_url: true,
            ..Environment::default()
        };
        let problems = resolve(&Flags::default(), &env).unwrap_err();
        assert!(
            problems[0]
                .to_string()
                .contains("rebuild with --features db")
        );
    }
}
