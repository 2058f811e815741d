//! Whether the running proxy has loaded the new keyring, by its admin listener.

use std::time::{Duration, Instant};

use serde_json::Value;
use url::Url;

use super::super::transport::NoAnswer;
use super::super::{problem_failure, runtime};
use crate::egress;
use crate::error::{Code, Failure};

/// How long a reload may take.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(15);
const INTERVAL: Duration = Duration::from_millis(50);

/// A running proxy's admin listener.
pub struct AdminListener {
    url: Url,
}

/// What `/keyring` reports.
pub struct KeyringState {
    fingerprint: Option<String>,
    failed: u64,
    /// Why the last reload failed.
    problems: Vec<String>,
}

impl AdminListener {
    pub fn new(url: &str) -> Result<Self, Failure> {
        let mut url = Url::parse(url)
            .ok()
            .filter(egress::is_http_url)
            .ok_or_else(|| {
                Failure::invalid(
                    "--verify is not the URL of an admin listener, like http://127.0.0.1:9090",
                )
            })?;
        url.set_path("/keyring");
        Ok(AdminListener { url })
    }

    pub fn state(&self) -> Result<KeyringState, Failure> {
        let failure = || Failure::new(Code::UpstreamError, "the admin listener");
        let client = egress::proxy_client(self.url.scheme() == "https")
            .map_err(|problem| problem_failure(Code::ExecutionFailed, &problem))?;
        let request = client.get(self.url.clone()).timeout(Duration::from_secs(5));
        let text = runtime()?.block_on(async {
            let failed = |e: reqwest::Error| failure().because(NoAnswer::new(e));
            let response = request.send().await.map_err(failed)?;
            response.text().await.map_err(failed)
        })?;
        // Another program that answers on this address is not a proxy.
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        let problems = answer["problems"].as_array().into_iter().flatten();
        let problems = problems.filter_map(Value::as_str).map(str::to_owned);
        Ok(KeyringState {
            problems: problems.collect(),
            fingerprint: answer["fingerprint"].as_str().map(str::to_owned),
            failed: answer["reloads_failed"]
                .as_u64()
                .ok_or_else(|| failure().because("it has no /keyring"))?,
        })
    }

    /// Poll until the proxy runs with the keyring of this fingerprint, reports a failed reload, or
    /// the time is up.
    pub fn wait_for(&self, expected: &str, before: &KeyringState) -> Result<(), Failure> {
        let started = Instant::now();
        loop {
            let state = self.state();
            if let Ok(state) = &state {
                if state.fingerprint.as_deref() == Some(expected) {
                    return Ok(());
                }
                if state.failed > before.failed {
                    let why = match state.problems.as_slice() {
                        // A proxy of an older version doesn't tell.
                        [] => "its log says why".to_owned(),
                        problems => problems.join("; "),
                    };
                    return Err(Failure::new(
                        Code::ExecutionFailed,
                        format!("the proxy could not load the new keyring: {why}"),
                    ));
                }
            }
            if started.elapsed() > RELOAD_TIMEOUT {
                state?;
                return Err(Failure::new(
                    Code::ProviderTimeout,
                    format!(
                        "the proxy did not take the new keyring over within {} s",
                        RELOAD_TIMEOUT.as_secs()
                    ),
                ));
            }
            std::thread::sleep(INTERVAL);
        }
    }
}
