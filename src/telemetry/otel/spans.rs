//! The spans of a request, made when it is over.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{IdGenerator as _, SpanData, SpanEvents, SpanLinks};

use super::{Export, RequestTrace, Spans};
use crate::request_id::RequestId;

/// What is told of a request, to spans and to metrics.
pub struct RequestFacts<'a> {
    /// A built-in endpoint's path, or [`UNMATCHED`].
    pub route: &'a str,
    /// The name of the route that the path leads to, refused requests included.
    pub passthrough: Option<&'a str>,
    pub method: &'a str,
    /// Without the query. Empty where it isn't known.
    pub path: &'a str,
    /// 0 where there was no answer.
    pub status: u16,
    pub took: Duration,
    /// None where it never became a request.
    pub request_id: Option<RequestId>,
    /// The label of a refusal, or of an upstream's failure.
    pub failure: Option<&'a str>,
    /// An upstream failed, whatever the caller's status is.
    pub upstream_failed: bool,
    pub inner: Option<Inner<'a>>,
}

/// Methods that are told by name. Others are a caller's own words.
const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
];

impl RequestFacts<'_> {
    pub(super) fn known_method(&self) -> &'static str {
        let known = METHODS.iter().find(|known| **known == self.method);
        known.unwrap_or(&"_OTHER")
    }

    /// A refusal is the caller's doing, and no error of ati's.
    fn is_error(&self) -> bool {
        self.status >= 500 || self.status == 0 || self.upstream_failed
    }
}

/// What the request was for.
#[derive(Clone, Copy)]
pub enum Inner<'a> {
    Call {
        tool: Option<&'a str>,
        provider: Option<&'a str>,
    },
    Mcp {
        method: Option<&'a str>,
        tool: Option<&'a str>,
    },
    Help,
    Passthrough {
        route: &'a str,
        /// None where it never came to that.
        upstream: Option<&'a str>,
    },
}

/// The route of requests that no built-in endpoint has.
pub const UNMATCHED: &str = "/__passthrough_or_unmatched";

impl Export {
    /// A request is over.
    pub fn request(&self, facts: &RequestFacts<'_>, trace: Option<&RequestTrace>) {
        if let Some(instruments) = &self.instruments {
            instruments.request(facts);
        }
        if let (Some(spans), Some(trace)) = (&self.spans, trace)
            && trace.sampled
        {
            spans.request(facts, trace);
        }
    }
}

impl Spans {
    pub(super) fn work(&self, name: &'static str, took: Duration, ok: bool) {
        let trace = self.ids.new_trace_id();
        if !self.sampler.samples(trace, None) {
            return;
        }
        let end = SystemTime::now();
        let start = end.checked_sub(took).unwrap_or(end);
        let ids = (trace, self.ids.new_span_id(), SpanId::INVALID);
        let mut span = self.span(name, SpanKind::Internal, ids, (start, end), Vec::new());
        if !ok {
            span.status = Status::error("");
        }
        self.queue.push(span);
    }

    fn request(&self, facts: &RequestFacts<'_>, trace: &RequestTrace) {
        let times = (trace.started, trace.started + facts.took);
        if let Some(inner) = facts.inner {
            let ids = (trace.trace, trace.inner, trace.server);
            let (name, kind, attributes) = describe(inner);
            let mut span = self.span(name, kind, ids, times, attributes);
            span.attributes.extend(request_id(facts));
            mark(&mut span, facts);
            self.queue.push(span);
        }
        let mut attributes = Vec::with_capacity(7);
        attributes.push(text("http.route", facts.route));
        attributes.push(KeyValue::new("http.request.method", facts.known_method()));
        if !facts.path.is_empty() {
            attributes.push(text("url.path", facts.path));
        }
        attributes.extend(request_id(facts));
        if facts.status > 0 {
            let status = i64::from(facts.status);
            attributes.push(KeyValue::new("http.response.status_code", status));
        }
        match facts.failure {
            Some(failure) => attributes.push(text("error.type", failure)),
            // An upstream's own answer.
            None if facts.status >= 500 => {
                attributes.push(text("error.type", &facts.status.to_string()));
            }
            None => {}
        }
        let ids = (trace.trace, trace.server, trace.parent);
        let name = "http.server.request";
        let mut span = self.span(name, SpanKind::Server, ids, times, attributes);
        span.parent_span_is_remote = trace.parent != SpanId::INVALID;
        mark(&mut span, facts);
        self.queue.push(span);
    }

    fn span(
        &self,
        name: &'static str,
        span_kind: SpanKind,
        (trace, span, parent): (TraceId, SpanId, SpanId),
        (start_time, end_time): (SystemTime, SystemTime),
        attributes: Vec<KeyValue>,
    ) -> SpanData {
        let state = TraceState::NONE;
        SpanData {
            span_context: SpanContext::new(trace, span, TraceFlags::SAMPLED, false, state),
            parent_span_id: parent,
            parent_span_is_remote: false,
            span_kind,
            name: Cow::Borrowed(name),
            start_time,
            end_time,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

fn describe(inner: Inner<'_>) -> (&'static str, SpanKind, Vec<KeyValue>) {
    let mut attributes = Vec::with_capacity(4);
    let mut add = |name: &'static str, value: Option<&str>| {
        attributes.extend(value.map(|value| text(name, value)));
    };
    let (name, kind) = match inner {
        Inner::Call { tool, provider } => {
            add("tool", tool);
            add("provider", provider);
            ("proxy.call", SpanKind::Internal)
        }
        Inner::Mcp { method, tool } => {
            add("jsonrpc.method", method);
            add("tool", tool);
            ("proxy.mcp", SpanKind::Internal)
        }
        Inner::Help => ("proxy.help", SpanKind::Internal),
        Inner::Passthrough { route, upstream } => {
            add("route", Some(route));
            add("upstream", upstream);
            ("passthrough.request", SpanKind::Client)
        }
    };
    (name, kind, attributes)
}

fn mark(span: &mut SpanData, facts: &RequestFacts<'_>) {
    if facts.is_error() {
        let why = facts.failure.unwrap_or_default().to_owned();
        span.status = Status::error(why);
    }
}

fn request_id(facts: &RequestFacts<'_>) -> Option<KeyValue> {
    let id = facts.request_id?;
    Some(text("request_id", id.text().as_str()))
}

pub(super) fn text(name: &'static str, value: &str) -> KeyValue {
    KeyValue::new(name, Value::String(StringValue::from(value.to_owned())))
}
