//! What callers may do, by what tools do: who is denied, what has to be confirmed, what a token
//! leaves, and whether `ati explain` tells the truth about all of it.

mod command_line;
mod confirmations;
mod delegation;
mod elicitation;
mod explain;
mod explain_callers;
mod merged;
mod over_mcp;
mod uploads;
mod vocabulary;

use ati::auth::token::{Claims, Signer};
use serde_json::{Value, json};

use crate::support::ati::{Proxy, Setup};
use crate::support::http::Response;
use crate::support::tokens::claims;
use crate::support::upstream::Upstream;

/// Tools of one upstream, with what is said about them.
const TOOLS: &str = r#"
[[tools]]
name = "gh:repo_delete"
method = "POST"
endpoint = "/delete"
effects = { destructive = true, network = true, deletes = ["repository"] }
input_schema = { type = "object", required = ["repo"], properties = { repo = { type = "string" }, force = { type = "boolean" } } }

[[tools]]
name = "gh:repo_view"
endpoint = "/view"

[[tools]]
name = "gh:issue_remove"
method = "DELETE"
endpoint = "/issue"

[[tools]]
name = "gh:asks"
method = "POST"
endpoint = "/asks"
effects = { confirm = true, destructive = false }

[[tools]]
name = "gh:costly"
method = "POST"
endpoint = "/costly"
effects = { cost = { estimate = "high", billable = true }, duration = { timeout = "10m" } }
"#;

fn upstream() -> Upstream {
    let body = r#"{"done":true}"#;
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    Upstream::fixed(answer)
}

fn setup(api: &Upstream, conf: &str) -> Setup {
    let setup = Setup::new().tools("gh", &api.url(), "", TOOLS);
    match conf {
        "" => setup,
        conf => setup.conf(conf),
    }
}

/// A token with this policy in it, whatever it is.
fn delegated(signer: &Signer, subject: &str, delegation: &Value) -> String {
    let claims = Claims {
        sub: subject.to_owned(),
        ..claims()
    };
    let mut claims = serde_json::to_value(claims).unwrap();
    claims["ati"] = json!({"v": 1, "delegation": delegation});
    format!("Bearer {}", signer.issue_as(&claims, "ati").unwrap())
}

/// `POST /call` with a confirmation.
fn confirmed(
    proxy: &Proxy,
    token: Option<&str>,
    tool: &str,
    args: Value,
    confirm: &str,
) -> Response {
    let body = json!({"tool_name": tool, "args": args, "confirm": confirm}).to_string();
    let headers: Vec<_> = token.map(|it| ("authorization", it)).into_iter().collect();
    proxy
        .client()
        .send("POST", "/call", &headers, body.as_bytes())
}

/// The token of a call that wants to be confirmed.
fn confirmation(answer: &Response) -> String {
    assert_eq!(answer.status, 409, "{}", answer.text());
    answer.json()["confirmation"]["token"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn error(answer: &Response) -> String {
    answer.json()["error"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}
