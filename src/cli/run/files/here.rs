//! A file tool on this machine, without a proxy.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use futures::StreamExt as _;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::bar::Bar;
use super::sink::{IncomingAnswer, Sink};
use super::{Download, Transfer, Upload, print};
use crate::call::payload::CONTENT;
use crate::call::{Args, Output};
use crate::cli::interrupt::Ended;
use crate::cli::local::{Local, loaded};
use crate::cli::run::{result, warn_of};
use crate::cli::{Format, file_failure};
use crate::error::{Code, Failure};
use crate::exec::Progress;
use crate::exec::files::Content;
use crate::spool::Spooled;

/// Bytes that are hashed at a time.
const PIECE: usize = 256 << 10;

pub fn run(local: &Local, name: &str, transfer: Transfer, format: Format) -> Result<u8, Failure> {
    match transfer {
        Transfer::Download(download) => fetch(local, name, download, format),
        Transfer::Upload(upload) => send(local, name, upload, format),
    }
}

fn fetch(local: &Local, name: &str, download: Download, format: Format) -> Result<u8, Failure> {
    if download
        .args
        .get("delivery")
        .is_some_and(|how| how == "file")
    {
        return Err(Failure::invalid(
            "Invalid argument 'delivery': only a proxy keeps files; --out writes the file",
        ));
    }
    let bar = Bar::new();
    let args = raw(&download.args)?;
    let mut sink = Sink::new(download.out.as_deref())?;
    let shown = |progress: &Progress| {
        let total = progress.total.map(|total| total as u64);
        bar.set(progress.done as u64, total);
    };
    bar.wait("Downloading");
    let called = local.transfer(name, of(&args), Some(&shown), async |finished| {
        let (wanted, warnings) = (finished.format, finished.warnings);
        let mut facts = receive(finished.output, &mut sink, &bar).await?;
        let file = sink.finish(&mut facts).await?;
        Ok((facts, file, wanted, warnings))
    });
    drop(bar);
    match called? {
        Ended::Done((facts, file, wanted, warnings)) => {
            warn_of(&warnings);
            print::print(facts, Some(file), format, wanted)?;
            Ok(0)
        }
        Ended::Interrupted(code) => Ok(code),
    }
}

/// The answer without its file, which goes to the sink.
async fn receive(
    output: Output,
    sink: &mut Sink,
    bar: &Bar,
) -> Result<Map<String, Value>, Failure> {
    let Output::WithFiles(json) = output else {
        let message = "the download gave no file";
        return Err(Failure::new(Code::ExecutionFailed, message));
    };
    bar.begin("Writing", None);
    let mut answer = IncomingAnswer::new(CONTENT, sink, bar);
    let mut pieces = std::pin::pin!(json.into_stream());
    while let Some(piece) = pieces.next().await {
        let piece =
            piece.map_err(|e| Failure::new(Code::ExecutionFailed, "the file").because(e))?;
        answer.push(&piece).await?;
    }
    let (text, _) = answer.finish()?;
    serde_json::from_slice(&text).map_err(|e| Failure::from_error(Code::ExecutionFailed, e))
}

fn send(local: &Local, name: &str, upload: Upload, format: Format) -> Result<u8, Failure> {
    let bar = Bar::new();
    let args = raw(&upload.wire_args())?;
    let unread = |e| file_failure(Code::ExecutionFailed, Path::new(&upload.filename), e);
    let content = hashed(upload.file).map_err(unread)?;
    let args = Args::WithFile(Box::new(of(&args)), content);
    bar.wait("Uploading");
    let called = local.transfer(name, args, None, async |finished| {
        let (wanted, warnings) = (finished.format, finished.warnings);
        Ok((loaded(finished.output).await?, wanted, warnings))
    });
    drop(bar);
    match called? {
        Ended::Done((answer, wanted, warnings)) => {
            warn_of(&warnings);
            result::print(&answer, format, wanted);
            Ok(0)
        }
        Ended::Interrupted(code) => Ok(code),
    }
}

fn of(args: &RawValue) -> Args<'_> {
    Args::Text {
        args: Some(args),
        words: Vec::new(),
    }
}

fn raw(args: &Map<String, Value>) -> Result<Box<RawValue>, Failure> {
    to_raw_value(args).map_err(|e| Failure::from_error(Code::ExecutionFailed, e))
}

/// The file as the executor wants it. It is read once for its digest, and again when it is sent.
fn hashed(mut file: File) -> std::io::Result<Content> {
    let (mut digest, mut piece) = (Sha256::new(), vec![0; PIECE]);
    loop {
        match file.read(&mut piece)? {
            0 => break,
            read => digest.update(&piece[..read]),
        }
    }
    Ok(Content {
        body: Spooled::of_file(file)?,
        sha256: digest.finalize().into(),
    })
}
