//! The environment variables that configure a process, read once.

use std::env::VarError;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::OtlpVariables;
use super::jwt::{JwtSettings, KeySource};
use super::{master_keys, paths};
use crate::auth::token::{DEFAULT_AUDIENCE, Expectations};
use crate::egress::{Allowlist, Guard};
use crate::error::Problem;
use crate::keyring::Secret;
use crate::keyring::stored::MasterKeys;

/// Bytes of a captured file, where `ATI_CLI_MAX_OUTPUT_BYTES` doesn't say.
pub(super) const MAX_CAPTURED_BYTES: u64 = 500 << 20;

/// Every variable that this build reads, for the reference page: name, default, meaning.
pub const VARIABLES: &[(&str, &str, &str)] = &[
    (
        "ATI_ADMIN_TOKEN",
        "unset",
        "Bearer token for `/admin/keys`. Without it these routes answer 503.",
    ),
    (
        "ATI_AUDIT_FILE",
        "`$ATI_DIR/audit.jsonl`",
        "The file with one line for each tool call.",
    ),
    (
        "ATI_CLIENT_CERT",
        "unset",
        "PEM file with the certificate that the command line shows to a proxy that asks for one.",
    ),
    (
        "ATI_CLIENT_KEY",
        "`ATI_CLIENT_CERT`",
        "PEM file with the private key of `ATI_CLIENT_CERT`.",
    ),
    (
        "ATI_CLI_MAX_OUTPUT_BYTES",
        "`524288000`",
        "The most bytes of one file that a program writes for its caller: `cli_output_args` and \
         `cli_output_positional`.",
    ),
    (
        "ATI_DB_URL",
        "unset",
        "The store of virtual keys, customers' credentials and the call log: `sqlite:<path of a file>` \
         or `postgres://…`. Unset or blank: there is none.",
    ),
    (
        "ATI_DIR",
        "`~/.ati`",
        "Folder with manifests, keyring, credentials and skills. `--ati-dir` wins.",
    ),
    (
        "ATI_DOWNLOAD_ALLOWLIST",
        "unset",
        "Comma-separated hosts that `file_manager:download` may fetch from: `example.com`, or \
         `*.example.com` for it and every name below it. Each redirect is checked, too.",
    ),
    (
        "ATI_INSECURE",
        "unset",
        "`1` or `true`: as `--insecure`. The proxy serves tools beyond loopback to every caller.",
    ),
    (
        "ATI_JWT_ACCEPTED_AUDIENCES",
        "unset",
        "Comma-separated audiences; a token must name one of them.",
    ),
    (
        "ATI_JWT_AUDIENCE",
        "`ati-proxy`",
        "The only audience, where `ATI_JWT_ACCEPTED_AUDIENCES` is not set.",
    ),
    (
        "ATI_JWT_ISSUER",
        "unset",
        "The issuer that every token must name.",
    ),
    (
        "ATI_JWT_PRIVATE_KEY",
        "unset",
        "File with the P-256 private key (PKCS#8 PEM) that `ati token issue` signs with.",
    ),
    (
        "ATI_JWT_PUBLIC_KEY",
        "unset",
        "The P-256 public key that tokens are verified with: a PEM file; for \
         several a JWKS file, or a folder of PEM files.",
    ),
    (
        "ATI_JWT_SECRET",
        "unset",
        "Shared HS256 secret as hex; used where no public key is set.",
    ),
    (
        "ATI_KEY_<NAME>",
        "unset",
        "With `--env-keys`: the credential `<name>` in lower case. `ati run` \
         without a proxy uses it where the keyring's files don't have it.",
    ),
    (
        "ATI_KEY_FILE",
        "`/run/ati/.key`",
        "File with the one-shot key that opens `keyring.enc`; removed when it is read.",
    ),
    (
        "ATI_MASTER_KEY",
        "unset",
        "Base64 of 32 bytes: what credentials in the database are encrypted with.",
    ),
    (
        "ATI_MASTER_KEY_<ID>",
        "unset",
        "Further master keys, for rows that were encrypted with them.",
    ),
    (
        "ATI_MASTER_KEY_ACTIVE",
        "`ATI_MASTER_KEY`, else `m1`",
        "The `<ID>` of the master key that new rows are encrypted with.",
    ),
    (
        "ATI_OUTPUT",
        "`json`",
        "Default of `--output`: `json`, `table` or `text`.",
    ),
    (
        "ATI_PROXY_URL",
        "unset",
        "The proxy that runs the tools. Without it, `ati run` and `ati tool` use \
         the manifests and keys in `ATI_DIR`.",
    ),
    (
        "ATI_SANDBOX_SECRET",
        "unset",
        "The secret that the command line signs its requests to the proxy with. Even-length hex \
         is decoded.",
    ),
    (
        "ATI_SANDBOX_SECRET_FILE",
        "`/run/ati/sandbox_secret`",
        "File with that secret, where `ATI_SANDBOX_SECRET` is empty.",
    ),
    ("ATI_SESSION_TOKEN", "unset", "The caller's token."),
    (
        "ATI_SESSION_TOKEN_FILE",
        "`/run/ati/session_token`",
        "File with the caller's token, where `ATI_SESSION_TOKEN` is empty.",
    ),
    (
        "ATI_SHORT_WAY",
        "`on`",
        "`off`: every request takes the long way, through Pingora's proxy. Answers are the same; \
         plain requests cost more.",
    ),
    (
        "ATI_SKILL_FETCH_DISABLED",
        "unset",
        "`1` or `true`: `ati skill fetch` refuses to read, because skills are installed already.",
    ),
    (
        "ATI_SKILL_REGISTRY",
        "unset",
        "The remote catalogue of skills: `gcs://<bucket>`, `s3://<bucket>`, `file:///<folder>`, \
         `https://<host>/<path>`, or `proxy` for that of `ATI_PROXY_URL`.",
    ),
    (
        "ATI_SKILL_REGISTRY_INDEX_OBJECT",
        "`_skillati/catalog.v1.json` and two older names",
        "Where the catalogue's index is, with commas between several places.",
    ),
    (
        "ATI_SSRF_PROTECTION",
        "unset",
        "`1` or `true`: tools can't connect to private or internal addresses. \
         `warn`: they can, and each time is logged.",
    ),
    (
        "ENVIRONMENT_TIER",
        "unset",
        "`deployment.environment` of spans and metrics. Sentry gets events from `production`, \
         `staging` and `demo` only.",
    ),
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "unset",
        "Base URL of an OpenTelemetry collector. Unset: nothing is exported. docs/OTEL.md has the \
         other variables of OTLP.",
    ),
    (
        "OTEL_SERVICE_NAME",
        "`SERVICE_NAME`, else `ati-proxy`",
        "`service.name` of spans and metrics.",
    ),
    (
        "RUST_LOG",
        "`info`",
        "Log filter, in the syntax of tracing's EnvFilter.",
    ),
    (
        "SENTRY_DSN",
        "`GREP_SENTRY_DSN`",
        "Where errors go, in builds with the feature `sentry`.",
    ),
    (
        "SSL_CERT_FILE",
        "the system's",
        "PEM file with the certificate authorities that are trusted, instead of the system's. \
         For a proxy with a certificate of your own authority.",
    ),
    (
        "TRACEPARENT",
        "unset",
        "The trace that a command belongs to, which it tells the proxy.",
    ),
];

