//! File tools: from a call's arguments and the manifest's destinations to what the executor gets.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use serde_json::{Map, Value};

use super::Call;
use super::payload::{self, Delivery, StoredId, failed};
use crate::catalog::Handler;
use crate::catalog::files::{Destination, FileOperation, NoDestination};
use crate::credential::{Attachment, Credential};
use crate::derived_key::KeyBuilder;
use crate::error::CallError;
use crate::exec::Answer;
use crate::exec::credentials::{CallCredential, DeferredCredential, Recipe, ServiceAccountRecipe};
use crate::exec::files::{
    self, Content, DownloadArgs, FilesError, Target, Upload, UploadArgs, UploadFault,
};
use crate::keyring::Secret;
use crate::keyring::stored::Unreadable;
use crate::telemetry::trail::FileFacts;

/// What a token for Google Cloud Storage may be used for.
const GCS_SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_write";

/// `content` is the file of an upload, where it isn't among the arguments.
pub async fn run(
    call: &Call<'_>,
    operation: FileOperation,
    args: Map<String, Value>,
    content: Option<Content>,
) -> Result<Answer, CallError> {
    match operation {
        FileOperation::Download => download(call, args).await,
        FileOperation::Upload => upload(call, args, content).await,
    }
}

async fn download(call: &Call<'_>, args: Map<String, Value>) -> Result<Answer, CallError> {
    let (args, delivery) = download_args(call, args)?;
    let source = call.provider.outbound.source;
    let downloaded = files::download(args, source, call.exec_context()).await;
    let downloaded = downloaded.map_err(failed)?;
    record(call, &downloaded.content);
    delivery.answer(downloaded, call)
}

fn download_args(
    call: &Call<'_>,
    mut args: Map<String, Value>,
) -> Result<(DownloadArgs, Delivery), CallError> {
    let delivery = Delivery::take(&mut args)?;
    let most = call.context.file_limits.max_bytes;
    let args = DownloadArgs::read(&args, most).map_err(failed)?;
    Ok((args, delivery))
}

/// Whether a call could be made, as far as its arguments and this machine decide. The text says
/// where it leads to.
pub async fn check(
    call: &Call<'_>,
    operation: FileOperation,
    args: Map<String, Value>,
) -> Result<String, CallError> {
    match operation {
        FileOperation::Download => {
            let (args, _) = download_args(call, args)?;
            files::check_download(&args, call.exec_context()).map_err(failed)?;
            Ok(format!("from '{}'", files::shown_url(&args.url)))
        }
        FileOperation::Upload => {
            let ready = ready_upload(call, args, false)?;
            let name = ready.name;
            if let Source::Encoded(text) = ready.source {
                let most = call.context.file_limits.max_bytes;
                let decoded = files::from_base64(&text, most, call.exec_context()).await;
                decoded.map_err(failed)?;
            }
            Ok(format!("to '{name}'"))
        }
    }
}

/// An upload whose arguments are good, and whose destination has its credential.
struct ReadyUpload<'a> {
    args: UploadArgs,
    name: &'a str,
    target: Target<'a>,
    source: Source,
}

/// Where the bytes of an upload are.
enum Source {
    /// They came with the call.
    Given,
    Stored(StoredId),
    Encoded(String),
}

fn ready_upload<'a>(
    call: &Call<'a>,
    mut args: Map<String, Value>,
    is_given: bool,
) -> Result<ReadyUpload<'a>, CallError> {
    let encoded = args.shift_remove(payload::CONTENT);
    let has_content = is_given || encoded.as_ref().is_some_and(|text| !text.is_null());
    let stored = StoredId::take(call, &mut args, has_content)?;
    let args = UploadArgs::read(&args).map_err(failed)?;
    let chosen = match &call.provider.handler {
        Handler::FileManager(manager) => manager.choose(args.destination.as_deref()),
        _ => Err(NoDestination::NoneAtAll),
    };
    let chosen = chosen.map_err(|why| no_destination(why, args.destination.clone()));
    let (name, destination) = chosen.map_err(failed)?;
    let target = target(call, destination).map_err(|fault| failed(fault.into()))?;
    let source = match (is_given, stored, encoded) {
        (true, ..) => Source::Given,
        (false, Some(stored), _) => Source::Stored(stored),
        (false, None, Some(Value::String(text))) => Source::Encoded(text),
        (false, None, None | Some(Value::Null)) => {
            return Err(failed(FilesError::MissingArgument(payload::CONTENT)));
        }
        (false, None, Some(_)) => {
            return Err(failed(FilesError::Base64("it is no text".to_owned())));
        }
    };
    Ok(ReadyUpload {
        args,
        name,
        target,
        source,
    })
}

