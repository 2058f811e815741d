//! Captured files: those that a program writes for its caller. The caller's path never names a file
//! here. The program gets a temporary name in its place, in a folder of the call's own, and the
//! caller gets the file's content under the path that it wrote.

use std::io::{self, Read as _};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::search::Search;
use crate::catalog::captures::CaptureRules;
use crate::credential::Attachment;
use crate::error::Shortage;
use crate::exec::{Answer, ExecContext, JsonWithFiles};
use crate::output_folder::{OutputFault, OutputFile, OutputFolder};
use crate::runtime::ComputeError;
use crate::spool::{Quota, SpoolError, Spooled};

/// Files of one call. Each takes a descriptor while the answer is sent.
const MOST_FILES: usize = 64;
/// Bytes on the standard output of a program that writes captured files: the answer has them as one
/// text in memory, and more than once while it is made.
pub const MOST_STDOUT: u64 = 1 << 20;
/// Bytes to which paths of the caller may make a text grow. A path is long where its caller wants
/// that, and a program may print it often.
const LONGEST_TOLD: usize = 2 << 20;
/// Bytes of all files of one call together, as a multiple of what one may have.
const MOST_TOGETHER: u64 = 2;
/// Characters of an extension. Longer ones mean nothing to a program.
const LONGEST_EXTENSION: usize = 16;
/// Between two looks at how big the files of a running program are.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// At whether a program that was left is gone; the call doesn't wait for it longer than this takes.
const MOST_LOOKS: usize = 200;

/// Why a call has no captured files. Paths are the caller's own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    #[error("Captured output '{0}' was not produced by the CLI")]
    Missing(String),
    #[error("Captured output '{path}' exceeds ATI_CLI_MAX_OUTPUT_BYTES ({most} bytes)")]
    TooLarge { path: String, most: u64 },
    #[error("Captured outputs exceed twice ATI_CLI_MAX_OUTPUT_BYTES together ({0} bytes)")]
    TooMuch(u64),
    #[error("Captured output '{0}' is no regular file")]
    NotRegular(String),
    #[error("Captured output '{0}' has a second name, so it may be another's file")]
    Linked(String),
    #[error("Captured output '{path}' can't be read: {why}")]
    Unreadable { path: String, why: String },
    #[error("Captured output '{0}' can't be searched for credentials in reasonable time")]
    Unsearchable(String),
    #[error("more than {MOST_FILES} output files in one call")]
    TooMany,
    #[error("There is no folder for captured output: {0}")]
    NoFolder(String),
    #[error("The disk space for files of calls is used up")]
    NoSpace,
    #[error("the output of the CLI can't be read: {0}")]
    Stdout(String),
    #[error("Captured output was not looked at: {0}")]
    Compute(ComputeError),
}

impl CaptureError {
    /// Whether the same call may go well later.
    pub fn shortage(&self) -> Option<Shortage> {
        match self {
            CaptureError::NoSpace => Some(Shortage::Spool),
            CaptureError::Compute(ComputeError::Full) => Some(Shortage::Queue),
            CaptureError::Compute(ComputeError::TimedOut) => Some(Shortage::Time),
            _ => None,
        }
    }

    /// The message without the caller's path, which may be anything.
    pub fn without_path(&self) -> String {
        match self {
            CaptureError::Missing(_) => "Captured output was not produced by the CLI".to_owned(),
            CaptureError::TooLarge { most, .. } => {
                format!("Captured output exceeds ATI_CLI_MAX_OUTPUT_BYTES ({most} bytes)")
            }
            CaptureError::NotRegular(_) => "Captured output is no regular file".to_owned(),
            CaptureError::Linked(_) => "Captured output has a second name".to_owned(),
            CaptureError::Unreadable { why, .. } => format!("Captured output can't be read: {why}"),
            CaptureError::Unsearchable(_) => {
                "Captured output can't be searched for credentials in reasonable time".to_owned()
            }
            CaptureError::TooMany
            | CaptureError::TooMuch(_)
            | CaptureError::NoFolder(_)
            | CaptureError::NoSpace
            | CaptureError::Stdout(_)
            | CaptureError::Compute(_) => self.to_string(),
        }
    }
}

