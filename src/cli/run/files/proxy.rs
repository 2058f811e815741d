//! A file tool through the proxy. A proxy that says so takes and gives files as they are; with
//! others they are base64 in the JSON of `/call`.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use super::bar::Bar;
use super::sink::{IncomingAnswer, Received, Sink};
use super::{Download, Transfer, Upload, print};
use crate::api::FILES_HEADER;
use crate::call::payload::CONTENT;
use crate::catalog::ResultFormat;
use crate::cli::audit::RemoteCall;
use crate::cli::interrupt::{Ended, interruptible};
use crate::cli::remote::{self, Called, Opened, Remote};
use crate::cli::run::{result, suggest, warn_of};
use crate::cli::{Format, runtime};
use crate::error::{Code, Failure};
use crate::exec::JsonWithFiles;
use crate::request_id::RequestId;
use crate::spool::Spooled;

/// For the head of an answer, besides what the call itself may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// What the call may take where it doesn't say so itself: the default of downloads.
const CALL_TIME: u64 = 120;
/// A proxy works on an upload for as long as its destination takes.
const UPLOAD_TIME: Duration = Duration::from_secs(700);
/// A caller is given up that is slower than this.
const SLOWEST_BYTES_PER_SECOND: u64 = 256 << 10;

type Pieces = BoxStream<'static, io::Result<Bytes>>;

/// A transfer on its way.
struct Session<'a> {
    remote: &'a Remote,
    name: &'a str,
    bar: &'a Bar,
    /// The proxy's id of the call.
    request_id: Option<RequestId>,
}

/// An answer of `/call`, without its file.
struct Answer {
    result: Map<String, Value>,
    format: ResultFormat,
    warnings: Vec<String>,
}

pub fn run(remote: &Remote, name: &str, transfer: Transfer, format: Format) -> Result<u8, Failure> {
    let audited = match &transfer {
        Transfer::Download(download) => download.args.clone(),
        Transfer::Upload(upload) => upload.wire_args(),
    };
    let mut audit = RemoteCall::start(name, &crate::exec::files::for_audit(&audited));
    let bar = Bar::new();
    let mut session = Session {
        remote,
        name,
        bar: &bar,
        request_id: None,
    };
    let outcome = runtime()?.block_on(interruptible(async {
        match transfer {
            Transfer::Download(download) => session.download(download).await,
            Transfer::Upload(upload) => session.upload(upload).await,
        }
    }));
    audit.request_id = session.request_id;
    drop(bar);
    let interrupted = Failure::new(Code::ExecutionFailed, "interrupted");
    audit.end(match &outcome {
        Ok(Ended::Done(_)) => None,
        Ok(Ended::Interrupted(_)) => Some(&interrupted),
        Err(failure) => Some(failure),
    });
    match outcome {
        Ok(Ended::Done(Done::Printed(called))) => {
            warn_of(&called.warnings);
            result::print(&called.result, format, called.format);
            Ok(0)
        }
        Ok(Ended::Done(Done::File(answer, file))) => {
            warn_of(&answer.warnings);
            print::print(answer.result, file, format, answer.format)?;
            Ok(0)
        }
        Ok(Ended::Interrupted(code)) => Ok(code),
        Err(failure) => Err(suggest::of_remote(remote, name, failure)),
    }
}

enum Done {
    Printed(Called),
    File(Answer, Option<Received>),
}

