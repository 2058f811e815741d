//! Where the bytes of a download go, and the answer that they come in.

use bytes::Bytes;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::bar::Bar;
use super::out_file::OutFile;
use crate::error::{Code, Failure};
use crate::json_scan::{Event, Scanner};
use crate::spool::{Quota, Spool, Spooled};

/// The text of an answer besides its file.
const MOST_TEXT: usize = 16 << 20;
/// A file that is printed stays in memory up to this size.
const IN_MEMORY: usize = 1 << 20;

/// Takes the bytes of a file.
pub struct Sink {
    place: Place,
    size: u64,
    digest: Sha256,
}

enum Place {
    Out {
        file: OutFile,
        path: String,
    },
    /// To be printed.
    Spool(Spool),
}

/// A file that is whole.
pub enum Received {
    /// The path as it was typed.
    Out(String),
    Spooled(Spooled),
}

impl Sink {
    pub fn new(out: Option<&str>) -> Result<Self, Failure> {
        let place = match out {
            Some(path) => Place::Out {
                file: OutFile::create(path)?,
                path: path.to_owned(),
            },
            None => Place::Spool(Spool::new(IN_MEMORY, Quota::new(u64::MAX))),
        };
        Ok(Sink {
            place,
            size: 0,
            digest: Sha256::new(),
        })
    }

    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.size += bytes.len() as u64;
        self.digest.update(bytes);
        match &mut self.place {
            Place::Out { file, .. } => file.write(bytes),
            Place::Spool(spool) => spool.write(bytes).await.map_err(unspooled),
        }
    }

    /// `facts` is what the answer says about the file. A file that isn't that one is not kept.
    pub async fn finish(self, facts: &mut Map<String, Value>) -> Result<Received, Failure> {
        let damaged = |what: &str| {
            let message = format!("the file arrived with another {what} than the answer says");
            Failure::new(Code::ExecutionFailed, message)
        };
        let size = facts.get("size_bytes").and_then(Value::as_u64);
        if size.is_some_and(|size| size != self.size) {
            return Err(damaged("size"));
        }
        let digest = hex::encode(self.digest.finalize());
        match facts.get("sha256").and_then(Value::as_str) {
            Some(told) if told != digest => return Err(damaged("SHA-256")),
            Some(_) => {}
            None => {
                facts.insert("sha256".to_owned(), digest.into());
            }
        }
        match self.place {
            Place::Out { file, path } => {
                file.finish()?;
                Ok(Received::Out(path))
            }
            Place::Spool(spool) => {
                let spooled = spool.finish().await.map_err(unspooled)?;
                Ok(Received::Spooled(spooled))
            }
        }
    }
}

fn unspooled(error: crate::spool::SpoolError) -> Failure {
    Failure::from_error(Code::ExecutionFailed, error)
}

/// An answer that may hold a file, while it comes in.
pub struct IncomingAnswer<'a> {
    scanner: Scanner,
    sink: &'a mut Sink,
    bar: &'a Bar,
    has_file: bool,
}

impl<'a> IncomingAnswer<'a> {
    /// `path` is where the file is in the JSON text.
    pub fn new(path: &str, sink: &'a mut Sink, bar: &'a Bar) -> Self {
        IncomingAnswer {
            scanner: Scanner::new(MOST_TEXT).divert(path),
            sink,
            bar,
            has_file: false,
        }
    }

    pub async fn push(&mut self, piece: &Bytes) -> Result<(), Failure> {
        for event in self.scanner.push(piece).map_err(unreadable)? {
            match event {
                Event::Begin { .. } => self.has_file = true,
                Event::Bytes(bytes) => {
                    self.bar.add(bytes.len());
                    self.sink.write(&bytes).await?;
                }
                Event::End | Event::Found { .. } => {}
            }
        }
        Ok(())
    }

    /// The rest of the text, and whether there was a file in it.
    pub fn finish(self) -> Result<(Vec<u8>, bool), Failure> {
        let text = self.scanner.finish().map_err(unreadable)?;
        Ok((text, self.has_file))
    }
}

fn unreadable(error: crate::json_scan::ScanError) -> Failure {
    let message = "the answer can't be read";
    Failure::new(Code::UpstreamError, message).because(error)
}