#[derive(Debug, Clone)]
pub struct Environment {
    pub ati_dir: PathBuf,
    /// Whether `ATI_DIR` names the folder.
    pub ati_dir_named: bool,
    /// `ATI_INSECURE`.
    pub insecure: bool,
    pub key_file: PathBuf,
    pub admin_token: Option<Secret>,
    /// `ATI_MASTER_KEY`, and those with an id behind it.
    pub master_keys: Arc<MasterKeys>,
    /// `ATI_DB_URL`. It may hold a password.
    pub database_url: Option<Secret>,
    pub public_key: Option<OsString>,
    pub secret: Option<Zeroizing<String>>,
    pub issuer: Option<String>,
    pub audience: Option<String>,
    pub audiences: Option<String>,
    /// Whether there is a key to sign with. The proxy doesn't use it, and warns where there is no
    /// key to verify with.
    pub private_key: bool,
    pub guard: Guard,
    pub downloads: Allowlist,
    pub audit_file: Option<PathBuf>,
    /// `ATI_CLI_MAX_OUTPUT_BYTES`.
    pub max_captured_bytes: u64,
    pub skill_registry: SkillRegistryVariables,
    /// `ATI_SHORT_WAY`.
    pub short_way: bool,
    /// None where no spans and metrics are exported.
    pub otlp: Option<OtlpVariables>,
    pub problems: Vec<Problem>,
    pub warnings: Vec<Problem>,
}

