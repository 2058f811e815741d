//! The files that a program wrote for its caller, on the caller's side: taken out of the answer
//! while it comes in, and put where the caller named them when it is complete.

use std::collections::HashSet;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use crate::cli::cleanup::Interrupts;
use crate::cli::new_file::NewFile;
use crate::error::{Code, Failure};
use crate::exec::JsonWithFiles;
use crate::json_scan::{Event, ScanError, Scanner};

/// Where files are in an answer of `/call`.
const CONTENT: &str = "result.outputs.*.content_base64";
/// Bytes of an answer without its files, and of all files together that aren't the caller's.
const LONGEST_REST: usize = 256 << 20;

/// The texts that the caller gave with a call. A file is written at no other path, whatever the
/// answer says.
pub struct Named(HashSet<String>);

impl Named {
    pub fn new(words: &[String], args: &RawValue) -> Self {
        let mut named = HashSet::new();
        for word in words {
            named.extend(word.split_once('=').map(|(_, value)| value.to_owned()));
            named.extend(glued(word).map(str::to_owned));
            named.insert(word.clone());
        }
        // A program's words can be written as an object, too.
        if let Ok(args) = serde_json::from_str::<Map<String, Value>>(args.get()) {
            let values = args.into_iter().flat_map(|(_, value)| match value {
                Value::Array(list) => list,
                one => vec![one],
            });
            named.extend(values.filter_map(|value| Some(value.as_str()?.to_owned())));
        }
        Named(named)
    }
}

/// The value in `-ovalue`.
fn glued(word: &str) -> Option<&str> {
    let mut letters = word.strip_prefix('-')?.chars();
    letters.next().filter(|letter| *letter != '-')?;
    Some(letters.as_str())
}

/// An answer while it comes in.
pub struct Incoming<'a> {
    scanner: Scanner,
    named: &'a Named,
    files: Vec<Received>,
    /// Bytes that files which aren't the caller's may still have, all together.
    foreign_left: usize,
}

struct Received {
    path: String,
    size: u64,
    content: Content,
}

enum Content {
    New(NewFile),
    /// At a path that the caller didn't name. It stays in the result.
    Foreign(Vec<u8>),
}

impl<'a> Incoming<'a> {
    pub fn new(named: &'a Named) -> Self {
        Incoming {
            scanner: Scanner::new(LONGEST_REST).divert(CONTENT),
            named,
            files: Vec::new(),
            foreign_left: LONGEST_REST,
        }
    }

    pub fn push(&mut self, piece: &[u8]) -> Result<(), Failure> {
        for event in self.scanner.push(piece).map_err(broken)? {
            match event {
                Event::Begin { path } => self.begin(&path)?,
                Event::Bytes(bytes) => self.add(&bytes)?,
                Event::End | Event::Found { .. } => {}
            }
        }
        Ok(())
    }

    fn begin(&mut self, steps: &[String]) -> Result<(), Failure> {
        let path = steps.get(2).cloned().unwrap_or_default();
        if self.files.iter().any(|file| file.path == path) {
            return Err(Failure::new(
                Code::UpstreamError,
                format!("the answer has the file '{path}' twice"),
            ));
        }
        let content = match self.named.0.contains(&path) {
            true => Content::New(create(&path)?),
            false => Content::Foreign(Vec::new()),
        };
        let size = 0;
        self.files.push(Received {
            path,
            size,
            content,
        });
        Ok(())
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let Some(file) = self.files.last_mut() else {
            return Ok(());
        };
        file.size += bytes.len() as u64;
        match &mut file.content {
            Content::New(new) => new.write(bytes).map_err(|e| unwritable(&file.path, e)),
            Content::Foreign(kept) if bytes.len() <= self.foreign_left => {
                self.foreign_left -= bytes.len();
                kept.extend_from_slice(bytes);
                Ok(())
            }
            Content::Foreign(_) => Err(broken(ScanError::TooLong(LONGEST_REST))),
        }
    }

