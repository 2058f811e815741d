//! What goes wrong in the field, looked at in one go, each with what to do about it.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::header::DATE;
use rustix::fs::Access;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use url::Url;

use super::{output, runtime};
use crate::auth::token::VerificationKey;
use crate::config::{self, Environment, Flags, Settings, private_key_of_environment};
use crate::egress::{self, Clients, Guard, Resolver};
use crate::error::{Code, Failure, Problem};
use crate::keyring::{SIGNING_SECRET, Source};
use crate::snapshot::{Snapshot, unix_now};

/// Less than this and the audit is soon in trouble.
const FREE: u64 = 256 << 20;
const MEMLOCK: u64 = 8 << 20;
const DRIFT: u64 = 30;
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    flags: Flags,

    /// The admin listener of the running proxy, to ask how upstreams take its credentials [default: the one of the settings]
    #[arg(long, value_name = "URL")]
    admin_url: Option<String>,

    /// Contact no upstream
    #[arg(long)]
    offline: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Warn,
    Fail,
}

#[derive(Serialize)]
struct Finding {
    check: &'static str,
    status: Status,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn ok(&mut self, check: &'static str, message: impl Into<String>) {
        self.add(check, Status::Ok, message, None);
    }

    fn warn(&mut self, check: &'static str, message: impl Into<String>, fix: &str) {
        self.add(check, Status::Warn, message, Some(fix));
    }

    fn fail(&mut self, check: &'static str, message: impl Into<String>, fix: &str) {
        self.add(check, Status::Fail, message, Some(fix));
    }

    fn add(
        &mut self,
        check: &'static str,
        status: Status,
        message: impl Into<String>,
        fix: Option<&str>,
    ) {
        self.0.push(Finding {
            check,
            status,
            message: message.into(),
            fix: fix.map(str::to_owned),
        });
    }
}

pub fn run(args: &Args, json: bool) -> Result<u8, Failure> {
    let mut found = Findings::default();
    let env = Environment::read();
    match config::resolve(&args.flags, &env) {
        Ok(settings) => examine(&settings, args, &mut found)?,
        Err(problems) => {
            for problem in problems {
                found.fail(
                    "settings",
                    problem.to_string(),
                    "ati check lists everything that is wrong with the settings",
                );
            }
        }
    }
    let worst = found
        .0
        .iter()
        .map(|finding| finding.status as u8)
        .max()
        .unwrap_or(0);
    if json {
        output::pretty(&found.0);
    } else {
        for finding in &found.0 {
            let mark = match finding.status {
                Status::Ok => "ok  ",
                Status::Warn => "WARN",
                Status::Fail => "FAIL",
            };
            output::line(&format!("{mark} {}: {}", finding.check, finding.message));
            if let Some(fix) = &finding.fix {
                output::line(&format!("     fix: {fix}"));
            }
        }
    }
    Ok(if worst == Status::Fail as u8 { 1 } else { 0 })
}

fn examine(settings: &Settings, args: &Args, found: &mut Findings) -> Result<(), Failure> {
    permissions(settings, found);
    memlock(found);
    disk(settings, found);
    ports(settings, found);
    jwt(settings, found);
    let mut quiet = settings.clone();
    quiet.keyring.places.consume = false;
    match Snapshot::build(quiet, None) {
        Ok(built) => {
            load(&built.snapshot, &built.warnings, found);
            if args.offline {
                found.ok("upstreams", "not contacted (--offline)");
            } else {
                upstreams(&built.snapshot, found)?;
            }
        }
        Err(unbuilt) => {
            for problem in unbuilt.problems {
                found.fail(
                    "load",
                    problem.to_string(),
                    "the proxy would not start like this; ati check has the whole list",
                );
            }
        }
    }
    credentials(settings, args, found)
}

