//! `download`: fetches a file into a spool. A download that breaks off goes on where it broke, if
//! the server can do that and the file is still the same.

use std::net::IpAddr;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use super::arguments::{DownloadArgs, shown_url};
use super::content::{Content, Incoming};
use super::error::{DownloadFault, FilesError};
use super::hops::{Hop, Hops};
use super::resume::{Validator, continues_at};
use crate::egress::{EgressError, host_and_port};
use crate::exec::egress::failed;
use crate::exec::{Answer, ExecContext, JsonWithFiles, Progress};

/// How often a download that breaks off is taken up again.
const MOST_RESUMES: u32 = 5;
/// Before the second attempt, and twice as long before each other one.
const PAUSE: Duration = Duration::from_millis(200);
/// Bytes of an error's body that the caller is shown.
const LONGEST_ERROR: usize = 512;

/// A file that was downloaded.
#[derive(Debug)]
pub struct Downloaded {
    pub content: Content,
    pub content_type: Option<String>,
    /// As the caller sent it.
    pub source_url: String,
}

impl Downloaded {
    /// The answer without the bytes.
    pub fn facts(&self) -> Value {
        json!({
            "success": true,
            "size_bytes": self.content.len(),
            "content_type": self.content_type,
            "source_url": self.source_url,
            "sha256": self.content.sha256_hex(),
        })
    }

    /// The answer with the bytes as base64.
    pub fn into_answer(self) -> Answer {
        let mut begin = self.facts().to_string();
        // The object goes on with the bytes.
        begin.pop();
        let json = JsonWithFiles::default()
            .text(begin + ",\"content_base64\":")
            .file(self.content.body)
            .text("}");
        Answer::WithFiles(json)
    }
}

pub async fn download(
    args: DownloadArgs,
    source: Option<IpAddr>,
    context: ExecContext<'_>,
) -> Result<Downloaded, FilesError> {
    context.trail.leads_to(host_and_port(args.url.as_str()));
    let timeout = args.timeout;
    let fetched = tokio::time::timeout(timeout, fetch(&args, source, context)).await;
    let late = || DownloadFault::Timeout(timeout.as_secs()).into();
    let (content, content_type) = fetched.unwrap_or_else(|_| Err(late()))?;
    Ok(Downloaded {
        content,
        content_type,
        source_url: args.source_url,
    })
}

async fn fetch(
    args: &DownloadArgs,
    source: Option<IpAddr>,
    context: ExecContext<'_>,
) -> Result<(Content, Option<String>), FilesError> {
    let _wait = context.trail.wait();
    let hops = Hops::new(args, source, context)?;
    let mut transfer = Transfer::begin(args, &hops, context).await?;
    let mut resumes = 0;
    loop {
        let fault = match transfer.read().await? {
            None => return transfer.finish().await,
            Some(fault) => fault,
        };
        resumes += 1;
        if resumes > MOST_RESUMES {
            return Err(fault.into());
        }
        if resumes > 1 {
            tokio::time::sleep(PAUSE * (1 << (resumes - 2))).await;
        }
        transfer = transfer.resume(fault, args, &hops).await?;
    }
}

/// A file on its way.
struct Transfer<'a> {
    response: reqwest::Response,
    /// Where the file was found: there it is asked for again.
    hop: Hop,
    content_type: Option<String>,
    /// What tells this version of the file from others.
    validator: Option<Validator>,
    /// The length of the whole file, where the server said it.
    total: Option<u64>,
    incoming: Incoming,
    /// The connection is broken, and there is no other one yet.
    broken: Option<DownloadFault>,
    context: ExecContext<'a>,
}

impl<'a> Transfer<'a> {
    async fn begin(
        args: &DownloadArgs,
        hops: &Hops<'_>,
        context: ExecContext<'a>,
    ) -> Result<Self, FilesError> {
        let (response, hop) = hops.open(hops.first(), &HeaderMap::new()).await?;
        Transfer::of(response, hop, args, context).await
    }

