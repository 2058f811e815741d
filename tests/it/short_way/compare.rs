//! What both ways have to have in common, and what they needn't.
//!
//! These differ, or depend on timing, whichever way a request takes:
//! - the date, the request id, the ids of upstreams and callers' ports, times in the log;
//! - the order of headers with different names, which means nothing in HTTP;
//! - where chunks begin and end;
//! - where an exchange breaks off: how much of it was passed on before that, informational answers
//!   included.
//!
//! These differ on purpose:
//! - Pingora sends an idempotent request again whose answer broke off before its head was whole;
//!   the short way does so only where no byte of an answer came.
//! - The short way refuses an answer that begins with an empty line, and cuts off one that has a
//!   chunk without a size, or a malformed trailer. The exchanges have none; `smuggling.rs` looks at
//!   them.
//! - A built-in endpoint that reads no body is asked with one: Pingora closes the connection after
//!   the answer, the short way reads the body and goes on.
//! - An answer over `max_response_bytes` is 502 or cut off, whichever way it takes: the tests of
//!   routes look at that.
//! - The cause of a failure in the log is in the words of the program that found it.
//! - A request for a whole URL behind another one, or in pieces, which the short way hands over as
//!   one head: with `ATI_SHORT_WAY=off`, Pingora may refuse it. The exchanges have none.

use std::collections::BTreeMap;

use serde_json::Value;

use super::caller::{Delimited, End, Received};
use super::generate::Case;
use super::scripted::Seen;

/// What came of an exchange.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub received: Vec<Received>,
    pub end: End,
    /// How a canary fared afterwards: on the same connection, or on a new one.
    pub canary: End,
    pub seen: Vec<Seen>,
    /// Whether the upstream's connection of the last request is kept. Each way has its own, so
    /// that a canary may come on another one.
    pub is_kept: bool,
    /// The address of the upstream, which is in its requests.
    pub upstream: String,
}

type Headers = BTreeMap<String, Vec<String>>;

fn grouped(headers: &[(String, Vec<u8>)], replace: impl Fn(&str, String) -> String) -> Headers {
    let mut found = Headers::new();
    for (name, value) in headers {
        let value = value.escape_ascii().to_string();
        let lower = name.to_lowercase();
        let value = replace(&lower, value);
        found.entry(lower).or_default().push(value);
    }
    found
}

/// An answer without what differs each time.
fn answer(received: &Received) -> (String, Headers, Headers, Delimited, bool) {
    let headers = grouped(&received.headers, |name, value| match name {
        "x-request-id" => "an id".to_owned(),
        "date" if !value.contains("1994") => "now".to_owned(),
        "transfer-encoding" => value.to_lowercase(),
        _ => value,
    });
    let trailers = grouped(&received.trailers, |_, value| value);
    (
        received.line.clone(),
        headers,
        trailers,
        received.delimited,
        received.is_whole,
    )
}

fn request(seen: &Seen, upstream: &str) -> (String, Headers) {
    let text = seen.head.strip_suffix(b"\r\n\r\n").unwrap_or(&seen.head);
    let mut lines = text.split(|byte| *byte == b'\n').map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        line.escape_ascii().to_string()
    });
    let first = lines.next().unwrap_or_default();
    let mut headers = Headers::new();
    for line in lines {
        let (name, value) = line.split_once(':').unwrap_or((&line, "no colon"));
        let value = value.replace(upstream, "its own address");
        headers.entry(name.to_owned()).or_default().push(value);
    }
    (first, headers)
}

fn same_bytes(one: &[u8], other: &[u8], breaks_off: bool) -> bool {
    one == other || (breaks_off && (one.starts_with(other) || other.starts_with(one)))
}

/// The answers that are compared.
fn comparable<'a>(case: &Case, outcome: &'a Outcome) -> Vec<&'a Received> {
    let all = outcome.received.iter();
    all.filter(|received| !case.breaks_off || !received.is_informational())
        .collect()
}

/// What differs, in words; none if nothing does.
pub fn differences(case: &Case, short: &Outcome, long: &Outcome) -> Vec<String> {
    let mut found = Vec::new();
    // Pingora sends an idempotent request again that was answered in part, the short way doesn't.
    if case.breaks_off && long.seen.len() > short.seen.len() {
        return found;
    }
    let mut check = |what: &str, short: String, long: String| {
        if short != long {
            found.push(format!("{what}: {short}\n      Pingora: {long}"));
        }
    };
    let counts = |outcome: &Outcome| {
        let received = comparable(case, outcome);
        let lines: Vec<&str> = received
            .iter()
            .map(|received| received.line.as_str())
            .collect();
        format!("{lines:?}")
    };
    check("answers", counts(short), counts(long));
    check(
        "connection",
        format!("{:?}", short.end),
        format!("{:?}", long.end),
    );
    check(
        "canary",
        format!("{:?}", short.canary),
        format!("{:?}", long.canary),
    );
    check(
        "requests",
        short.seen.len().to_string(),
        long.seen.len().to_string(),
    );
    // Each way has connections of its own. One that Pingora wouldn't use again is never used again.
    if short.is_kept {
        check(
            "upstream's connection kept",
            short.is_kept.to_string(),
            long.is_kept.to_string(),
        );
    }
    for (short, long) in comparable(case, short).iter().zip(comparable(case, long)) {
        check(
            "answer",
            format!("{:?}", answer(short)),
            format!("{:?}", answer(long)),
        );
        if !same_bytes(&short.body, &long.body, case.breaks_off) {
            check("body", clipped(&short.body), clipped(&long.body));
        }
    }
    for (one, other) in short.seen.iter().zip(&long.seen) {
        let wanted = request(other, &long.upstream);
        check(
            "request",
            format!("{:?}", request(one, &short.upstream)),
            format!("{wanted:?}"),
        );
        if !same_bytes(&one.body, &other.body, case.breaks_off) {
            check("request's body", clipped(&one.body), clipped(&other.body));
        }
        if !case.breaks_off {
            check(
                "request whole",
                one.is_whole.to_string(),
                other.is_whole.to_string(),
            );
        }
    }
    found
}

fn clipped(bytes: &[u8]) -> String {
    let text = bytes[..bytes.len().min(200)].escape_ascii().to_string();
    format!("{} bytes: {text}", bytes.len())
}

/// Fields of the log that are different for each request.
const VARYING: &[&str] = &[
    "timestamp",
    "ts",
    "ms",
    "duration_ms",
    "connect_ms",
    "upstream_ms",
    "request_id",
    "peer",
    "upstream",
];

/// A log record without what differs each time; of those fields it only counts that they are
/// there.
pub fn record(mut record: Value, breaks_off: bool) -> Value {
    let Some(fields) = record.as_object_mut() else {
        return record;
    };
    for name in VARYING {
        if let Some(value) = fields.get_mut(*name) {
            *value = "varies".into();
        }
    }
    // The words of the parser that found the fault.
    fields.remove("cause");
    if breaks_off {
        // Pingora may have sent it again.
        fields.remove("attempts");
        fields.remove("bytes_in");
        fields.remove("bytes_out");
    }
    record
}
