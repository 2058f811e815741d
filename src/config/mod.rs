//! The settings: flags over environment over the conf file over `config.toml`, all checked at once.
//! And the manifests, as far as every handler needs them.

mod cached;
mod conf;
mod environment;
pub mod fields;
mod flags;
mod handler;
mod jwt;
mod lines;
mod manifest;
mod master_keys;
mod otlp;
mod paths;
pub mod provider;
mod section;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use cached::{CachedProvider, path as cached_provider};
pub use conf::ToolSettings;
pub use conf::listener::{
    Address, EDGE, Listener, MOST_LISTENERS, Peer, Tls, TrustedProxies, check as check_listeners,
};
pub use conf::{
    AssistSettings, AuditSettings, FileSettings, KeyringSettings, Limits, LogFormat, LogSettings,
    McpSettings, SkillRegistrySettings, SkillsOffer, StoreSettings,
};
pub use environment::{Environment, VARIABLES};
pub use flags::Flags;
pub use handler::HandlerKind;
pub use jwt::{JwtSettings, KeySource, private_key_of_config, private_key_of_environment};
pub use lines::add_lines;
pub use manifest::{
    LONGEST_PROVIDER_NAME, ManifestFile, Origin, is_provider_name, mcp_url_env, read_manifest,
    read_manifests, session_token_env,
};
pub use otlp::OtlpVariables;
pub use paths::{agent_tools, ati_dir, cmp_folders, expanded_path, with_home};
pub use section::{Section, nearest, offer};

use conf::{Conf, ServerSettings, default_upgrade_socket};

use crate::auth::signature;
use crate::egress::{self, Guard};
use crate::error::Problem;
use crate::keyring::Secret;
use crate::keyring::stored::MasterKeys;
use crate::policy::Policy;
use crate::store;

/// Below `ati_dir`, unless `ATI_AUDIT_FILE` names another file.
pub const AUDIT_FILE: &str = "audit.jsonl";

/// Everything that the server needs to know, checked. Credentials and verification keys are named
/// here and loaded with the snapshot; the admin token and the database's URL are the secrets that
/// are held here.
#[derive(Debug, Clone)]
pub struct Settings {
    pub ati_dir: PathBuf,
    pub conf: Option<PathBuf>,
    /// The main listener first, then the conf file's.
    pub listeners: Vec<Listener>,
    pub trusted_proxies: TrustedProxies,
    pub admin: Option<SocketAddr>,
    /// Whether callers' listeners have `/admin/keys`, too.
    pub keys_on_edge: bool,
    /// Tools may be open to every caller beyond loopback: the operator said so.
    pub insecure: bool,
    /// Where a successor asks for the listeners.
    pub upgrade_socket: PathBuf,
    pub ready_file: Option<PathBuf>,
    pub workers: usize,
    pub drain: Duration,
    pub keyring: KeyringSettings,
    pub passthrough: bool,
    /// Whether requests to routes' upstreams carry their request id.
    pub forward_request_id: bool,
    /// Whether plain requests take the short way.
    pub short_way: bool,
    pub egress: egress::Settings,
    pub guard: Guard,
    pub tools: ToolSettings,
    pub files: FileSettings,
    pub audit_file: PathBuf,
    pub signature: signature::Settings,
    pub jwt: Option<JwtSettings>,
    pub admin_token: Option<Secret>,
    /// What credentials in the database are encrypted with.
    pub master_keys: Arc<MasterKeys>,
    /// The store. None: there is none.
    pub database_url: Option<Secret>,
    /// The start makes the store's tables.
    pub migrate: bool,
    pub store: StoreSettings,
    pub limits: Limits,
    pub log: LogSettings,
    pub audit: AuditSettings,
    pub mcp: McpSettings,
    pub skill_registry: SkillRegistrySettings,
    pub assist: AssistSettings,
    /// What callers may do, by what tools do.
    pub policy: Policy,
    /// For the operator to read; none of them stops a start.
    pub warnings: Vec<Problem>,
}

/// What holds where nothing is set.
impl Default for Settings {
    fn default() -> Self {
        let (flags, env) = (Flags::default(), Environment::default());
        compose(Conf::default(), None, &flags, &env, &mut Vec::new())
    }
}

/// Reads the conf file and config.toml, and puts all settings together. Every problem is reported,
/// not only the first.
pub fn resolve(flags: &Flags, env: &Environment) -> Result<Settings, Vec<Problem>> {
    let mut problems = env.problems.clone();
    problems.extend(missing_ati_dir(flags, env));
    let conf = Conf::read(flags.conf.as_deref(), &mut problems);
    let of_config_toml = jwt::of_config_toml(&ati_dir_of(flags, env), &mut problems);
    let settings = compose(conf, of_config_toml, flags, env, &mut problems);
    if problems.is_empty() {
        Ok(settings)
    } else {
        add_lines(&mut problems);
        Err(problems)
    }
}