/// Files with secrets in them are for one owner.
fn permissions(settings: &Settings, found: &mut Findings) {
    let mut wrong = false;
    for name in [
        "credentials",
        "keyring.enc",
        ".keyring-key",
        "config.toml",
        "jwt-private.pem",
    ] {
        let path = settings.ati_dir.join(name);
        let Ok(metadata) = std::fs::metadata(&path) else {
            continue;
        };
        let owner = std::fs::metadata(&settings.ati_dir).map(|folder| folder.uid());
        if owner.is_ok_and(|owner| owner != metadata.uid()) {
            wrong = true;
            let fix = format!(
                "chown --reference={} {}",
                settings.ati_dir.display(),
                path.display()
            );
            let message = format!(
                "{} belongs to another user than its folder: the proxy may not be able to read it",
                path.display()
            );
            found.fail("permissions", message, &fix);
        }
        let mode = metadata.permissions().mode() & 0o777;
        let holds_nothing = name == "config.toml"
            && !std::fs::read_to_string(&path).is_ok_and(|text| text.contains("secret"));
        if mode & 0o077 != 0 && !holds_nothing {
            wrong = true;
            let fix = format!("chmod 600 {}", path.display());
            found.fail(
                "permissions",
                format!("{} has mode {mode:o}: others can read it", path.display()),
                &fix,
            );
        }
    }
    match std::fs::metadata(&settings.ati_dir) {
        Ok(folder) if folder.permissions().mode() & 0o002 != 0 => {
            let fix = format!("chmod o-w {}", settings.ati_dir.display());
            found.fail(
                "permissions",
                format!("everybody can write to {}", settings.ati_dir.display()),
                &fix,
            );
        }
        Ok(folder) => {
            if !wrong {
                found.ok(
                    "permissions",
                    format!(
                        "{} belongs to user {}",
                        settings.ati_dir.display(),
                        folder.uid()
                    ),
                );
            }
        }
        Err(e) => found.fail(
            "permissions",
            format!("{}: {e}", settings.ati_dir.display()),
            "ati init, or --ati-dir",
        ),
    }
}

fn memlock(found: &mut Findings) {
    match getrlimit(Resource::Memlock).current {
        Some(limit) if limit < MEMLOCK => found.warn(
            "memlock",
            format!(
                "{} KiB may be locked: secrets of a large keyring could be swapped out",
                limit >> 10
            ),
            "LimitMEMLOCK=64M in the unit, or ulimit -l 65536",
        ),
        Some(limit) => found.ok("memlock", format!("{} KiB may be locked", limit >> 10)),
        None => found.ok("memlock", "unlimited"),
    }
}

fn disk(settings: &Settings, found: &mut Findings) {
    let path = &settings.audit_file;
    let folder = path
        .parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    // Looked at, and not made.
    let writable = match path.exists() {
        true => std::fs::OpenOptions::new()
            .append(true)
            .open(path)
            .map(drop),
        false => rustix::fs::access(folder, Access::WRITE_OK).map_err(Into::into),
    };
    if let Err(e) = writable {
        found.fail(
            "audit",
            format!("{} can't be written: {e}", path.display()),
            "calls go on, and leave no line: mend the folder, or set ATI_AUDIT_FILE",
        );
        return;
    }
    match rustix::fs::statvfs(folder) {
        Ok(space) if space.f_bavail * space.f_frsize < FREE => {
            let free = (space.f_bavail * space.f_frsize) >> 20;
            found.warn(
                "audit",
                format!("{free} MiB are free at {}", folder.display()),
                "make room, or rotate the file (mv is enough)",
            );
        }
        Ok(space) => found.ok(
            "audit",
            format!("{} MiB are free", (space.f_bavail * space.f_frsize) >> 20),
        ),
        Err(e) => found.warn(
            "audit",
            format!("{}: {e}", folder.display()),
            "free space could not be looked at",
        ),
    }
}