    async fn of(
        response: reqwest::Response,
        hop: Hop,
        args: &DownloadArgs,
        context: ExecContext<'a>,
    ) -> Result<Self, FilesError> {
        let status = response.status().as_u16();
        if !response.status().is_success() {
            return Err(FilesError::Status {
                status,
                url: shown_url(&hop.url),
                body: begin_of(response).await,
            });
        }
        let headers = response.headers();
        let total = length(headers);
        if total.is_some_and(|total| total > args.max_bytes) {
            return Err(FilesError::TooLarge(args.max_bytes));
        }
        // A caller that asks for a part of the file gets that part in one piece, or not at all.
        let is_whole = status == 200 && !args.headers.contains_key(RANGE);
        Ok(Transfer {
            validator: Validator::of(headers).filter(|_| is_whole),
            content_type: headers
                .get(CONTENT_TYPE)
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
            total,
            incoming: Incoming::new(args.max_bytes, context.runtime),
            broken: None,
            response,
            hop,
            context,
        })
    }

    /// Reads to the end. `Some`: the connection broke before that.
    async fn read(&mut self) -> Result<Option<DownloadFault>, FilesError> {
        if let Some(fault) = self.broken.take() {
            return Ok(Some(fault));
        }
        let origin = self.hop.url.origin();
        loop {
            match self.response.chunk().await {
                Ok(Some(piece)) => {
                    self.incoming.write(&piece).await?;
                    self.show_progress();
                }
                Ok(None) => return Ok(None),
                Err(error) => match failed(&error, &origin) {
                    fault @ EgressError::Request(_) => {
                        return Ok(Some(DownloadFault::Egress(fault)));
                    }
                    other => return Err(DownloadFault::Egress(other).into()),
                },
            }
        }
    }

    fn show_progress(&self) {
        if let Some(watcher) = self.context.watcher {
            watcher(&Progress {
                done: self.incoming.len() as f64,
                total: self.total.map(|total| total as f64),
                message: None,
            });
        }
    }

    /// Asks for the rest of the file. A server that sends all of it again has another version: then
    /// what came before is dropped.
    async fn resume(
        mut self,
        fault: DownloadFault,
        args: &DownloadArgs,
        hops: &Hops<'_>,
    ) -> Result<Self, FilesError> {
        let Some(validator) = &self.validator else {
            return Err(fault.into());
        };
        let received = self.incoming.len();
        let broken = |why| FilesError::from(DownloadFault::BrokenOff(received, why));
        let mut headers = HeaderMap::new();
        let range = HeaderValue::from_str(&format!("bytes={received}-"));
        headers.insert(RANGE, range.map_err(|_| broken("it has no length"))?);
        headers.insert(IF_RANGE, validator.value().clone());
        let (response, hop) = match hops.open(self.hop.clone(), &headers).await {
            Ok(opened) => opened,
            // The server isn't there at the moment: the next attempt may find it.
            Err(FilesError::Download(DownloadFault::Egress(EgressError::Request(_)))) => {
                self.broken = Some(fault);
                return Ok(self);
            }
            Err(other) => return Err(other),
        };
        match response.status().as_u16() {
            206 if continues_at(response.headers(), received, self.total)
                && validator.is_kept_by(response.headers()) =>
            {
                self.response = response;
                Ok(self)
            }
            206 => Err(broken("the server sent another part of it")),
            200 => {
                let context = self.context;
                // Its place in the quota is free before the new one takes its own.
                drop(self);
                Transfer::of(response, hop, args, context).await
            }
            _ => Err(broken("the server refused to send it")),
        }
    }

    async fn finish(self) -> Result<(Content, Option<String>), FilesError> {
        let received = self.incoming.len();
        if self.total.is_some_and(|total| total != received) {
            let why = "it has another length than the server said";
            return Err(DownloadFault::BrokenOff(received, why).into());
        }
        Ok((self.incoming.finish().await?, self.content_type))
    }
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The first bytes of an error's body, as text.
async fn begin_of(mut response: reqwest::Response) -> String {
    let mut body = Vec::new();
    while body.len() < LONGEST_ERROR {
        match response.chunk().await {
            Ok(Some(piece)) => body.extend_from_slice(&piece),
            Ok(None) | Err(_) => break,
        }
    }
    body.truncate(LONGEST_ERROR);
    String::from_utf8_lossy(&body).into_owned()
}