/// A folder that was named has to be there. An empty one in its place would have no token keys, and
/// a typo in a unit would let every caller in.
fn missing_ati_dir(flags: &Flags, env: &Environment) -> Option<Problem> {
    let (dir, named_by) = match &flags.ati_dir {
        Some(dir) => (dir, "--ati-dir"),
        None if env.ati_dir_named => (&env.ati_dir, "ATI_DIR"),
        None => return None,
    };
    let shown = dir.display();
    let message = match std::fs::metadata(dir) {
        Ok(found) if found.is_dir() => return None,
        Ok(_) => format!("{shown} is not a folder"),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            format!("there is no folder {shown}; to make it: ATI_DIR={shown} ati init")
        }
        Err(e) => format!("the folder {shown} can't be used: {e}"),
    };
    let fix = format!("mend the name, or make the folder: ATI_DIR={shown} ati init");
    let problem = Problem::new(message).key(named_by);
    Some(problem.advice("settings", fix))
}

/// Flags over environment over conf file over the key of config.toml.
fn compose(
    conf: Conf,
    of_config_toml: Option<KeySource>,
    flags: &Flags,
    env: &Environment,
    problems: &mut Vec<Problem>,
) -> Settings {
    let mut warnings = env.warnings.clone();
    let path = flags.conf.as_deref();
    let ati_dir = ati_dir_of(flags, env);
    let files = conf.files.resolve();
    if env.max_captured_bytes > files.spool_bytes {
        let message = "it is more than [files] spool_bytes, beyond which every file is refused";
        warnings.push(Problem::new(message).key("ATI_CLI_MAX_OUTPUT_BYTES"));
    }
    if flags.migrate && env.database_url.is_none() {
        let message = "there is no database to migrate: ATI_DB_URL isn't set";
        warnings.push(Problem::new(message).key("--migrate"));
    }
    if let Some(Err(e)) = env.database_url.as_ref().map(store::check_url) {
        problems.push(Problem::new(e.to_string()).about("ATI_DB_URL"));
    }
    let keys_on_edge = conf.admin.keys_on_edge.unwrap_or(true);
    let ServerSettings {
        listeners,
        trusted_proxies,
        admin,
        insecure,
        upgrade_socket,
        workers,
        drain,
    } = conf
        .server
        .resolve(conf.listeners, conf.admin, flags, &ati_dir, problems);
    if !keys_on_edge && admin.is_none() {
        let message = "keys can be administered nowhere: there is no admin listener";
        warnings.push(Problem::new(message).key("admin.keys_on_edge"));
    }
    Settings {
        conf: flags.conf.clone(),
        listeners,
        trusted_proxies,
        admin,
        keys_on_edge,
        insecure: insecure || env.insecure,
        upgrade_socket,
        ready_file: flags.ready_file.clone(),
        workers,
        drain,
        keyring: conf.keyring.resolve(flags, env, &ati_dir),
        passthrough: flags.enable_passthrough || conf.passthrough.enabled.unwrap_or(false),
        forward_request_id: conf.passthrough.forward_request_id.unwrap_or(false),
        short_way: env.short_way,
        signature: conf.signature.resolve(flags, problems),
        egress: egress::Settings {
            downloads: env.downloads.clone(),
            ..conf.egress.resolve(path, problems)
        },
        guard: env.guard,
        tools: ToolSettings {
            max_captured_bytes: env.max_captured_bytes,
            ..conf.tools.resolve()
        },
        files,
        audit_file: env
            .audit_file
            .clone()
            .unwrap_or_else(|| ati_dir.join(AUDIT_FILE)),
        jwt: conf.jwt.resolve(env, path, of_config_toml, &mut warnings),
        admin_token: env.admin_token.clone(),
        master_keys: env.master_keys.clone(),
        database_url: env.database_url.clone(),
        migrate: flags.migrate,
        store: conf.store.resolve(),
        limits: conf.limits.resolve(),
        log: conf.log.resolve(),
        audit: conf.audit.resolve(),
        mcp: conf.mcp.resolve(path, problems),
        skill_registry: conf.skill_registry.resolve(&env.skill_registry),
        assist: conf.assist.resolve(),
        policy: conf.policy.resolve(),
        ati_dir,
        warnings,
    }
}

/// How the log of a server looks. Asked before anything else, because what is wrong with the
/// settings is logged: a conf file that can't be read is reported later, and ignored here.
pub fn log_format(flags: &Flags) -> LogFormat {
    let of_conf = || {
        Conf::read(flags.conf.as_deref(), &mut Vec::new())
            .log
            .format
    };
    flags.log_format.or_else(of_conf).unwrap_or_default()
}