/// A file that is captured.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Capture {
    /// As the caller wrote it.
    path: String,
    /// In the call's folder.
    name: String,
}

/// The captured files of one call. The folder is gone when this is dropped.
pub struct Captures {
    folder: Arc<OutputFolder>,
    files: Vec<Capture>,
    most_bytes: u64,
}

impl Captures {
    /// Puts temporary names in the places of the caller's paths. `None` where the words have none.
    pub async fn begin(
        rules: &CaptureRules,
        words: &mut [String],
        context: ExecContext<'_>,
    ) -> Result<Option<Self>, CaptureError> {
        let files = plan(rules, words)?;
        if files.is_empty() {
            return Ok(None);
        }
        let quota = context.runtime.file_spools.clone();
        let made = spawn_blocking(move || OutputFolder::create(quota.dir())).await;
        let folder = made
            .unwrap_or_else(|e| Err(io::Error::other(e)))
            .map_err(|e| CaptureError::NoFolder(e.to_string()))?;
        // Words are text, and so is the folder's path.
        let Some(dir) = folder.path().to_str() else {
            return Err(CaptureError::NoFolder("its path is no UTF-8".to_owned()));
        };
        rewrite(rules, words, &files, dir);
        Ok(Some(Captures {
            folder: Arc::new(folder),
            files,
            most_bytes: context.limits.max_captured_bytes,
        }))
    }

    /// The folder that the program writes to. It is gone when its last owner is.
    pub fn folder(&self) -> Arc<OutputFolder> {
        self.folder.clone()
    }

    /// What the program wrote, with the caller's paths in the places of the temporary ones: a
    /// program tells what it saved, and the caller reads it.
    pub fn with_callers_paths(&self, text: &[u8]) -> Vec<u8> {
        let dir = self.folder.path().as_os_str().as_encoded_bytes();
        let mut told = Vec::with_capacity(text.len());
        let mut rest = text;
        for at in memchr::memmem::find_iter(text, dir) {
            let before = rest.len() - (text.len() - at);
            let after = &rest[before + dir.len()..];
            let is_named = |file: &&Capture| {
                let name = after.strip_prefix(b"/");
                name.is_some_and(|name| name.starts_with(file.name.as_bytes()))
            };
            // The longest name: `1` is the beginning of `10`.
            let named = self.files.iter().filter(is_named);
            let named = named.max_by_key(|file| file.name.len());
            let fits = |file: &&Capture| {
                told.len() + rest.len() + file.path.len() <= LONGEST_TOLD.max(text.len())
            };
            if let Some(file) = named.filter(fits) {
                told.extend_from_slice(&rest[..before]);
                told.extend_from_slice(file.path.as_bytes());
                rest = &after[1 + file.name.len()..];
            }
        }
        told.extend_from_slice(rest);
        told
    }

    /// Removes the folder. A program that was left a moment ago holds it until it is gone.
    pub async fn discard(self) {
        let mut looks = 0;
        while Arc::strong_count(&self.folder) > 1 && looks < MOST_LOOKS {
            tokio::time::sleep(Duration::from_millis(10)).await;
            looks += 1;
        }
        let _ = spawn_blocking(move || remove(self.folder)).await;
    }

    fn most_together(&self) -> u64 {
        self.most_bytes.saturating_mul(MOST_TOGETHER)
    }

