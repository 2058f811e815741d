//! An answer of `/call` that may hold files.

use std::time::Instant;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use tokio::time::timeout;

use super::{Called, Opened, Remote, Response, not_ati, runtime};
use crate::call::CAPTURED_HEADER;
use crate::cli::cleanup::Interrupts;
use crate::cli::run::outputs::{Files, Incoming, Named};
use crate::error::{Code, Failure, UpstreamFault};
use crate::request_id;

impl Remote {
    /// Sends a call. Files in the answer are taken out of it while it comes in. Such an answer
    /// takes as long as it takes; any other has the usual time.
    pub(super) fn call_receiving(
        &self,
        body: String,
        named: &Named,
    ) -> Result<(Response, Option<Files>), Failure> {
        let mut prepared = self.prepare(&Method::POST, "call", &[])?;
        let json = HeaderValue::from_static("application/json");
        prepared.request = prepared.request.header(CONTENT_TYPE, json).body(body);
        runtime()?.block_on(async {
            let begun = Instant::now();
            let opened = timeout(self.timeout, prepared.open()).await;
            let opened = opened.map_err(|_| self.timed_out())??;
            if opened.head.status != 200 || !may_hold_files(&opened) {
                let left = self.timeout.saturating_sub(begun.elapsed());
                let answer = timeout(left, opened.read()).await;
                return Ok((answer.map_err(|_| self.timed_out())??, None));
            }
            let (answer, files) = receive(opened, named).await?;
            Ok((answer, Some(files)))
        })
    }

    fn timed_out(&self) -> Failure {
        let seconds = self.timeout.as_secs();
        let fault = UpstreamFault::Timeout.words();
        let message = format!("Proxy request failed: {fault} for {seconds} s");
        Failure::new(Code::ProviderTimeout, message).hint("ATI_PROXY_URL says where the proxy is")
    }
}

impl Called {
    /// Puts the files of the answer in their places.
    pub(super) fn with_files(self, files: Files) -> Result<Self, Failure> {
        let (result, unwritten) = files.place(self.result)?;
        let warnings = [self.warnings, unwritten].concat();
        Ok(Called {
            result,
            warnings,
            ..self
        })
    }
}

/// Whether ati put files into the answer. An upstream of the proxy can write an answer that looks
/// the same, so a proxy of this kind says it; an older one says nothing, and sends no request id.
fn may_hold_files(answer: &Opened) -> bool {
    answer.header(CAPTURED_HEADER).is_some() || answer.header(request_id::HEADER).is_none()
}

async fn receive(mut opened: Opened, named: &Named) -> Result<(Response, Files), Failure> {
    let mut incoming = Incoming::new(named);
    let mut interrupts = Interrupts::default();
    loop {
        let next = interrupts.race(incoming.leaves_traces(), opened.next());
        match next.await?? {
            Some(piece) => incoming.push(&piece)?,
            None => break,
        }
    }
    let (rest, files) = incoming.finish()?;
    let rest = String::from_utf8(rest).map_err(|_| not_ati())?;
    Ok((opened.head.with_body(rest), files))
}
