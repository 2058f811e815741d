//! HTTP for executors: the guarded clients, the address check, bounded answers, errors that tell no
//! URL.

use std::error::Error as _;
use std::net::IpAddr;

use url::{Origin, Url};

use super::ExecContext;
pub use super::incoming::Incoming;
use crate::credential::{Attachment, Redactor, query};
use crate::egress::{self, Blocked, Clients, EgressError, fault};
use crate::error::Shortage;
use crate::runtime::ComputeError;
use crate::spool::{Spool, SpoolError, Spooled};

/// The pooled client for connections from this address.
pub fn client(clients: &Clients, source: Option<IpAddr>) -> Result<reqwest::Client, EgressError> {
    clients
        .get(source)
        .map_err(|problem| EgressError::Setup(problem.to_string()))
}

/// Whether the allowlist and the address rules let this URL through. The error tells scheme and
/// host only: a path or a query may hold a credential.
pub fn check(clients: &Clients, url: &Url) -> Result<(), EgressError> {
    clients
        .guard()
        .check(url)
        .map_err(|_| EgressError::Blocked(url.origin().ascii_serialization()))
}

/// [`check`] of a URL whose parts are known.
pub fn check_origin(clients: &Clients, origin: &egress::Origin) -> Result<(), EgressError> {
    clients
        .guard()
        .check_origin(origin)
        .map_err(|_| EgressError::Blocked(origin.as_str().to_owned()))
}

pub fn failed(error: &reqwest::Error, origin: &Origin) -> EgressError {
    failed_at(error, &origin.ascii_serialization())
}

pub fn failed_at(error: &reqwest::Error, origin: &str) -> EgressError {
    match fault(error) {
        Ok(fault) => EgressError::Request(fault),
        Err(Blocked(_)) => EgressError::Blocked(origin.to_owned()),
    }
}

/// Puts a query credential into the URL.
pub fn append_query(url: &mut Url, pair: &str) {
    let query = query::with_credential(url.query().unwrap_or_default(), pair);
    url.set_query(Some(&query));
}

/// The whole body, as long as it has at most `most` bytes.
pub async fn read(
    mut response: reqwest::Response,
    origin: &Origin,
    most: usize,
) -> Result<Vec<u8>, EgressError> {
    let too_large = || EgressError::TooLarge(most as u64);
    let announced = response.content_length().unwrap_or(0);
    if announced > most as u64 {
        return Err(too_large());
    }
    let mut body = Vec::with_capacity(announced as usize);
    while let Some(chunk) = response.chunk().await.map_err(|e| failed(&e, origin))? {
        if body.len() + chunk.len() > most {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// An answer's body without the secrets of its request.
pub enum Redacted {
    Memory(Vec<u8>),
    Spooled(Spooled),
}

/// A text up to this size is searched where it is, which takes about a millisecond.
const SMALL: usize = 64 << 10;
/// Of a body that goes to a spool, how much is searched at a time.
const BATCH: usize = 256 << 10;

/// Reads a body of at most `max_response_bytes`. Past `spool_bytes` it goes to a spool, piece by
/// piece, so that memory holds no more than that of it. What is big is searched on the threads for
/// long work, where `owner` waits for its turn.
pub async fn read_redacted(
    mut answer: Incoming,
    attachment: &Attachment,
    owner: &str,
    context: ExecContext<'_>,
) -> Result<Redacted, EgressError> {
    let limits = context.limits;
    let too_large = || EgressError::TooLarge(limits.max_response_bytes as u64);
    let announced = answer.announced();
    if announced > limits.max_response_bytes as u64 {
        return Err(too_large());
    }
    let mut memory = Vec::with_capacity((announced as usize).min(limits.spool_bytes));
    let mut spool: Option<(Spool, Redactor)> = None;
    let mut total = 0;
    loop {
        let before = memory.len();
        if !answer.read_into(&mut memory).await? {
            break;
        }
        total += memory.len() - before;
        if total > limits.max_response_bytes {
            return Err(too_large());
        }
        if total <= limits.spool_bytes || (spool.is_some() && memory.len() < BATCH) {
            continue;
        }
        let (to, redactor) = spool.take().unwrap_or_else(|| {
            let spool = Spool::new(0, context.runtime.spools.clone());
            (spool, attachment.redactor())
        });
        spool = Some(to_spool(to, redactor, std::mem::take(&mut memory), owner, context).await?);
    }
    match spool {
        None if memory.len() <= SMALL || attachment.patterns().is_empty() => {
            attachment.redact(&mut memory);
            Ok(Redacted::Memory(memory))
        }
        None => {
            let patterns = attachment.patterns();
            let redact = move || {
                patterns.redact(&mut memory);
                memory
            };
            Ok(Redacted::Memory(compute(owner, context, redact).await?))
        }
        Some((spool, redactor)) => {
            let (mut spool, redactor) = to_spool(spool, redactor, memory, owner, context).await?;
            let rest = redactor.finish();
            spool.write(&rest).await.map_err(not_spooled)?;
            let body = spool.finish().await.map_err(not_spooled)?;
            Ok(Redacted::Spooled(body))
        }
    }
}

async fn to_spool(
    mut spool: Spool,
    mut redactor: Redactor,
    batch: Vec<u8>,
    owner: &str,
    context: ExecContext<'_>,
) -> Result<(Spool, Redactor), EgressError> {
    let search = move || {
        let clean = redactor.push(&batch);
        (redactor, clean)
    };
    let (redactor, clean) = compute(owner, context, search).await?;
    spool.write(&clean).await.map_err(not_spooled)?;
    Ok((spool, redactor))
}

/// Does work that may take long, on the threads for that.
pub async fn compute<T: Send + 'static>(
    owner: &str,
    context: ExecContext<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, EgressError> {
    let time = context.limits.timeout;
    let done = context.runtime.compute.run(owner, time, work).await;
    done.map_err(|error| match error {
        ComputeError::Full => EgressError::Busy(Shortage::Queue),
        ComputeError::TimedOut => EgressError::Busy(Shortage::Time),
        ComputeError::Failed => EgressError::Spool(error.to_string()),
    })
}

/// The error of a call whose answer can't be kept.
pub fn not_spooled(error: SpoolError) -> EgressError {
    if error.is_shortage() {
        return EgressError::Busy(Shortage::Spool);
    }
    let cause = error.source().map(|cause| format!(": {cause}"));
    EgressError::Spool(format!("{error}{}", cause.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_credential_replaces_every_parameter_of_its_name() {
        for (before, after) in [
            ("http://h/", "http://h/?key=ours"),
            ("http://h/?a=1", "http://h/?a=1&key=ours"),
            (
                "http://h/?key=theirs&a=1&key=again",
                "http://h/?a=1&key=ours",
            ),
            ("http://h/?", "http://h/?key=ours"),
            (
                "http://h/?KEY=theirs&k%65y=too&b=2",
                "http://h/?b=2&key=ours",
            ),
        ] {
            let mut url = Url::parse(before).unwrap();
            append_query(&mut url, "key=ours");
            assert_eq!(url.as_str(), after);
        }
    }
}