    /// Ends when the files of the running program have become too big.
    pub async fn overflow(&self) -> CaptureError {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let too_large = |file: &&Capture| {
                let size = self.folder.size(&file.name);
                size.is_some_and(|size| size > self.most_bytes)
            };
            if let Some(file) = self.files.iter().find(too_large) {
                return CaptureError::TooLarge {
                    path: file.path.clone(),
                    most: self.most_bytes,
                };
            }
            let sizes = self.files.iter();
            let sizes = sizes.filter_map(|file| self.folder.size(&file.name));
            if sizes.fold(0, u64::saturating_add) > self.most_together() {
                return CaptureError::TooMuch(self.most_together());
            }
        }
    }

    /// The answer of a program that ended well. What it wrote is searched for the call's
    /// credentials, as every answer is. The files hold their place in the quota until they are
    /// sent.
    pub async fn collect(
        self,
        stdout: Spooled,
        provider: &str,
        attachment: &Attachment,
        context: ExecContext<'_>,
    ) -> Result<Answer, CaptureError> {
        let quota = context.runtime.file_spools.clone();
        let space = quota.clone();
        let searches: Vec<Search> = self.files.iter().map(|_| Search::new(attachment)).collect();
        let mut redactor = attachment.redactor();
        // Names go first, and at once: what has none can't be left behind.
        let opened = spawn_blocking(move || {
            let mut text = Vec::new();
            let read = stdout.blocking_reader().read_to_end(&mut text);
            read.map_err(|e| CaptureError::Stdout(e.to_string()))?;
            let (text, most) = (self.with_callers_paths(&text), self.most_together());
            Ok((text, hold(self.open()?, most, &space)?))
        });
        let opened = opened
            .await
            .unwrap_or(Err(CaptureError::Compute(ComputeError::Failed)));
        let (stdout, files) = opened?;
        let work = move || {
            let mut clean = Vec::new();
            for (file, search) in files.into_iter().zip(searches) {
                clean.push(file.clean(search, &quota)?);
            }
            let mut text = redactor.push(&stdout);
            text.extend(redactor.finish());
            let text = String::from_utf8_lossy(text.trim_ascii());
            Ok(envelope(&text, clean))
        };
        // The search takes processor time.
        let pool = &context.runtime.compute;
        let done = pool.run(provider, context.limits.timeout, work).await;
        done.map_err(CaptureError::Compute)?.map(Answer::WithFiles)
    }

    /// The files, whose names are gone then.
    fn open(self) -> Result<Vec<(String, OutputFile)>, CaptureError> {
        let each = self.files.into_iter().map(|Capture { path, name }| {
            match self.folder.open(&name, self.most_bytes) {
                Ok(file) => Ok((path, file)),
                Err(OutputFault::Missing) => Err(CaptureError::Missing(path)),
                Err(OutputFault::NotRegular) => Err(CaptureError::NotRegular(path)),
                Err(OutputFault::Linked) => Err(CaptureError::Linked(path)),
                Err(OutputFault::TooLarge(most)) => Err(CaptureError::TooLarge { path, most }),
                Err(OutputFault::Unreadable(e)) => Err(unreadable(&path, &e)),
            }
        });
        let opened: Result<Vec<_>, _> = each.collect();
        remove(self.folder);
        opened
    }
}

/// Now, on a thread that may wait for the disk.
fn remove(folder: Arc<OutputFolder>) {
    if let Some(folder) = Arc::into_inner(folder) {
        folder.remove();
    }
}

/// What is captured, each path once.
fn plan(rules: &CaptureRules, words: &[String]) -> Result<Vec<Capture>, CaptureError> {
    let mut files: Vec<Capture> = Vec::new();
    for slot in rules.find(words) {
        let path = &words[slot.word][slot.path];
        if files.iter().any(|file| file.path == path) {
            continue;
        }
        if files.len() == MOST_FILES {
            return Err(CaptureError::TooMany);
        }
        files.push(Capture {
            path: path.to_owned(),
            name: format!("{}{}", files.len(), extension(path)),
        });
    }
    Ok(files)
}

fn rewrite(rules: &CaptureRules, words: &mut [String], files: &[Capture], dir: &str) {
    for slot in rules.find(words) {
        let word = &mut words[slot.word];
        let file = files
            .iter()
            .find(|file| file.path == word[slot.path.clone()]);
        if let Some(file) = file {
            word.replace_range(slot.path, &format!("{dir}/{}", file.name));
        }
    }
}