/// Where the proxy with this folder and conf file listens for `ati status` and `ati reload`, and
/// what is wrong with the conf file, which may have been right when the proxy started.
pub fn upgrade_socket(ati_dir: &Path, conf: Option<&Path>) -> (PathBuf, Vec<Problem>) {
    let mut problems = Vec::new();
    let set = Conf::read(conf, &mut problems).server.upgrade_socket;
    let path = set.unwrap_or_else(|| default_upgrade_socket(ati_dir));
    (path, problems)
}

fn ati_dir_of(flags: &Flags, env: &Environment) -> PathBuf {
    flags.ati_dir.clone().unwrap_or_else(|| env.ati_dir.clone())
}

/// Reads a TOML file as a table.
pub fn read_toml(path: &Path, problems: &mut Vec<Problem>) -> Option<toml::Table> {
    let text = match crate::files::read_text(path) {
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

/// The table, or a message with the line of the mistake.
fn parse_toml(text: &str) -> Result<toml::Table, String> {
    text.parse::<toml::Table>().map_err(|e| {
        let before = e.span().map_or("", |span| &text[..span.start]);
        format!("line {}: {}", 1 + before.matches('\n').count(), e.message())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::signature::Mode;

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
    fn flags_win_over_the_conf_file() {
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
    fn problems_of_all_sections_are_reported_at_once() {
        let problems = resolve_conf(
            r"
[server]
port = 70000
bind = 'localhost'
[admin]
listen = 'x'
[signature]
mode = 'loud'
exempt_paths = ['health']
[limits]
connections = 0
[jwt]
audiences = []
[sever]
",
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
                "server.bind",
                "admin.listen",
                "signature.exempt_paths"
            ]
        );
        // Each names the file and the line too.
        assert!(problems.iter().all(|p| p.file.is_some()), "{problems:?}");
        let lines: Vec<_> = problems.iter().filter_map(|p| p.line).collect();
        assert_eq!(lines, [3, 8, 13, 11, 14, 4, 6, 9]);
    }

    #[test]
    fn problem_of_a_flag_names_the_flag_and_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ati.toml");
        std::fs::write(&path, "[admin]\nlisten = '127.0.0.1:0'").unwrap();
        let flags = Flags {
            conf: Some(path),
            ati_dir: Some(dir.path().to_path_buf()),
            bind: Some("localhost".into()),
            admin: Some("9090".into()),
            sig_exempt_paths: Some("health".into()),
            ..Flags::default()
        };
        let problems = resolve(&flags, &Environment::default()).unwrap_err();
        let named: Vec<_> = problems
            .iter()
            .map(|p| (p.key.as_deref().unwrap(), p.file.is_some()))
            .collect();
        let expected = ["--bind", "--admin", "--sig-exempt-paths"].map(|key| (key, false));
        assert_eq!(named, expected);
    }

    #[test]
    fn named_folder_that_is_missing_is_a_problem_and_the_default_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("typo");
        let by_flag = Flags {
            ati_dir: Some(missing.clone()),
            ..Flags::default()
        };
        let by_variable = Environment {
            ati_dir: missing.clone(),
            ati_dir_named: true,
            ..Environment::default()
        };
        let by_default = Environment {
            ati_dir: missing.clone(),
            ..Environment::default()
        };
        let text = |flags: &Flags, env: &Environment| {
            let problems = resolve(flags, env).unwrap_err();
            assert_eq!(problems.len(), 1);
            problems[0].to_string()
        };
        let shown = missing.display();
        let rest = format!("there is no folder {shown}; to make it: ATI_DIR={shown} ati init");
        let named = text(&by_flag, &Environment::default());
        assert_eq!(named, format!("--ati-dir: {rest}"));
        assert_eq!(
            text(&Flags::default(), &by_variable),
            format!("ATI_DIR: {rest}")
        );
        assert!(resolve(&Flags::default(), &by_default).is_ok());
        std::fs::write(&missing, "").unwrap();
        assert!(text(&by_flag, &by_variable).ends_with("typo is not a folder"));
    }

    #[test]
    fn syntax_error_names_its_line() {
        let problems = resolve_conf("[server]\nport = \n").unwrap_err();
        assert!(
            problems[0].message.starts_with("line 2: "),
            "{}",
            problems[0]
        );
    }

    #[test]
    fn database_url_of_an_unknown_engine_is_refused() {
        let env = Environment {
            database_url: Secret::new(b"mysql://u:planted-password@db/x").ok(),
            ..Environment::default()
        };
        let problems = resolve(&Flags::default(), &env).unwrap_err();
        let text = problems[0].to_string();
        assert!(text.contains("sqlite:<path of a file>"), "{text}");
        assert!(!text.contains("planted"), "{text}");
    }
}
