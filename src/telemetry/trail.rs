//! What a tool call does on its way, for the access line of its request.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::otel::Traceparent;
use crate::error::UpstreamFailure;
use crate::text;
use serde::Serialize;
use serde_json::value::RawValue;

/// A caller's method may have any length.
const LONGEST_METHOD: usize = 64;

/// The pipeline and the executors write it while a call runs, the access line reads it when the
/// request is over, however that ended. Without locks: calls share nothing of it.
#[derive(Debug, Default)]
pub struct CallTrail {
    /// None where no spans are exported.
    traceparent: Option<Traceparent>,
    tool: OnceLock<Box<str>>,
    provider: OnceLock<Box<str>>,
    /// Of JSON-RPC.
    method: OnceLock<Box<str>>,
    upstream: OnceLock<Box<str>>,
    /// 0 while there is none.
    status: AtomicU16,
    attempts: AtomicU32,
    upstream_micros: AtomicU64,
    failure: OnceLock<CallFailure>,
    file: OnceLock<FileFacts>,
    /// Whether `facts` are wanted.
    keeps_facts: bool,
    facts: OnceLock<CallFacts>,
}

/// What the call log says of a call, as the audit does.
#[derive(Debug)]
pub struct CallFacts {
    /// As the caller named the tool.
    pub name: Box<str>,
    /// None where the tool isn't known.
    pub provider: Option<Box<str>>,
    pub handler: Option<Box<str>>,
    /// Redacted.
    pub args: Box<RawValue>,
    pub error: Option<Box<str>>,
}

/// How a call failed whose caller is told so in an answer, and not by a refusal.
#[derive(Debug, Clone, Copy)]
pub struct CallFailure {
    /// The label in metrics.
    pub label: &'static str,
    /// None where ati ended the call itself.
    pub upstream: Option<UpstreamFailure>,
}

/// What the audit tells of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileFacts {
    pub size_bytes: u64,
    /// In hex.
    pub sha256: String,
}

impl CallTrail {
    /// `keeps_facts`: there is a call log that wants them.
    pub fn new(keeps_facts: bool, traceparent: Option<Traceparent>) -> Self {
        CallTrail {
            keeps_facts,
            traceparent,
            ..CallTrail::default()
        }
    }

    /// What upstreams are told of the trace. None where no spans are exported.
    pub fn traceparent(&self) -> Option<Traceparent> {
        self.traceparent
    }

    /// The call is over. The facts are made only where they are wanted.
    pub fn ended(&self, facts: impl FnOnce() -> CallFacts) {
        if self.keeps_facts {
            let _ = self.facts.set(facts());
        }
    }

    pub fn facts(&self) -> Option<&CallFacts> {
        self.facts.get()
    }

    /// The tool's canonical name, whatever the caller called it.
    pub fn resolved(&self, tool: &str) {
        let _ = self.tool.set(tool.into());
    }

    pub fn provided_by(&self, provider: &str) {
        let _ = self.provider.set(provider.into());
    }

    /// The method of a JSON-RPC message. Only spans have it.
    pub fn asked(&self, method: &str) {
        if self.traceparent.is_some() {
            let _ = self.method.set(text::clip(method, LONGEST_METHOD).into());
        }
    }

    /// Where the call goes: a host and a port. No more of a URL than that: the rest may hold a
    /// credential.
    pub fn leads_to(&self, upstream: Option<Box<str>>) {
        if let Some(upstream) = upstream {
            let _ = self.upstream.set(upstream);
        }
    }

    /// The call is sent, perhaps once more.
    pub fn attempt(&self) {
        self.attempts.fetch_add(1, Ordering::Relaxed);
    }

    /// The upstream answered with this status. The last one counts.
    pub fn answered(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    pub fn failed(&self, failure: CallFailure) {
        let _ = self.failure.set(failure);
    }

    pub fn failure(&self) -> Option<CallFailure> {
        self.failure.get().copied()
    }

    /// Counts as time of the upstream until it is dropped.
    pub fn wait(&self) -> UpstreamWait<'_> {
        UpstreamWait {
            trail: self,
            since: Instant::now(),
        }
    }

    /// The call has this file, whole.
    pub fn has_file(&self, file: FileFacts) {
        let _ = self.file.set(file);
    }

    pub fn file(&self) -> Option<FileFacts> {
        self.file.get().cloned()
    }

    pub fn method(&self) -> Option<&str> {
        self.method.get().map(AsRef::as_ref)
    }

    pub fn provider(&self) -> Option<&str> {
        self.provider.get().map(AsRef::as_ref)
    }

    pub fn tool(&self) -> Option<&str> {
        self.tool.get().map(AsRef::as_ref)
    }

    pub fn upstream(&self) -> Option<&str> {
        self.upstream.get().map(AsRef::as_ref)
    }

    pub fn status(&self) -> Option<u16> {
        Some(self.status.load(Ordering::Relaxed)).filter(|status| *status > 0)
    }

    /// 0: the call ended before it was sent.
    pub fn attempts(&self) -> u32 {
        self.attempts.load(Ordering::Relaxed)
    }

    pub fn upstream_time(&self) -> Duration {
        Duration::from_micros(self.upstream_micros.load(Ordering::Relaxed))
    }
}

/// Ends with the wait, also where the call is dropped because its caller left.
pub struct UpstreamWait<'a> {
    trail: &'a CallTrail,
    since: Instant,
}

impl Drop for UpstreamWait<'_> {
    fn drop(&mut self) {
        let micros = self.since.elapsed().as_micros() as u64;
        self.trail
            .upstream_micros
            .fetch_add(micros, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trail_keeps_the_first_upstream_and_the_last_status() {
        let trail = CallTrail::default();
        assert_eq!((trail.status(), trail.attempts()), (None, 0));
        for (upstream, status) in [("a:1", 401), ("b:2", 200)] {
            let _wait = trail.wait();
            trail.leads_to(Some(upstream.into()));
            trail.attempt();
            trail.answered(status);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(trail.upstream(), Some("a:1"));
        assert_eq!((trail.status(), trail.attempts()), (Some(200), 2));
        assert!(trail.upstream_time() >= Duration::from_millis(2));
    }
}
