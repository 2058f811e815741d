use std::time::{Duration, Instant};

use serde_json::Value;
use url::Url;

use super::super::runtime;
use crate::egress;
use crate::error::{Code, Failure};

const PATIENCE: Duration = Duration::from_secs(15);
const INTERVAL: Duration = Duration::from_millis(50);

/// A running proxy's admin listener.
pub struct Admin {
    url: Url,
}

/// What it says of its keyring.
pub struct State {
    fingerprint: Option<String>,
    failed: u64,
}

impl Admin {
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
        Ok(Admin { url })
    }

    pub fn state(&self) -> Result<State, Failure> {
        let unreachable =
            |why: &str| Failure::new(Code::UpstreamError, format!("the admin listener: {why}"));
        let client = egress::proxy_client(self.url.scheme() == "https")
            .map_err(|problem| Failure::new(Code::ExecutionFailed, problem.to_string()))?;
        let request = client.get(self.url.clone()).timeout(Duration::from_secs(5));
        let text = runtime()?.block_on(async {
            let failed = |e: reqwest::Error| {
                unreachable(egress::fault(&e).map_or("blocked", |fault| fault.words()))
            };
            let response = request.send().await.map_err(failed)?;
            response.text().await.map_err(failed)
        })?;
        let answer: Value =
            serde_json::from_str(&text).map_err(|_| unreachable("it has no /keyring"))?;
        Ok(State {
            fingerprint: answer["fingerprint"].as_str().map(str::to_owned),
            failed: answer["reloads_failed"]
                .as_u64()
                .ok_or_else(|| unreachable("it has no /keyring"))?,
        })
    }

    /// Until it runs with that keyring, says that it can't, or time is up.
    pub fn wait_for(&self, expected: &str, before: &State) -> Result<(), Failure> {
        let started = Instant::now();
        loop {
            let state = self.state();
            if let Ok(state) = &state {
                if state.fingerprint.as_deref() == Some(expected) {
                    return Ok(());
                }
                if state.failed > before.failed {
                    return Err(Failure::new(
                        Code::ExecutionFailed,
                        "the proxy could not load the new keyring; its log says why",
                    ));
                }
            }
            if started.elapsed() > PATIENCE {
                state?;
                return Err(Failure::new(
                    Code::ProviderTimeout,
                    "the proxy did not take the new keyring over within 15 s",
                ));
            }
            std::thread::sleep(INTERVAL);
        }
    }
}
