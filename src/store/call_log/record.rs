use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::request_id::RequestId;
use crate::store::Timestamp;

/// One row. Texts are cut by who makes it.
#[derive(Debug)]
pub struct CallRecord {
    pub request_id: RequestId,
    pub started_at: Timestamp,
    pub latency: Duration,
    /// Of a virtual key.
    pub token_hash: Option<Box<str>>,
    pub user_id: Option<Box<str>>,
    pub session_id: Option<Box<str>>,
    /// The path, without its query.
    pub endpoint: Box<str>,
    pub tool_name: Option<Box<str>>,
    pub provider: Option<Box<str>>,
    pub handler: Option<Box<str>>,
    /// What the caller got. None where it left before an answer.
    pub status: Option<u16>,
    pub upstream_status: Option<u16>,
    /// None where nothing went wrong.
    pub error_class: Option<Box<str>>,
    pub error_message: Option<Box<str>>,
    /// Redacted.
    pub request_args: Option<Box<RawValue>>,
    pub response_size: u64,
    pub requester_ip: Option<IpAddr>,
    pub user_agent: Option<Box<str>>,
    pub job_id: Option<Box<str>>,
    pub sandbox_id: Option<Box<str>>,
    pub customer_id: Option<Box<str>>,
    /// The caller's own id of the request.
    pub client_request_id: Option<Box<str>>,
}

impl CallRecord {
    /// About how much memory it takes.
    pub(super) fn size(&self) -> usize {
        let texts = [
            &self.token_hash,
            &self.user_id,
            &self.session_id,
            &self.tool_name,
            &self.provider,
            &self.handler,
            &self.error_class,
            &self.error_message,
            &self.user_agent,
            &self.job_id,
            &self.sandbox_id,
            &self.customer_id,
            &self.client_request_id,
        ];
        let texts: usize = texts
            .iter()
            .flat_map(|it| it.as_ref())
            .map(|it| it.len())
            .sum();
        let args = self
            .request_args
            .as_ref()
            .map_or(0, |args| args.get().len());
        size_of::<Self>() + self.endpoint.len() + texts + args
    }

    pub(super) fn ended_at(&self) -> Timestamp {
        let millis = i64::try_from(self.latency.as_millis()).unwrap_or(i64::MAX);
        self.started_at
            .plus_millis(millis)
            .unwrap_or(self.started_at)
    }

    /// The values of the columns in their order, as text. A database that gets them as text makes
    /// of them what the column is.
    pub(super) fn columns(&self) -> [Option<String>; COLUMNS.len()] {
        let text = |text: &Option<Box<str>>| text.as_deref().map(without_nul);
        [
            Some(self.request_id.to_string()),
            Some(self.started_at.millis().to_string()),
            Some(self.ended_at().millis().to_string()),
            Some(self.latency.as_millis().to_string()),
            text(&self.token_hash),
            text(&self.user_id),
            text(&self.session_id),
            Some(without_nul(&self.endpoint)),
            text(&self.tool_name),
            text(&self.provider),
            text(&self.handler),
            self.status.map(|status| status.to_string()),
            self.upstream_status.map(|status| status.to_string()),
            text(&self.error_class),
            text(&self.error_message),
            self.request_args
                .as_ref()
                .map(|args| json_without_nul(args.get()).into_owned()),
            Some(self.response_size.to_string()),
            self.requester_ip.map(|ip| ip.to_string()),
            text(&self.user_agent),
            text(&self.job_id),
            text(&self.sandbox_id),
            text(&self.customer_id),
            text(&self.client_request_id),
        ]
    }
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Uuid,
    Time,
    Int,
    Text,
    Json,
    Ip,
}

pub(super) const COLUMNS: [(&str, Kind); 23] = [
    ("request_id", Kind::Uuid),
    ("started_at", Kind::Time),
    ("ended_at", Kind::Time),
    ("latency_ms", Kind::Int),
    ("token_hash", Kind::Text),
    ("user_id", Kind::Text),
    ("session_id", Kind::Text),
    ("endpoint", Kind::Text),
    ("tool_name", Kind::Text),
    ("provider", Kind::Text),
    ("handler", Kind::Text),
    ("status", Kind::Int),
    ("upstream_status", Kind::Int),
    ("error_class", Kind::Text),
    ("error_message", Kind::Text),
    ("request_args", Kind::Json),
    ("response_size", Kind::Int),
    ("requester_ip", Kind::Ip),
    ("user_agent", Kind::Text),
    ("job_id", Kind::Text),
    ("sandbox_id", Kind::Text),
    ("customer_id", Kind::Text),
    ("client_request_id", Kind::Text),
];

/// PostgreSQL has no character 0 in its texts.
fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// The same in JSON, where the character is written as an escape.
fn json_without_nul(text: &str) -> Cow<'_, str> {
    if !text.contains("\\u0000") {
        return Cow::Borrowed(text);
    }
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return Cow::Borrowed("null");
    };
    Cow::Owned(value_without_nul(value).to_string())
}

fn value_without_nul(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(without_nul(&text)),
        Value::Array(list) => list.into_iter().map(value_without_nul).collect(),
        Value::Object(map) => map
            .into_iter()
            .map(|(name, value)| (without_nul(&name), value_without_nul(value)))
            .collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn character_zero_is_replaced_in_texts_names_and_values() {
        assert_eq!(without_nul("a\0b"), "a\u{fffd}b");
        assert_eq!(json_without_nul(r#"{"a":1}"#), r#"{"a":1}"#);
        let cleaned = json_without_nul(r#"{"a\u0000":["\u0000",{"b":"\\u0000"}]}"#);
        assert_eq!(
            cleaned,
            "{\"a\u{fffd}\":[\"\u{fffd}\",{\"b\":\"\\\\u0000\"}]}"
        );
    }
}
