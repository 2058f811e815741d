//! What a collector answers to a batch that it takes.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use serde::Deserialize;
use serde_json::Value;

/// How many spans or points the collector says it refused. None where the answer is none of OTLP.
pub fn rejected(body: &[u8]) -> Option<u64> {
    // The answers for spans and for metrics have the same fields under the same numbers.
    if let Ok(answer) = ExportTraceServiceResponse::decode(body) {
        let rejected = answer.partial_success.map(|part| part.rejected_spans);
        return Some(positive(rejected.unwrap_or_default()));
    }
    // Some collectors answer in JSON whatever they were sent.
    let answer: JsonAnswer = serde_json::from_slice(body).ok()?;
    let Some(part) = answer.partial_success else {
        return Some(0);
    };
    // JSON of protobuf writes numbers of 64 bits as texts.
    let rejected = match &part.rejected {
        Value::String(text) => text.parse().ok()?,
        Value::Null => 0,
        number => number.as_i64()?,
    };
    Some(positive(rejected))
}

fn positive(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonAnswer {
    partial_success: Option<JsonPart>,
}

#[derive(Deserialize)]
struct JsonPart {
    #[serde(default, alias = "rejectedSpans", alias = "rejectedDataPoints")]
    rejected: Value,
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::metrics::v1::{
        ExportMetricsPartialSuccess, ExportMetricsServiceResponse,
    };
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

    use super::*;

    #[test]
    fn answer_of_both_signals_says_how_much_was_refused() {
        let spans = |rejected_spans| ExportTraceServiceResponse {
            partial_success: Some(ExportTracePartialSuccess {
                rejected_spans,
                error_message: "quota".to_owned(),
            }),
        };
        let points = ExportMetricsServiceResponse {
            partial_success: Some(ExportMetricsPartialSuccess {
                rejected_data_points: 3,
                error_message: String::new(),
            }),
        };
        assert_eq!(rejected(&spans(2).encode_to_vec()), Some(2));
        assert_eq!(rejected(&spans(0).encode_to_vec()), Some(0));
        assert_eq!(rejected(&spans(-1).encode_to_vec()), Some(0));
        assert_eq!(rejected(&points.encode_to_vec()), Some(3));
        assert_eq!(rejected(b""), Some(0));
    }

    #[test]
    fn answer_in_json_is_read_too() {
        let cases = [
            ("{}", Some(0)),
            (r#"{"partialSuccess":{}}"#, Some(0)),
            (r#"{"partialSuccess":null}"#, Some(0)),
            (r#"{"partialSuccess":{"rejectedSpans":"2"}}"#, Some(2)),
            (r#"{"partialSuccess":{"rejectedDataPoints":4}}"#, Some(4)),
            (r#"{"partialSuccess":{"rejectedSpans":"many"}}"#, None),
        ];
        for (body, expected) in cases {
            assert_eq!(rejected(body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn answer_that_is_none_of_otlp_is_noticed() {
        for body in [&b"\xff\xfegarbage"[..], b"<html></html>", b"ok", b"[1]"] {
            assert_eq!(rejected(body), None, "{body:?}");
        }
    }
}