    /// Whether something would be left behind if ati were killed now.
    pub fn leaves_traces(&self) -> bool {
        self.files.iter().any(Received::is_named)
    }

    /// The answer without its files, and the files.
    pub fn finish(self) -> Result<(Vec<u8>, Files), Failure> {
        let text = self.scanner.finish().map_err(broken)?;
        Ok((text, Files(self.files)))
    }
}

impl Received {
    fn is_named(&self) -> bool {
        match &self.content {
            Content::New(new) => new.is_named(),
            Content::Foreign(_) => false,
        }
    }
}

/// Files that are complete, and not yet where they belong.
pub struct Files(Vec<Received>);

impl Files {
    /// Puts the files in their places. The result tells their paths instead of their contents, and
    /// the warnings tell which weren't written.
    pub fn place(self, result: Box<RawValue>) -> Result<(Box<RawValue>, Vec<String>), Failure> {
        if self.0.is_empty() {
            return Ok((result, Vec::new()));
        }
        let mut value: Value = serde_json::from_str(result.get())
            .map_err(|e| Failure::new(Code::UpstreamError, "the answer").because(e))?;
        let (mut complete, mut warnings) = (Vec::new(), Vec::new());
        for file in self.0 {
            let outputs = value.get_mut("outputs").and_then(Value::as_object_mut);
            let output = outputs.and_then(|outputs| outputs.get_mut(&file.path));
            let Some(output) = output.and_then(Value::as_object_mut) else {
                continue;
            };
            match file.content {
                Content::Foreign(bytes) => {
                    let text = STANDARD.encode(bytes);
                    output.insert("content_base64".to_owned(), text.into());
                    let path = &file.path;
                    warnings.push(format!("'{path}' is not written: the call didn't name it"));
                }
                Content::New(new) => {
                    let announced = output.get("size_bytes").and_then(Value::as_u64);
                    if announced.is_some_and(|announced| announced != file.size) {
                        return Err(Failure::new(
                            Code::UpstreamError,
                            format!("the answer has only a part of the file '{}'", file.path),
                        ));
                    }
                    tell(output, &file.path);
                    complete.push((file.path, new));
                }
            }
        }
        commit(complete)?;
        let result = to_raw_value(&value)
            .map_err(|e| Failure::new(Code::ExecutionFailed, "the result").because(e))?;
        Ok((result, warnings))
    }
}

/// The files of a program that ran here. They are copied, without a way through base64.
pub async fn place_local(json: JsonWithFiles) -> Result<Box<RawValue>, Failure> {
    let failed = |e| Failure::new(Code::ExecutionFailed, "the result").because(e);
    let (text, files) = json.detach();
    let mut value: Value = serde_json::from_str(&text).map_err(failed)?;
    let outputs = value.get_mut("outputs").and_then(Value::as_object_mut);
    let mut interrupts = Interrupts::default();
    let mut complete: Vec<(String, NewFile)> = Vec::new();
    for (path, output) in outputs.into_iter().flatten() {
        let Some(output) = output.as_object_mut() else {
            continue;
        };
        let number = output.get("content_base64").and_then(Value::as_u64);
        let number = number.and_then(|number| usize::try_from(number).ok());
        let Some(file) = number.and_then(|number| files.get(number)) else {
            continue;
        };
        let mut new = create(path)?;
        let mut pieces = Box::pin(file.reader());
        loop {
            let something = new.is_named() || complete.iter().any(|(_, new)| new.is_named());
            let Some(piece) = interrupts.race(something, pieces.next()).await? else {
                break;
            };
            let written = piece.and_then(|piece| new.write(&piece));
            written.map_err(|e| unwritable(path, e))?;
        }
        tell(output, path);
        complete.push((path.clone(), new));
    }
    commit(complete)?;
    to_raw_value(&value).map_err(failed)
}

fn create(path: &str) -> Result<NewFile, Failure> {
    NewFile::create(Path::new(path)).map_err(|e| unwritable(path, e))
}

