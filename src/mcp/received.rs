//! A client's message, taken apart once: everything that a server of tools reads, and no more.

use http::HeaderMap;
use serde_json::value::RawValue;

use super::{Era, Incoming, Params, Request, agree, era_of_headers, meta_era, parse, text_of};
use crate::error::{RpcError, RpcRefusal};

#[derive(Debug)]
pub enum Received {
    Request(Box<ClientRequest>),
    /// The client takes the request with this id back.
    Cancelled {
        id: Box<RawValue>,
    },
    /// An answer to a request with this id.
    Answer {
        id: Box<RawValue>,
    },
    /// A notification of another kind: there is nothing to do.
    Nothing,
}

#[derive(Debug)]
pub struct ClientRequest {
    pub id: Box<RawValue>,
    pub method: String,
    pub era: Era,
    /// `params.name`, where that is a text.
    pub name: Option<String>,
    /// `params.uri`, where that is a text.
    pub uri: Option<String>,
    /// The client says in this request that it knows the skills extension.
    pub knows_skills: bool,
    pub arguments: Option<Box<RawValue>>,
    /// The token of a confirmation: `_meta` has it as `ati/confirm`, or the user was asked.
    pub confirm: Option<String>,
    /// The user was asked, and doesn't want the call.
    pub is_declined: bool,
    /// The client can ask its user.
    pub offers_elicitation: bool,
    pub cursor: Option<Box<RawValue>>,
    pub protocol_version: Option<String>,
    /// Progress is reported under it, where the client wants that.
    pub progress_token: Option<Box<RawValue>>,
    /// `params.notifications` of `subscriptions/listen`.
    pub subscription: Option<Box<RawValue>>,
}

impl Received {
    /// `headers` are those of the HTTP request; None over standard streams.
    pub fn read(text: &[u8], headers: Option<&HeaderMap>) -> Result<Self, RpcRefusal> {
        let refuse = |error, era, id: Option<&RawValue>| RpcRefusal {
            error,
            era,
            id: id.map(|id| id.get().into()),
        };
        let by_header = headers.map_or(Era::Handshake, era_of_headers);
        match parse(text) {
            Err((error, id)) => Err(refuse(error, by_header, id)),
            Ok(Incoming::Request(request)) => {
                let refused = |error| refuse(error, by_header, Some(request.id));
                let params = Params::read(request.params).map_err(refused)?;
                let era = match headers {
                    Some(headers) => agree(headers, &request, &params),
                    None => meta_era(&request, &params),
                };
                let era = era.map_err(|error| {
                    // A client that sends `_meta` reads the answers of the stateless era.
                    let stateless = params.meta_fields.protocol_version.is_some();
                    let era = if stateless { Era::Stateless } else { by_header };
                    refuse(error, era, Some(request.id))
                })?;
                Ok(Received::Request(Box::new(own(&request, &params, era))))
            }
            Ok(Incoming::Notification { method, params }) if method == CANCELLED => {
                let params = Params::read(params).unwrap_or_default();
                Ok(match params.request_id {
                    Some(id) => Received::Cancelled { id: id.to_owned() },
                    None => Received::Nothing,
                })
            }
            Ok(Incoming::Response(id)) => Ok(Received::Answer { id: id.to_owned() }),
            Ok(Incoming::Notification { .. }) => Ok(Received::Nothing),
        }
    }
}

const CANCELLED: &str = "notifications/cancelled";
/// Skills over MCP, SEP-2640.
pub const SKILLS_EXTENSION: &str = "io.modelcontextprotocol/skills";

fn own(request: &Request<'_>, params: &Params<'_>, era: Era) -> ClientRequest {
    let text = |raw: Option<&RawValue>| raw.and_then(text_of).map(|text| text.into_owned());
    let elicited = params.elicited();
    let is_declined = elicited.as_ref().is_some_and(|(_, agrees)| !agrees);
    let agreed = elicited.filter(|(_, agrees)| *agrees);
    ClientRequest {
        is_declined,
        offers_elicitation: params.offers_elicitation(),
        id: request.id.to_owned(),
        method: request.method.clone().into_owned(),
        era,
        name: text(params.name),
        uri: text(params.uri),
        knows_skills: params.has_extension(SKILLS_EXTENSION),
        arguments: params.arguments.map(RawValue::to_owned),
        confirm: text(params.meta_fields.confirm).or(agreed.map(|(state, _)| state)),
        cursor: params.cursor.map(RawValue::to_owned),
        protocol_version: text(params.protocol_version),
        progress_token: params.progress_token().map(RawValue::to_owned),
        subscription: params.notifications.map(RawValue::to_owned),
    }
}

impl ClientRequest {
    pub fn refuse(&self, error: RpcError) -> RpcRefusal {
        RpcRefusal {
            error,
            era: self.era,
            id: Some(self.id.get().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_a_request_a_cancellation_an_answer_or_nothing() {
        let read = |text: &str| Received::read(text.as_bytes(), None);
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":1}}}"#;
        let Ok(Received::Request(request)) = read(call) else {
            panic!("no request");
        };
        assert_eq!(request.name.as_deref(), Some("a"));
        assert_eq!(request.arguments.unwrap().get(), r#"{"x":1}"#);
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"7"}}"#;
        assert!(matches!(read(cancel), Ok(Received::Cancelled { id }) if id.get() == "\"7\""));
        for nothing in [
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        ] {
            assert!(matches!(read(nothing), Ok(Received::Nothing)), "{nothing}");
        }
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert!(matches!(read(answer), Ok(Received::Answer { id }) if id.get() == "1"));
    }

    #[test]
    fn refusal_has_the_id_and_the_era_of_its_request() {
        let body = r#"{"jsonrpc":"2.0","id":9,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2099-01-01"}}}"#;
        let refusal = Received::read(body.as_bytes(), None).unwrap_err();
        assert_eq!(
            (refusal.error.code(), refusal.era),
            (-32022, Era::Stateless)
        );
        assert_eq!(refusal.id.as_deref(), Some("9"));
        let text = String::from_utf8(refusal.body()).unwrap();
        assert!(text.contains(r#""supported":["2026-07-28","#), "{text}");
    }
}
