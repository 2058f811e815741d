//! Tools that are HTTP requests.

mod generator;
mod multipart;
mod oauth;
mod request;
pub(super) mod send;
mod style;
mod xai;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

pub use generator::GeneratorRecipe;
pub use oauth::OAuthRecipe;

use crate::catalog::{Handler, Tool};
use crate::config::ToolSettings;
use crate::credential::{Attachment, Credential};
use crate::egress::Clients;
use crate::error::{ToolError, UpstreamFault};
use crate::exec::Watcher;
use crate::runtime::{Made, Runtime};
use send::Answer;

/// More of an upstream's error than this says nothing more.
const LONGEST_ERROR: usize = 64 << 10;

/// What every call goes out with.
#[derive(Clone, Copy)]
pub struct Means<'a> {
    pub clients: &'a Arc<Clients>,
    pub runtime: &'a Runtime,
    pub limits: &'a ToolSettings,
    /// Who wants to hear how far a call is, where its handler tells.
    pub watcher: Option<Watcher<'a>>,
}

/// What one call presents: looked up, or to be minted.
pub enum Presents {
    Ready(Arc<Attachment>),
    Minted(Box<Mint>),
}

/// A credential that is made when it is needed, and kept for as long as it holds.
pub struct Mint {
    /// What it depends on, hashed: whoever has the same, shares it.
    pub key: [u8; 32],
    pub recipe: Recipe,
    /// How the primary value is presented.
    pub credential: Credential,
    /// What goes beside it.
    pub beside: Arc<Attachment>,
}

impl Mint {
    /// Whether it is made for one call only.
    pub fn keeps_nothing(&self) -> bool {
        matches!(&self.recipe, Recipe::Generator(recipe) if recipe.keeps_nothing())
    }
}

pub enum Recipe {
    OAuth2(OAuthRecipe),
    Generator(GeneratorRecipe),
}

/// Attachments of providers whose credentials are the same for every caller, resolved once per snapshot.
#[derive(Default)]
pub struct Prepared(Vec<OnceLock<Arc<Attachment>>>);

impl Prepared {
    pub fn new(providers: usize) -> Self {
        Prepared((0..providers).map(|_| OnceLock::new()).collect())
    }

    pub fn get_or_resolve(
        &self,
        provider: usize,
        resolve: impl FnOnce() -> Result<Attachment, ToolError>,
    ) -> Result<Arc<Attachment>, ToolError> {
        let Some(slot) = self.0.get(provider) else {
            return resolve().map(Arc::new);
        };
        if let Some(known) = slot.get() {
            return Ok(known.clone());
        }
        let resolved = Arc::new(resolve()?);
        Ok(slot.get_or_init(|| resolved).clone())
    }
}

/// One call. `base_url` is the provider's, with its keys filled in where it has any.
pub async fn run(
    tool: &Tool,
    args: &Map<String, Value>,
    base_url: &str,
    presents: &Presents,
    means: Means<'_>,
) -> Result<Box<RawValue>, ToolError> {
    let timeout = means.limits.timeout;
    let answer = tokio::time::timeout(timeout, call(tool, args, base_url, presents, means))
        .await
        .unwrap_or(Err(ToolError::Request(UpstreamFault::Timeout)));
    answer.map_err(|error| match (error, tool.provider.http()) {
        // Its key may be part of the host.
        (ToolError::Blocked(_), Some(http)) if http.url.is_some() => {
            ToolError::Blocked(http.base_url.clone())
        }
        (error, _) => error,
    })
}

async fn call(
    tool: &Tool,
    args: &Map<String, Value>,
    base_url: &str,
    presents: &Presents,
    means: Means<'_>,
) -> Result<Box<RawValue>, ToolError> {
    let source = tool.provider.http().and_then(|http| http.source);
    let agentic = matches!(tool.provider.handler, Handler::Xai(_));
    let wire = if agentic {
        request::build(tool, &xai::question(&tool.endpoint, args), base_url)?
    } else {
        request::build(tool, args, base_url)?
    };
    let attachment = obtain(presents, source, means).await?;
    let mut answer = send::send(&wire, &attachment, source, means).await?;
    let mut presented = attachment;
    if let Presents::Minted(mint) = presents
        && answer.is_unauthorized()
        // It was good when it was made; it isn't any more. Once: a second refusal means something else.
        && means.runtime.minted.forget(mint.key, &presented)
    {
        presented = obtain(presents, source, means).await?;
        answer = send::send(&wire, &presented, source, means).await?;
    }
    presented.redact(&mut answer.body);
    let result = into_result(answer)?;
    if agentic {
        xai::answer(&result)
    } else {
        Ok(result)
    }
}