/// All of them, after all were written.
fn commit(files: Vec<(String, NewFile)>) -> Result<(), Failure> {
    for (path, new) in files {
        new.commit().map_err(|e| unwritable(&path, e))?;
    }
    Ok(())
}

/// Where the file is, instead of what is in it.
fn tell(output: &mut Map<String, Value>, path: &str) {
    output.shift_remove("content_base64");
    output.insert("path".to_owned(), path.into());
}

fn unwritable(path: &str, error: std::io::Error) -> Failure {
    Failure::new(Code::ExecutionFailed, format!("'{path}' can't be written")).because(error)
}

fn broken(error: ScanError) -> Failure {
    let message = "Proxy request failed: its answer is not that of an ATI proxy";
    Failure::new(Code::UpstreamError, message).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::{Quota, Spool};
    use serde_json::json;
    use std::fs;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn named(list: &[&str]) -> Named {
        let none = RawValue::from_string("{}".to_owned()).unwrap();
        Named::new(&words(list), &none)
    }

    /// Reads an answer in pieces, and puts its files in their places.
    fn receive(named: &Named, answer: &Value) -> Result<(Value, Vec<String>), Failure> {
        let mut incoming = Incoming::new(named);
        for piece in answer.to_string().as_bytes().chunks(7) {
            incoming.push(piece)?;
        }
        let (rest, files) = incoming.finish()?;
        let rest: Value = serde_json::from_slice(&rest).unwrap();
        let result = to_raw_value(&rest["result"]).unwrap();
        let (result, warnings) = files.place(result)?;
        Ok((serde_json::from_str(result.get()).unwrap(), warnings))
    }

    fn answer(files: &[(&str, &[u8])]) -> Value {
        let outputs = files.iter().map(|(path, content)| {
            let output = json!({
                "content_base64": STANDARD.encode(content),
                "size_bytes": content.len(),
                "content_type": "image/png",
            });
            ((*path).to_owned(), output)
        });
        let outputs: Map<String, Value> = outputs.collect();
        json!({"result": {"stdout": "done", "outputs": outputs}})
    }

    #[test]
    fn file_is_written_where_the_caller_named_it() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("new/a.png"), dir.path().join("b.png"));
        let (one, two) = (one.to_str().unwrap(), two.to_str().unwrap());
        let content: Vec<u8> = (0..1000).map(|n| (n % 251) as u8).collect();
        let named = named(&["shot", one, &format!("--output={two}")]);
        let answer = answer(&[(one, &content), (two, b"")]);
        let (result, warnings) = receive(&named, &answer).unwrap();
        assert_eq!(fs::read(one).unwrap(), content);
        assert_eq!(fs::read(two).unwrap(), b"");
        let expected = json!({"stdout": "done", "outputs": {
            one: {"size_bytes": 1000, "content_type": "image/png", "path": one},
            two: {"size_bytes": 0, "content_type": "image/png", "path": two},
        }});
        assert_eq!(result, expected);
        assert_eq!(warnings, [""; 0]);
    }

    #[test]
    fn path_that_the_caller_did_not_name_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = (dir.path().join("a.png"), dir.path().join("evil"));
        let (ours, theirs) = (ours.to_str().unwrap(), theirs.to_str().unwrap());
        let evil = answer(&[(ours, b"good"), (theirs, b"evil")]);
        let (result, warnings) = receive(&named(&["-o", ours]), &evil).unwrap();
        assert!(fs::exists(ours).unwrap() && !fs::exists(theirs).unwrap());
        assert_eq!(result["outputs"][theirs], evil["result"]["outputs"][theirs]);
        assert!(
            warnings[0].contains("the call didn't name it"),
            "{warnings:?}"
        );
        // The same file by another name is another path.
        let alike = format!("{}/./a.png", dir.path().display());
        let (_, warnings) = receive(&named(&["-o", ours]), &answer(&[(&alike, b"x")])).unwrap();
        assert_eq!(warnings.len(), 1);
        assert_eq!(fs::read(ours).unwrap(), b"good");
    }

    #[test]
    fn files_that_the_caller_did_not_name_have_one_limit_together() {
        let named = named(&[]);
        let push = |left: usize| {
            let mut incoming = Incoming::new(&named);
            incoming.foreign_left = left;
            let text = answer(&[("/x/a", b"12345"), ("/x/b", b"67890")]).to_string();
            incoming.push(text.as_bytes())
        };
        assert!(push(10).is_ok());
        assert!(push(9).is_err());
    }

    #[test]
    fn path_in_an_object_of_arguments_counts_as_named() {
        let args = json!({"output": "/a", "_positional": ["b", "/c"], "n": 5, "deep": {"x": "/d"}});
        let args = to_raw_value(&args).unwrap();
        let Named(named) = Named::new(&words(&["-o=/e=f", "-o/g"]), &args);
        for path in ["/a", "/c", "/e=f", "/g"] {
            assert!(named.contains(path), "{path}");
        }
        assert!(!named.contains("/d"));
    }

    #[test]
    fn answer_that_is_broken_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/a.png");
        let path = path.to_str().unwrap();
        let named = named(&[path]);
        let good = answer(&[(path, b"content")]).to_string();
        let mut short = answer(&[(path, b"content")]);
        short["result"]["outputs"][path]["size_bytes"] = json!(8);
        let refused = receive(&named, &short).err().unwrap();
        assert!(refused.to_string().contains("only a part"), "{refused}");
        for broken in [&good[..good.len() - 5], &good.replace("Y29", "Y*9")] {
            let mut incoming = Incoming::new(&named);
            let pushed = incoming.push(broken.as_bytes());
            assert!(pushed.is_err() || incoming.finish().is_err(), "{broken}");
        }
        let twice = format!(
            r#"{{"result":{{"outputs":{{"{path}":{{"content_base64":"QQ=="}},"{path}":{{"content_base64":"QQ=="}}}}}}}}"#
        );
        assert!(Incoming::new(&named).push(twice.as_bytes()).is_err());
        let left = fs::read_dir(dir.path().join("sub")).unwrap().count();
        assert_eq!(left, 0);
    }

    #[test]
    fn folder_in_the_place_of_a_file_is_a_clear_failure() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let failure = receive(&named(&[path]), &answer(&[(path, b"x")]))
            .err()
            .unwrap();
        let text = format!("{failure}");
        assert!(
            text.contains(&format!("'{path}' can't be written")),
            "{text}"
        );
    }

    #[test]
    fn answer_without_files_passes_as_it_is() {
        let text = to_raw_value(&json!({"outputs": 5, "a": [1]})).unwrap();
        let named = named(&[]);
        let same = Files(Incoming::new(&named).files)
            .place(text.clone())
            .unwrap()
            .0;
        assert_eq!(same.get(), text.get());
    }

    #[tokio::test]
    async fn files_of_a_local_program_are_copied() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("x/1.txt"), dir.path().join("2.txt"));
        let (one, two) = (one.to_str().unwrap(), two.to_str().unwrap());
        let mut json = JsonWithFiles::default().text(r#"{"stdout":"s","outputs":{"#);
        for (comma, path, size) in [("", one, 200_000), (",", two, 3)] {
            let mut spool = Spool::new(0, Quota::new(u64::MAX));
            spool.write(&vec![b'x'; size]).await.unwrap();
            json = json
                .text(comma)
                .value(&json!(path))
                .text(r#":{"content_base64":"#);
            json = json.file(spool.finish().await.unwrap());
            json = json.text(format!(r#","size_bytes":{size}}}"#));
        }
        let result = place_local(json.text("}}")).await.unwrap();
        let result: Value = serde_json::from_str(result.get()).unwrap();
        let expected = json!({"stdout": "s", "outputs": {
            one: {"size_bytes": 200_000, "path": one},
            two: {"size_bytes": 3, "path": two},
        }});
        assert_eq!(result, expected);
        assert_eq!(fs::metadata(one).unwrap().len(), 200_000);
        assert_eq!(fs::read(two).unwrap(), b"xxx");
    }
}