fn ports(settings: &Settings, found: &mut Findings) {
    for (what, address) in [("edge", Some(settings.edge)), ("admin", settings.admin)] {
        let Some(address) = address.filter(|address| address.port() != 0) else {
            continue;
        };
        match TcpListener::bind(address) {
            Ok(_) => found.ok(
                "ports",
                format!("{what} {address} is free: nothing runs there"),
            ),
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {
                found.ok(
                    "ports",
                    format!("{what} {address} is taken: by the running proxy, or by somebody else"),
                );
            }
            Err(e) => found.fail(
                "ports",
                format!("{what} {address}: {e}"),
                "choose an address of this machine, and a port above 1023 or the capability for it",
            ),
        }
    }
}

/// The key that tokens are signed with is among those that they are verified with.
fn jwt(settings: &Settings, found: &mut Findings) {
    let Some(jwt) = &settings.jwt else {
        found.warn(
            "jwt",
            "no key is configured: every caller is let in",
            "ATI_JWT_PUBLIC_KEY, or [jwt] in the conf file",
        );
        return;
    };
    let key = match jwt.key.load() {
        Ok(key) => key,
        Err(problem) => {
            found.fail("jwt", problem.to_string(), "ati token keygen makes a pair");
            return;
        }
    };
    match (private_key_of_environment(), &key) {
        (Ok(Some(private)), VerificationKey::Es256(keys))
            if !keys.iter().any(|named| named.key == *private.public()) =>
        {
            found.fail(
                "jwt",
                "ATI_JWT_PRIVATE_KEY is not the other half of a key that tokens are verified with",
                "put the public half of the private key where the proxy reads it",
            );
        }
        (Err(problem), _) => {
            found.fail("jwt", problem.to_string(), "ati token keygen makes a pair")
        }
        (_, VerificationKey::Es256(keys)) => {
            found.ok("jwt", format!("ES256, {} key(s)", keys.len()))
        }
        (_, VerificationKey::Hs256(_)) => found.ok("jwt", "HS256"),
    }
}

fn load(snapshot: &Snapshot, warnings: &[Problem], found: &mut Findings) {
    let keyring = &snapshot.keyring;
    let sealed = matches!(keyring.source(), Source::Sealed | Source::Persistent);
    let add = |name: &str| match sealed {
        true => format!("add {name} where the secrets are kept, and ati edge rotate-keyring"),
        false => format!("ati key set {name} - reads it from standard input"),
    };
    found.ok(
        "keyring",
        format!("{}, {} names", keyring.source().as_str(), keyring.len()),
    );
    if snapshot.signing.is_some() {
        found.ok("signing", "the sandboxes' secret is in the keyring");
    } else {
        found.warn(
            "signing",
            "sandbox_signing_shared_secret is not in the keyring: signatures can't be checked",
            &add(SIGNING_SECRET),
        );
    }
    let mut missing = 0;
    for warning in warnings {
        match &warning.missing_credential {
            Some(name) => {
                missing += 1;
                let fix = format!("{}; or remove the manifest", add(name));
                found.warn("credentials", warning.to_string(), &fix);
            }
            None => found.warn(
                "manifests",
                warning.to_string(),
                "docs/reference/manifest.md has every field",
            ),
        }
    }
    if missing == 0 {
        found.ok(
            "credentials",
            "every name that a manifest wants is in the keyring",
        );
    }
    let (providers, tools) = (
        snapshot.catalog.providers().len(),
        snapshot.catalog.public_count(),
    );
    found.ok(
        "manifests",
        format!(
            "{providers} providers, {tools} tools, {} routes",
            snapshot.routes.len()
        ),
    );
}