/// The extension of the caller's path with its dot, because programs choose a format by it. Nothing
/// else of the path is used, and of this only what is plain.
fn extension(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or_default();
    let Some(dot) = name.rfind('.').filter(|dot| *dot > 0) else {
        return "";
    };
    let begin = match name[..dot].strip_suffix(".tar") {
        Some(rest) if !rest.is_empty() => rest.len(),
        _ => dot,
    };
    let found = &name[begin..];
    let is_plain = |c: char| c == '.' || c.is_ascii_alphanumeric();
    let fits = (2..=LONGEST_EXTENSION).contains(&found.len());
    if fits && found.chars().all(is_plain) {
        found
    } else {
        ""
    }
}

/// A file that has its place in the quota.
struct Held {
    path: String,
    file: OutputFile,
    spooled: Spooled,
}

/// All files of a call, each in its place in the quota by its length. This is first: a search reads
/// all of a file, and a file with holes is long for free.
fn hold(
    opened: Vec<(String, OutputFile)>,
    most: u64,
    quota: &Arc<Quota>,
) -> Result<Vec<Held>, CaptureError> {
    let mut together: u64 = 0;
    for (path, file) in &opened {
        let found = file.metadata().map_err(|e| unreadable(path, &e))?;
        together = together.saturating_add(found.len());
    }
    if together > most {
        return Err(CaptureError::TooMuch(most));
    }
    let each = opened.into_iter().map(|(path, file)| {
        let same = file.try_clone().map_err(|e| unreadable(&path, &e))?;
        Ok(Held {
            spooled: adopt(same, &path, quota)?,
            path,
            file,
        })
    });
    each.collect()
}

impl Held {
    /// The file without the call's credentials. A copy has a place of its own, next to the
    /// original's: both are on the disk for a moment.
    fn clean(self, search: Search, quota: &Arc<Quota>) -> Result<(String, Spooled), CaptureError> {
        let Held {
            path,
            file,
            spooled,
        } = self;
        let mut is_copied = false;
        let clean = search.run(file, || {
            is_copied = true;
            quota.new_file()
        });
        let clean = clean.map_err(|e| unreadable(&path, &e))?;
        let Some(clean) = clean else {
            return Err(CaptureError::Unsearchable(path));
        };
        let spooled = match is_copied {
            true => adopt(clean, &path, quota)?,
            false => spooled,
        };
        Ok((path, spooled))
    }
}

fn adopt(file: OutputFile, path: &str, quota: &Arc<Quota>) -> Result<Spooled, CaptureError> {
    Spooled::adopt(file, quota).map_err(|error| match error {
        SpoolError::Disk(e) => unreadable(path, &e),
        SpoolError::QuotaExceeded { .. } | SpoolError::MemoryExceeded { .. } => {
            CaptureError::NoSpace
        }
    })
}

fn unreadable(path: &str, error: &io::Error) -> CaptureError {
    CaptureError::Unreadable {
        path: path.to_owned(),
        why: error.to_string(),
    }
}

/// `{"stdout":…,"outputs":{path:{"content_base64":…,"size_bytes":…,"content_type":…}}}`.
fn envelope(stdout: &str, files: Vec<(String, Spooled)>) -> JsonWithFiles {
    let mut json = JsonWithFiles::default()
        .text("{\"stdout\":")
        .value(&Value::from(stdout))
        .text(",\"outputs\":{");
    for (index, (path, file)) in files.into_iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let size = file.len();
        json = json
            .text(comma)
            .value(&Value::from(path.as_str()))
            .text(":{\"content_base64\":")
            .file(file)
            .text(format!(",\"size_bytes\":{size},\"content_type\":"))
            .value(&json!(content_type(&path)))
            .text("}");
    }
    json.text("}}")
}

/// By the extension of the caller's path.
fn content_type(path: &str) -> String {
    mime_guess::from_path(path)
        .first_or_octet_stream()
        .to_string()
}

#[cfg(test)]
mod tests;
