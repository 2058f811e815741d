//! Checks over the network: the upstreams, and the running proxy.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use http::header::DATE;
use serde_json::Value;
use url::Url;

use super::Findings;
use crate::cli::{problem_failure, runtime};
use crate::clock::unix_now;
use crate::config::Settings;
use crate::egress::{self, Clients, Guard, Resolver};
use crate::error::{Code, Failure};
use crate::snapshot::Snapshot;

/// Seconds by which a clock may differ.
const LARGEST_DRIFT: u64 = 30;
const TIMEOUT: Duration = Duration::from_secs(5);

/// Whether each upstream can be resolved, reached and trusted, and whether its clock agrees with
/// this machine's. No credential is sent.
pub fn upstreams(snapshot: &Snapshot, found: &mut Findings) -> Result<(), Failure> {
    let mut origins: BTreeMap<String, Url> = BTreeMap::new();
    let tools = snapshot
        .catalog
        .providers()
        .iter()
        .filter_map(|provider| provider.base_url());
    let urls = tools
        .map(|url| url.text.clone())
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
    for (origin, answer) in contact(snapshot, origins)? {
        match answer {
            Ok(response) => clock(&origin, response.headers().get(DATE), found),
            Err(e) => {
                let words = egress::fault(&e).map_or("blocked", |fault| fault.words());
                found.fail(
                    "upstreams",
                    format!("{origin}: {words}"),
                    "look at base_url, at egress.nameservers, at egress.ca_file, and at the firewall",
                );
            }
        }
    }
    Ok(())
}

/// Sends a HEAD to each URL, all at the same time and without a credential.
pub fn contact<T: Send + 'static>(
    snapshot: &Snapshot,
    urls: impl IntoIterator<Item = (T, Url)>,
) -> Result<Vec<(T, reqwest::Result<reqwest::Response>)>, Failure> {
    let settings = &snapshot.settings;
    let resolver = Arc::new(Resolver::new(&settings.egress.nameservers));
    let clients = Clients::new(&settings.egress, Guard::Off, resolver);
    let client = clients
        .get(settings.egress.source)
        .map_err(|problem| problem_failure(Code::ExecutionFailed, &problem))?;
    Ok(runtime()?.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for (what, url) in urls {
            let client = client.clone();
            tasks.spawn(async move { (what, client.head(url).timeout(TIMEOUT).send().await) });
        }
        tasks.join_all().await
    }))
}

fn clock(origin: &str, date: Option<&http::HeaderValue>, found: &mut Findings) {
    let theirs = date
        .and_then(|date| date.to_str().ok())
        .and_then(|text| httpdate::parse_http_date(text).ok())
        .and_then(|date| date.duration_since(UNIX_EPOCH).ok())
        .map(|since| since.as_secs());
    match theirs.map(|theirs| theirs.abs_diff(unix_now())) {
        Some(drift) if drift > LARGEST_DRIFT => found.warn(
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

/// The admin listener of the running proxy, where it is known.
pub fn admin_url(
    settings: &Settings,
    given: Option<&str>,
    found: &mut Findings,
) -> Result<Option<Url>, Failure> {
    let configured = settings.admin.filter(|address| address.port() != 0);
    let url = given
        .map(str::to_owned)
        .or_else(|| configured.map(|address| format!("http://{address}")));
    let Some(url) = url else {
        found.ok("health", "no admin listener to ask (--admin-url)");
        return Ok(None);
    };
    let Ok(url) = Url::parse(&url) else {
        return Err(Failure::invalid("--admin-url is no URL"));
    };
    Ok(Some(url))
}

/// What the admin listener answers under this path, where it answers JSON.
pub fn ask(admin: &Url, path: &str) -> Result<Option<Value>, Failure> {
    let mut url = admin.clone();
    url.set_path(path);
    let client = egress::proxy_client(url.scheme() == "https")
        .map_err(|problem| problem_failure(Code::ExecutionFailed, &problem))?;
    let answer = runtime()?.block_on(async {
        let response = client.get(url).timeout(TIMEOUT).send().await.ok()?;
        response.text().await.ok()
    });
    Ok(answer.and_then(|text| serde_json::from_str(&text).ok()))
}

/// Whether upstreams refuse a credential of the running proxy.
pub fn credentials(admin: &Url, found: &mut Findings) -> Result<(), Failure> {
    let Some(Value::Array(keys)) = ask(admin, "/credentials")? else {
        found.warn(
            "health",
            "the admin listener doesn't answer",
            "start the proxy, or name its listener with --admin-url",
        );
        return Ok(());
    };
    let mut refused = 0;
    for key in keys.iter().filter(|key| key["state"] == "refused") {
        refused += 1;
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
            "it was revoked, or it was never valid: get a new one and rotate",
        );
    }
    if refused == 0 {
        found.ok(
            "health",
            format!("{} credentials in use, none is refused", keys.len()),
        );
    }
    Ok(())
}
