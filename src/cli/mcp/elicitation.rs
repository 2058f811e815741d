//! Calls that want a confirmation, of a client that made the handshake: where it said there that it
//! can ask its user, the user is asked while the call waits. Standard streams lead both ways, which
//! requests over HTTP don't.

use serde_json::Value;

use super::stdio::{Client, Server};
use crate::api::mcp;
use crate::error::Confirmation;
use crate::mcp::{ClientRequest, Era, Received, agrees, with_confirm};

/// Bytes of an answer that asks for a confirmation. Longer ones are results.
const LONGEST: usize = 256 << 10;

/// The answer of `server` to the request; the user is asked in between where it has to be.
pub async fn answer<S: Server>(
    server: &S,
    request: &ClientRequest,
    line: &[u8],
    client: &Client,
) -> Option<Vec<u8>> {
    let answer = server.answer(request, line, client).await?;
    let Some(wanted) = wanted(request, &answer, client) else {
        return Some(answer);
    };
    let question = mcp::question(&wanted, request);
    let Some(said) = client.ask("elicitation/create", &question).await else {
        // The client couldn't ask: its model learns what is wanted.
        return Some(answer);
    };
    if !agrees(&said) {
        return Some(mcp::declined(request));
    }
    match confirmed(line, &wanted.token) {
        Some((request, line)) => server.answer(&request, &line, client).await,
        None => Some(answer),
    }
}

/// What the answer wants to be confirmed, where this client's user can be asked for it.
fn wanted(request: &ClientRequest, answer: &[u8], client: &Client) -> Option<Confirmation> {
    let may_ask = request.era == Era::Handshake
        && request.method == "tools/call"
        && request.confirm.is_none()
        && client.can_ask();
    if !may_ask || answer.len() > LONGEST {
        return None;
    }
    let answer = std::str::from_utf8(answer).ok()?;
    if !answer.contains(mcp::CONFIRMATION) {
        return None;
    }
    let mut answer: Value = serde_json::from_str(answer).ok()?;
    let result = &mut answer["result"];
    let is_error = result["isError"] == true;
    let wanted = result["_meta"][mcp::CONFIRMATION].take();
    serde_json::from_value(wanted).ok().filter(|_| is_error)
}

/// The same request with the token of its confirmation.
fn confirmed(line: &[u8], token: &str) -> Option<(ClientRequest, Vec<u8>)> {
    let line = with_confirm(line, Some(token))?;
    match Received::read(&line, None) {
        Ok(Received::Request(request)) => Some((*request, line)),
        _ => None,
    }
}