async fn upload(
    call: &Call<'_>,
    args: Map<String, Value>,
    content: Option<Content>,
) -> Result<Answer, CallError> {
    let ready = ready_upload(call, args, content.is_some())?;
    let content = match (content, ready.source) {
        (Some(content), _) => content,
        // Only here: a call that could never be made doesn't use the file up.
        (None, Source::Stored(stored)) => stored.claim(call)?,
        (None, Source::Encoded(text)) => {
            let most = call.context.file_limits.max_bytes;
            let decoded = files::from_base64(&text, most, call.exec_context()).await;
            decoded.map_err(failed)?
        }
        (None, Source::Given) => {
            return Err(failed(FilesError::MissingArgument(payload::CONTENT)));
        }
    };
    record(call, &content);
    let file = Upload {
        filename: ready.args.filename,
        content_type: ready.args.content_type,
        content,
    };
    let (name, source) = (ready.name, call.provider.outbound.source);
    let answer = files::upload(file, name, ready.target, source, call.exec_context()).await;
    Ok(Answer::Memory(answer.map_err(failed)?))
}

fn record(call: &Call<'_>, content: &Content) {
    call.trail.has_file(FileFacts {
        size_bytes: content.len(),
        sha256: content.sha256_hex(),
    });
}

fn no_destination(why: NoDestination, asked: Option<String>) -> FilesError {
    match why {
        NoDestination::NoneAtAll => FilesError::NotConfigured(
            "a manifest with handler = \"file_manager\" has to name them in \
             [provider.upload_destinations]",
        ),
        NoDestination::NoDefault => FilesError::NotConfigured(
            "the call names no destination, and the manifest has no upload_default_destination",
        ),
        NoDestination::Unknown => FilesError::UnknownDestination(asked.unwrap_or_default()),
    }
}

fn target<'a>(call: &Call<'a>, destination: &'a Destination) -> Result<Target<'a>, UploadFault> {
    let get = |name: &str| {
        let missing = || UploadFault::MissingKey(name.to_owned());
        let found = call.lookup.get(name);
        found.map_err(unreadable)?.ok_or_else(missing)
    };
    Ok(match destination {
        Destination::Gcs(settings) => Target::Gcs {
            credential: service_account(get(&settings.key)?, &settings.key),
            settings,
        },
        Destination::FalStorage { key, endpoint } => Target::FalStorage {
            key: Arc::new(fal_key(call, key)?),
            endpoint,
        },
        Destination::S3(settings) => Target::S3 {
            access_key: get(&settings.access_key)?,
            secret_key: get(&settings.secret_key)?,
            settings,
        },
        Destination::Local { directory } => Target::Local { directory },
    })
}

fn unreadable(row: Unreadable) -> UploadFault {
    UploadFault::Credential(row.into())
}

/// The token depends on the account and on nothing else: calls share it.
fn service_account(account: Secret, name: &str) -> CallCredential {
    let key = KeyBuilder::new("service account token").with((account.expose(), GCS_SCOPE));
    CallCredential::Deferred(Box::new(DeferredCredential {
        key: key.finish(),
        recipe: Recipe::ServiceAccount(ServiceAccountRecipe {
            account,
            scope: GCS_SCOPE,
        }),
        credential: Credential::Bearer {
            key: name.to_owned(),
        },
        static_part: Arc::default(),
    }))
}

fn fal_key(call: &Call<'_>, name: &str) -> Result<Attachment, UploadFault> {
    let credential = Credential::Header {
        key: name.to_owned(),
        name: AUTHORIZATION,
        prefix: "Key ".to_owned(),
    };
    let (attachment, mut gaps) = Attachment::resolve(&credential, &[], &call.lookup);
    if let Some(row) = gaps.unreadable.pop() {
        return Err(unreadable(row));
    }
    if !gaps.missing.is_empty() {
        return Err(UploadFault::MissingKey(name.to_owned()));
    }
    if !gaps.unsendable.is_empty() {
        return Err(UploadFault::UnusableKey(name.to_owned()));
    }
    Ok(attachment)
}