impl Session<'_> {
    /// Whether the proxy has `/files`.
    async fn has_files(&self) -> bool {
        let asked = self.remote.open(Method::GET, "health", none(), PATIENCE);
        let Ok(answer) = asked.await else {
            // The call itself will say why there is no answer.
            return false;
        };
        answer.header(FILES_HEADER.as_str()) == Some("1")
    }

    async fn upload(&mut self, upload: Upload) -> Result<Done, Failure> {
        let (mut args, size) = (upload.wire_args(), upload.size);
        let content = Spooled::of_file(upload.file);
        let content =
            content.map_err(|e| Failure::new(Code::ExecutionFailed, "the file").because(e));
        let content = content?;
        let call = if self.has_files().await {
            let file = self
                .put(content, size, &upload.filename, &upload.content_type)
                .await?;
            args.insert("file".to_owned(), file.into());
            self.bar.wait("The proxy uploads");
            self.post(self.remote.call_body(self.name, &args.into()), UPLOAD_TIME)
                .await?
        } else {
            // The file goes into the object of arguments, as its last member.
            let mut text = self.remote.call_body(self.name, &args.into()).to_string();
            text.truncate(text.len() - 2);
            let body = JsonWithFiles::default()
                .text(format!("{text},\"{CONTENT}\":"))
                .file(content)
                .text("}}");
            let length = body.len();
            let upload = remote::Upload {
                pieces: self.counted(body.into_stream(), length, "Uploading"),
                length,
                headers: of_type("application/json"),
            };
            let opened = self
                .remote
                .open(Method::POST, "call", Some(upload), time_for(length));
            opened.await?
        };
        self.request_id = call.head.request_id;
        let called = self.remote.called(call.read().await?)?;
        Ok(Done::Printed(called))
    }

    /// Puts a file, for its id.
    async fn put(
        &self,
        content: Spooled,
        size: u64,
        name: &str,
        content_type: &str,
    ) -> Result<String, Failure> {
        let mut headers = of_type(content_type);
        let name = utf8_percent_encode(name, NON_ALPHANUMERIC).to_string();
        if let Ok(name) = HeaderValue::from_str(&name) {
            headers.insert(HeaderName::from_static("x-ati-filename"), name);
        }
        let upload = remote::Upload {
            pieces: self.counted(content.into_stream(), size, "Uploading"),
            length: size,
            headers,
        };
        let opened = self
            .remote
            .open(Method::PUT, "files", Some(upload), time_for(size));
        let answer = opened.await?.read().await?;
        if answer.status != 201 {
            return Err(answer.failure(self.remote.caller()));
        }
        let put: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        match (put["file"].as_str(), put["size_bytes"].as_u64()) {
            (Some(id), Some(got)) if got == size => Ok(id.to_owned()),
            _ => Err(Failure::new(
                Code::UpstreamError,
                "Proxy request failed: it did not take the whole file",
            )),
        }
    }

    async fn download(&mut self, download: Download) -> Result<Done, Failure> {
        let Download { mut args, out } = download;
        // Before the call: what can't be written isn't fetched.
        let mut sink = Sink::new(out.as_deref())?;
        if out.is_some() && self.has_files().await {
            args.insert("delivery".to_owned(), "file".into());
        }
        self.bar.wait("The proxy downloads");
        let timeout = match args.get("timeout") {
            Some(Value::String(text)) => text.trim().parse().ok(),
            other => other.and_then(Value::as_u64),
        };
        let time = PATIENCE + Duration::from_secs(timeout.unwrap_or(CALL_TIME));
        let body = self.remote.call_body(self.name, &args.into());
        let call = self.post(body, time).await?;
        self.request_id = call.head.request_id;
        if call.head.status != 200 {
            return Err(call.read().await?.failure(self.remote.caller()));
        }
        let (mut answer, has_file) = self.receive(call, &mut sink).await?;
        let id = answer.result.shift_remove("file");
        let id = id.as_ref().and_then(Value::as_str);
        match id {
            Some(id) if !has_file => self.get(id, &mut sink).await?,
            _ if has_file => {}
            _ => return Err(remote::not_ati()),
        }
        let file = sink.finish(&mut answer.result).await?;
        Ok(Done::File(answer, Some(file)))
    }

    /// The answer of a download: its file goes to the sink while it comes in.
    async fn receive(&self, mut call: Opened, sink: &mut Sink) -> Result<(Answer, bool), Failure> {
        // Three quarters of the text are bytes of the file.
        let size = call.content_length().map(|length| length / 4 * 3);
        self.bar.begin("Downloading", size);
        let mut answer = IncomingAnswer::new("result.content_base64", sink, self.bar);
        while let Some(piece) = call.next().await? {
            answer.push(&piece).await?;
        }
        let (text, has_file) = answer.finish()?;
        let text = String::from_utf8(text).map_err(|_| remote::not_ati())?;
        let called = self.remote.called(call.head.with_body(text))?;
        let result = serde_json::from_str(called.result.get());
        let answer = Answer {
            result: result.map_err(|_| remote::not_ati())?,
            format: called.format,
            warnings: called.warnings,
        };
        Ok((answer, has_file))
    }

    /// Fetches a file by its id.
    async fn get(&self, id: &str, sink: &mut Sink) -> Result<(), Failure> {
        let id = utf8_percent_encode(id, NON_ALPHANUMERIC);
        let path = format!("files/{id}");
        let mut opened = self
            .remote
            .open(Method::GET, &path, none(), PATIENCE)
            .await?;
        if opened.head.status != 200 {
            return Err(opened.read().await?.failure(self.remote.caller()));
        }
        self.bar.begin("Downloading", opened.content_length());
        while let Some(piece) = opened.next().await? {
            self.bar.add(piece.len());
            sink.write(&piece).await?;
        }
        Ok(())
    }

    async fn post(&self, body: Value, time: Duration) -> Result<Opened, Failure> {
        let body = Bytes::from(body.to_string());
        let upload = remote::Upload {
            length: body.len() as u64,
            pieces: stream::once(async { Ok(body) }),
            headers: of_type("application/json"),
        };
        let opened = self.remote.open(Method::POST, "call", Some(upload), time);
        opened.await
    }

    fn counted(
        &self,
        pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        length: u64,
        message: &'static str,
    ) -> Pieces {
        self.bar.begin(message, Some(length));
        let bar = self.bar.counter();
        let count = move |piece: &io::Result<Bytes>| {
            if let Ok(piece) = piece {
                bar.add(piece.len());
            }
        };
        pieces.inspect(count).boxed()
    }
}

fn none() -> Option<remote::Upload<Pieces>> {
    None
}

fn of_type(name: &str) -> HeaderMap {
    let value = HeaderValue::from_str(name);
    let value = value.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    HeaderMap::from_iter([(CONTENT_TYPE, value)])
}

/// For sending this much, and for what the proxy does with it.
fn time_for(bytes: u64) -> Duration {
    UPLOAD_TIME + Duration::from_secs(bytes / SLOWEST_BYTES_PER_SECOND)
}