/// Where skills of a remote catalogue are.
#[derive(Debug, Clone, Default)]
pub struct SkillRegistryVariables {
    /// `ATI_SKILL_REGISTRY`.
    pub url: Option<String>,
    /// `ATI_SKILL_REGISTRY_INDEX_OBJECT`.
    pub index: Option<String>,
    /// `ATI_PROXY_URL`, for a server whose registry is `proxy`.
    pub proxy: Option<String>,
}

impl Default for Environment {
    fn default() -> Self {
        Environment {
            ati_dir: PathBuf::from(".ati"),
            ati_dir_named: false,
            insecure: false,
            key_file: PathBuf::from("/run/ati/.key"),
            admin_token: None,
            master_keys: Arc::default(),
            database_url: None,
            public_key: None,
            secret: None,
            issuer: None,
            audience: None,
            audiences: None,
            private_key: false,
            guard: Guard::Off,
            downloads: Allowlist::default(),
            audit_file: None,
            max_captured_bytes: MAX_CAPTURED_BYTES,
            skill_registry: SkillRegistryVariables::default(),
            short_way: true,
            otlp: None,
            problems: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

impl Environment {
    pub fn read() -> Self {
        let mut problems = Vec::new();
        let mut text = |name: &str| match std::env::var(name) {
            Ok(value) => Some(value),
            Err(VarError::NotPresent) => None,
            // Ignoring it could turn authentication off.
            Err(VarError::NotUnicode(_)) => {
                problems.push(Problem::new("not valid text").key(name));
                None
            }
        };
        let mut no_hosts = false;
        let mut filled = |name: &str| text(name).filter(|value| !value.trim().is_empty());
        let mut env = Environment {
            ati_dir: paths::ati_dir(),
            ati_dir_named: paths::filled("ATI_DIR").is_some(),
            database_url: filled("ATI_DB_URL").and_then(|url| Secret::new(url.as_bytes()).ok()),
            admin_token: filled("ATI_ADMIN_TOKEN")
                .and_then(|token| Secret::new(token.as_bytes()).ok()),
            issuer: filled("ATI_JWT_ISSUER"),
            audience: filled("ATI_JWT_AUDIENCE"),
            audiences: filled("ATI_JWT_ACCEPTED_AUDIENCES"),
            private_key: filled("ATI_JWT_PRIVATE_KEY").is_some(),
            skill_registry: SkillRegistryVariables {
                url: filled("ATI_SKILL_REGISTRY"),
                index: filled("ATI_SKILL_REGISTRY_INDEX_OBJECT"),
                proxy: filled("ATI_PROXY_URL"),
            },
            ..Environment::default()
        };
        if let Some(path) = filled("ATI_KEY_FILE") {
            env.key_file = path.into();
        }
        let mut warnings = std::mem::take(&mut env.warnings);
        env.otlp = OtlpVariables::read(&mut filled, &mut warnings);
        env.warnings = warnings;
        let dsn = ["SENTRY_DSN", "GREP_SENTRY_DSN"];
        if let Some(name) = dsn.into_iter().find(|name| filled(name).is_some())
            && !cfg!(feature = "sentry")
        {
            let message = "Sentry is not part of this build (cargo build --features sentry); \
                           nothing is sent";
            env.warnings.push(Problem::new(message).key(name));
        }
        env.audit_file = filled("ATI_AUDIT_FILE").map(PathBuf::from);
        let captured = captured_bytes(filled("ATI_CLI_MAX_OUTPUT_BYTES").as_deref());
        env.max_captured_bytes = captured.unwrap_or(MAX_CAPTURED_BYTES);
        if let Some(list) = filled("ATI_DOWNLOAD_ALLOWLIST") {
            const KEY: &str = "ATI_DOWNLOAD_ALLOWLIST";
            env.downloads = Allowlist::parse(&list);
            let unusable = env.downloads.unusable().map(|pattern| {
                let message = format!("'{pattern}' is no host and no *.host: it allows nothing");
                Problem::new(message).key(KEY)
            });
            env.warnings.extend(unusable);
            // Taken for unset, it would allow every host.
            no_hosts = env.downloads.is_empty();
        }
        let insecure = match filled("ATI_INSECURE").as_deref().map(str::trim) {
            None | Some("0" | "false") => Some(false),
            Some("1" | "true") => Some(true),
            Some(_) => None,
        };
        env.insecure = insecure.unwrap_or(false);
        let short_way = match filled("ATI_SHORT_WAY").as_deref().map(str::trim) {
            None | Some("on" | "1" | "true") => Some(true),
            Some("off" | "0" | "false") => Some(false),
            Some(_) => None,
        };
        env.short_way = short_way.unwrap_or(true);
        let guard = Guard::parse(&filled("ATI_SSRF_PROTECTION").unwrap_or_default());
        env.guard = guard.unwrap_or(Guard::On);
        // Set but empty is kept: it must refuse to start, not turn authentication off.
        env.public_key = std::env::var_os("ATI_JWT_PUBLIC_KEY");
        env.secret = text("ATI_JWT_SECRET").map(Zeroizing::new);
        match master_keys::read() {
            Ok(keys) => env.master_keys = Arc::new(keys),
            Err(wrong) => problems.extend(wrong),
        }
        if no_hosts {
            problems.push(Problem::new("it names no host").key("ATI_DOWNLOAD_ALLOWLIST"));
        }
        if insecure.is_none() {
            problems.push(Problem::new("expected 1, true, 0 or false").key("ATI_INSECURE"));
        }
        if short_way.is_none() {
            problems.push(Problem::new("expected on or off").key("ATI_SHORT_WAY"));
        }
        if captured.is_none() {
            problems
                .push(Problem::new("expected a number of bytes").key("ATI_CLI_MAX_OUTPUT_BYTES"));
        }
        if guard.is_none() {
            problems.push(
                Problem::new("expected 1, true, warn, or nothing").key("ATI_SSRF_PROTECTION"),
            );
        }
        env.problems = problems;
        env
    }

    pub(super) fn jwt_key(&self) -> Option<KeySource> {
        if let Some(path) = &self.public_key {
            return Some(KeySource::public_key(
                "ATI_JWT_PUBLIC_KEY",
                None,
                path.into(),
            ));
        }
        let secret = self.secret.clone()?;
        Some(KeySource::secret("ATI_JWT_SECRET", None, secret))
    }

    /// The environment's settings alone, which are the only ones that commands use.
    pub fn jwt(&self) -> Option<JwtSettings> {
        let expect = self.expectations(None, None);
        self.jwt_key().map(|key| JwtSettings { key, expect })
    }

    /// Audiences: `ATI_JWT_ACCEPTED_AUDIENCES`, then `ATI_JWT_AUDIENCE`, then the conf file's, then
    /// the default.
    pub fn expectations(
        &self,
        issuer: Option<String>,
        audiences: Option<Vec<String>>,
    ) -> Expectations {
        let list: Vec<String> = self
            .audiences
            .iter()
            .flat_map(|csv| csv.split(','))
            .map(|audience| audience.trim().to_owned())
            .filter(|audience| !audience.is_empty())
            .collect();
        let audiences = Some(list)
            .filter(|list| !list.is_empty())
            .or_else(|| self.audience.clone().map(|one| vec![one]))
            .or(audiences)
            .unwrap_or_else(|| vec![DEFAULT_AUDIENCE.to_owned()]);
        Expectations {
            audiences,
            issuer: self.issuer.clone().or(issuer),
        }
    }
}

/// Zero means the default, as it does in existing deployments. `None` if it is no number.
fn captured_bytes(text: Option<&str>) -> Option<u64> {
    match text.map_or(Ok(0), |text| text.trim().parse::<u64>()) {
        Ok(0) => Some(MAX_CAPTURED_BYTES),
        Ok(bytes) => Some(bytes),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_of_captured_files_is_a_number_and_zero_is_the_default() {
        assert_eq!(captured_bytes(None), Some(524_288_000));
        assert_eq!(captured_bytes(Some("0")), Some(524_288_000));
        assert_eq!(captured_bytes(Some(" 17 ")), Some(17));
        for wrong in ["5MB", "-1", "1e6", "99999999999999999999"] {
            assert_eq!(captured_bytes(Some(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn audiences_of_the_environment_win_over_the_conf_file() {
        let mut env = Environment::default();
        let audiences = |env: &Environment, file: Option<&str>| {
            env.expectations(None, file.map(|one| vec![one.to_owned()]))
                .audiences
        };
        assert_eq!(audiences(&env, None), ["ati-proxy"]);
        assert_eq!(audiences(&env, Some("file")), ["file"]);
        env.audience = Some("one".into());
        assert_eq!(audiences(&env, Some("file")), ["one"]);
        env.audiences = Some(" a, ,b ".into());
        assert_eq!(audiences(&env, Some("file")), ["a", "b"]);
        env.audiences = Some(" , ".into());
        assert_eq!(audiences(&env, None), ["one"]);
    }
}