pub(super) async fn obtain(
    presents: &Presents,
    source: Option<IpAddr>,
    means: Means<'_>,
) -> Result<Arc<Attachment>, ToolError> {
    let mint = match presents {
        Presents::Ready(attachment) => return Ok(attachment.clone()),
        Presents::Minted(mint) => mint,
    };
    let make = async || {
        let minted = match &mint.recipe {
            Recipe::OAuth2(recipe) => recipe.mint(source, means).await?,
            Recipe::Generator(recipe) => recipe.mint().await?,
        };
        let headers: Vec<_> = minted
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), value.as_slice()))
            .collect();
        let value = mint
            .beside
            .with_minted(&mint.credential, &minted.value, &headers)
            .ok_or_else(|| ToolError::UnusableKey("minted".to_owned()))?
            .with_environment(&minted.value, &minted.env);
        Ok(Made {
            value,
            lifetime: minted.lifetime,
        })
    };
    // What holds for one call is nobody else's to wait for.
    if mint.keeps_nothing() {
        return make().await.map(|made| Arc::new(made.value));
    }
    means.runtime.minted.get(mint.key, make).await
}

/// What a recipe makes.
struct Minted {
    value: Zeroizing<Vec<u8>>,
    headers: Vec<(::http::HeaderName, Zeroizing<Vec<u8>>)>,
    /// For programs.
    env: Vec<(String, Zeroizing<Vec<u8>>)>,
    lifetime: std::time::Duration,
}

fn into_result(answer: Answer) -> Result<Box<RawValue>, ToolError> {
    if answer.is_success() {
        return Ok(as_json(&answer.body));
    }
    if answer.is_not_found() && answer.body.len() <= LONGEST_ERROR && says_no_records(&answer.body)
    {
        return Ok(as_json(br#"{"records":[]}"#));
    }
    let text = String::from_utf8_lossy(&answer.body);
    Err(ToolError::Status {
        status: answer.status(),
        body: text[..text.floor_char_boundary(LONGEST_ERROR)].to_owned(),
    })
}

/// JSON passes as it came; anything else becomes a JSON string.
fn as_json(body: &[u8]) -> Box<RawValue> {
    let text = |body: &[u8]| {
        let text = String::from_utf8_lossy(body);
        serde_json::value::to_raw_value(&text).unwrap_or_default()
    };
    serde_json::from_slice(body).unwrap_or_else(|_| text(body))
}

/// Some APIs answer "nothing found" with 404. To an agent that is a result.
fn says_no_records(body: &[u8]) -> bool {
    let Ok(body) = serde_json::from_slice::<Value>(body) else {
        return false;
    };
    let message = body["error"]["message"]
        .as_str()
        .or_else(|| body["error"].as_str())
        .or_else(|| body["message"].as_str())
        .unwrap_or_default()
        .trim();
    if body["type"] == "not_found" || body["error"]["type"] == "not_found" {
        let bare = message.trim_end_matches('.');
        if bare.eq_ignore_ascii_case("not found") {
            return true;
        }
    }
    let lower = message.to_lowercase();
    let rest = lower.strip_prefix("no ").unwrap_or(&lower);
    ["records", "companies", "persons", "results", "matches"]
        .iter()
        .filter_map(|subject| rest.strip_prefix(subject))
        .any(|rest| {
            rest.strip_prefix(" were")
                .unwrap_or(rest)
                .starts_with(" found")
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn which_404_is_a_result() {
        for good in [
            json!({"error": {"message": "No records found"}}),
            json!({"error": "no results were found for this query"}),
            json!({"message": "Companies found: none"}),
            json!({"message": "matches found"}),
            json!({"type": "not_found", "message": "Not found"}),
        ] {
            assert!(says_no_records(good.to_string().as_bytes()), "{good}");
        }
        for bad in [
            json!({"error": {"message": "Endpoint not found"}}),
            json!({"message": "Not found"}),
            json!({"message": "No such records"}),
            json!({"type": "not_found", "message": "No such key"}),
            json!("No records found"),
        ] {
            assert!(!says_no_records(bad.to_string().as_bytes()), "{bad}");
        }
        assert!(!says_no_records(b"No records found"));
    }

    #[test]
    fn answers_pass_as_they_came_or_become_text() {
        let exact = r#"{"b": 1.00, "a": 12345678901234567890, "b": 2}"#;
        assert_eq!(as_json(exact.as_bytes()).get(), exact);
        assert_eq!(as_json(b"hello").get(), "\"hello\"");
        assert_eq!(as_json(b"").get(), "\"\"");
        assert_eq!(as_json(b"\xff").get(), "\"\u{fffd}\"");
    }
}