/// Names, addresses, TLS, and whose clock is right. Without a credential.
fn upstreams(snapshot: &Snapshot, found: &mut Findings) -> Result<(), Failure> {
    let mut origins: BTreeMap<String, Url> = BTreeMap::new();
    let tools = snapshot
        .catalog
        .providers()
        .iter()
        .filter_map(|provider| provider.http());
    let urls = tools
        .map(|http| http.base_url.clone())
        .chain(snapshot.routes.origins());
    for url in urls
        .filter_map(|text| Url::parse(&text).ok())
        .filter(Url::has_host)
    {
        let origin = url.origin().ascii_serialization();
        if let Ok(url) = Url::parse(&origin) {
            origins.insert(origin, url);
        }
    }
    let settings = &snapshot.settings;
    let resolver = Arc::new(Resolver::new(&settings.egress.nameservers));
    let clients = Clients::new(&settings.egress, Guard::Off, resolver);
    let client = clients
        .get(settings.egress.source)
        .map_err(|problem| Failure::new(Code::ExecutionFailed, problem.to_string()))?;
    let answers = runtime()?.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for (origin, url) in origins {
            let client = client.clone();
            tasks.spawn(async move { (origin, client.head(url).timeout(PATIENCE).send().await) });
        }
        tasks.join_all().await
    });
    for (origin, answer) in answers {
        match answer {
            Ok(response) => clock(&origin, response.headers().get(DATE), found),
            Err(e) => {
                let words = egress::fault(&e).map_or("blocked", |fault| fault.words());
                found.fail("upstreams", format!("{origin}: {words}"), "look at base_url, at egress.nameservers, at egress.ca_file, and at the firewall");
            }
        }
    }
    Ok(())
}

fn clock(origin: &str, date: Option<&http::HeaderValue>, found: &mut Findings) {
    let theirs = date
        .and_then(|date| date.to_str().ok())
        .and_then(|text| OffsetDateTime::parse(&text.replace("GMT", "+0000"), &Rfc2822).ok())
        .and_then(|date| u64::try_from(date.unix_timestamp()).ok());
    match theirs.map(|theirs| theirs.abs_diff(unix_now())) {
        Some(drift) if drift > DRIFT => found.warn(
            "clock",
            format!("{origin} says that it is {drift} s earlier or later"),
            "chronyd or systemd-timesyncd: signatures and tokens depend on the clock",
        ),
        Some(_) => found.ok(
            "upstreams",
            format!("{origin} answers, and its clock agrees"),
        ),
        None => found.ok("upstreams", format!("{origin} answers")),
    }
}

/// What the running proxy has seen.
fn credentials(settings: &Settings, args: &Args, found: &mut Findings) -> Result<(), Failure> {
    let configured = settings.admin.filter(|address| address.port() != 0);
    let url = args
        .admin_url
        .clone()
        .or_else(|| configured.map(|address| format!("http://{address}")));
    let Some(url) = url else {
        found.ok("health", "no admin listener to ask (--admin-url)");
        return Ok(());
    };
    let Ok(mut url) = Url::parse(&url) else {
        return Err(Failure::invalid("--admin-url is no URL"));
    };
    url.set_path("/credentials");
    let client = egress::proxy_client(url.scheme() == "https")
        .map_err(|problem| Failure::new(Code::ExecutionFailed, problem.to_string()))?;
    let answer = runtime()?.block_on(async {
        let response = client.get(url).timeout(PATIENCE).send().await.ok()?;
        response.text().await.ok()
    });
    let Some(Value::Array(keys)) = answer.and_then(|text| serde_json::from_str(&text).ok()) else {
        found.warn(
            "health",
            "the admin listener doesn't answer",
            "start the proxy, or name its listener with --admin-url",
        );
        return Ok(());
    };
    let mut dead = 0;
    for key in keys.iter().filter(|key| key["state"] == "refused") {
        dead += 1;
        let name = key["name"].as_str().unwrap_or_default();
        let last = match key["last_success"].as_u64() {
            Some(at) => format!(
                "the last success was {} s ago",
                unix_now().saturating_sub(at)
            ),
            None => "there was no success since the start".to_owned(),
        };
        found.fail(
            "health",
            format!(
                "'{name}' is refused by its upstream ({} times); {last}",
                key["refused"]
            ),
            "it was revoked, or it never was right: get a new one and rotate",
        );
    }
    if dead == 0 {
        found.ok(
            "health",
            format!("{} credentials in use, none is refused", keys.len()),
        );
    }
    Ok(())
}
