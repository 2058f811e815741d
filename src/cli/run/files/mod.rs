//! The file tools of `ati run`. Files are read and written here, in pieces: none of them stands in
//! memory.

mod arguments;
mod bar;
mod here;
mod out_file;
mod print;
mod proxy;
mod sink;

use std::fs::File;
use std::path::Path;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::given::Given;
use crate::call::payload::CONTENT;
use crate::catalog::files::{FileOperation, PROVIDER};
use crate::catalog::words::Words;
use crate::cli::file_failure;
use crate::error::{Code, Failure};
use crate::exec::files::{base_name, content_type};
use crate::files;

pub use arguments::{example, on_command_line};
pub use here::run as here;
pub use proxy::run as through_proxy;

/// What a tool of this name does with files. The proxy alone knows of tools that its manifests
/// give other names.
pub fn operation(name: &str) -> Option<FileOperation> {
    let own = name.strip_prefix(PROVIDER)?.strip_prefix([':', '_'])?;
    let mut all = FileOperation::ALL.into_iter();
    all.find(|operation| operation.name() == own)
}

/// The arguments that a call of a file tool is sent with, an empty file in the place of the one
/// that is named. None where they are sent as they were given.
pub fn sent_arguments(
    operation: FileOperation,
    args: &RawValue,
    words: &Words<'_>,
) -> Result<Option<Box<RawValue>>, Failure> {
    if words.stray_text().is_some() {
        return Ok(None);
    }
    let given = Given {
        args: args.to_owned(),
        words: Vec::new(),
    };
    let sent = match Transfer::read(operation, &given, words) {
        Ok(Some(Transfer::Download(download))) => download.args,
        Ok(Some(Transfer::Upload(upload))) => {
            let mut args = upload.wire_args();
            args.insert(CONTENT.to_owned(), "".into());
            args
        }
        // The call's own refusal says what is missing.
        Ok(None) => return Ok(None),
        Err(failure) if failure.code == Code::MissingArg => return Ok(None),
        Err(failure) => return Err(failure),
    };
    Ok(serde_json::value::to_raw_value(&sent).ok())
}

/// A call of a file tool.
pub enum Transfer {
    Download(Download),
    Upload(Upload),
}

pub struct Download {
    /// For the proxy.
    args: Map<String, Value>,
    /// As it was typed.
    out: Option<String>,
}

pub struct Upload {
    /// For the proxy, without the file.
    args: Map<String, Value>,
    filename: String,
    content_type: String,
    file: File,
    size: u64,
}

impl Transfer {
    /// None where no file of this machine is meant: an upload of what is among the arguments.
    pub fn read(
        operation: FileOperation,
        given: &Given,
        words: &Words<'_>,
    ) -> Result<Option<Self>, Failure> {
        if let Some(what) = words.stray_text() {
            return Err(Failure::invalid(format!("Invalid arguments: {what}")));
        }
        let members: Map<String, Value> =
            serde_json::from_str(given.args.get()).unwrap_or_default();
        let folded = members.into_iter();
        let mut args: Map<String, Value> = folded
            .map(|(name, value)| (name.replace('-', "_").to_ascii_lowercase(), value))
            .collect();
        match operation {
            FileOperation::Download => {
                args.shift_remove("inline");
                let out = text(&mut args, "out")?;
                Ok(Some(Transfer::Download(Download { args, out })))
            }
            FileOperation::Upload => match text(&mut args, "path")? {
                Some(_) if let Some(other) = second_file(&args) => Err(Failure::invalid(format!(
                    "Invalid arguments: --path and --{other} are two files; give one of them"
                ))),
                Some(path) => Upload::open(args, Path::new(&path))
                    .map(Transfer::Upload)
                    .map(Some),
                None if args.contains_key("content_base64") || args.contains_key("file") => {
                    Ok(None)
                }
                None => Err(missing("path")),
            },
        }
    }
}

impl Upload {
    fn open(mut args: Map<String, Value>, path: &Path) -> Result<Self, Failure> {
        let unusable = |e| file_failure(Code::InvalidValue, path, e);
        let file = files::open(path).map_err(unusable)?;
        let size = file.metadata().map_err(unusable)?.len();
        let own = path.file_name().map(|name| name.to_string_lossy());
        let name = match text(&mut args, "object_name")? {
            Some(name) => name,
            None => match text(&mut args, "filename")? {
                Some(name) => name,
                None => own.unwrap_or_default().into_owned(),
            },
        };
        args.shift_remove("filename");
        let filename = base_name(&name).map_err(|e| Failure::from_error(Code::InvalidValue, e))?;
        let content_type = text(&mut args, "content_type")?;
        let content_type =
            content_type.unwrap_or_else(|| content_type::guess(&filename).to_owned());
        Ok(Upload {
            args,
            filename,
            content_type,
            file,
            size,
        })
    }

    /// What the tool gets besides the file.
    fn wire_args(&self) -> Map<String, Value> {
        let mut args = Map::new();
        args.insert("filename".to_owned(), self.filename.clone().into());
        args.insert("content_type".to_owned(), self.content_type.clone().into());
        args.extend(self.args.clone());
        args
    }
}

/// Another argument that is the file of an upload.
fn second_file(args: &Map<String, Value>) -> Option<&'static str> {
    let mut names = ["file", "content_base64"].into_iter();
    names.find(|name| args.get(*name).is_some_and(|value| !value.is_null()))
}

fn missing(name: &str) -> Failure {
    let message = format!("Missing required argument: {name}");
    Failure::new(Code::MissingArg, message)
}

/// Takes an argument that is a text.
fn text(args: &mut Map<String, Value>, name: &str) -> Result<Option<String>, Failure> {
    match args.shift_remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
        // A name like 5 is read as a number.
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        Some(_) => Err(Failure::invalid(format!(
            "Invalid argument '{name}': expected a text"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(operation: FileOperation, line: &[&str]) -> Result<Option<Transfer>, Failure> {
        let words: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
        let parsed = Words::parse(&words);
        let given = Given::read(None, &words, &parsed)?;
        Transfer::read(operation, &given, &parsed)
    }

    #[test]
    fn file_tools_are_known_by_their_name_and_its_alias() {
        assert_eq!(
            operation("file_manager:download"),
            Some(FileOperation::Download)
        );
        assert_eq!(
            operation("file_manager_upload"),
            Some(FileOperation::Upload)
        );
        assert_eq!(operation("file_manager:other"), None);
        assert_eq!(operation("other:upload"), None);
    }

    #[test]
    fn download_keeps_its_own_arguments_off_the_wire() {
        let line = [
            "--url",
            "http://h/",
            "--OUT",
            "f",
            "--inline",
            "--max-bytes",
            "5",
        ];
        let Ok(Some(Transfer::Download(download))) = read(FileOperation::Download, &line) else {
            panic!("no download");
        };
        assert_eq!(download.out.as_deref(), Some("f"));
        let names: Vec<&String> = download.args.keys().collect();
        assert_eq!(names, ["url", "max_bytes"]);
        assert!(read(FileOperation::Download, &["stray"]).is_err());
    }

    #[test]
    fn upload_has_the_name_and_the_type_of_its_path_unless_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("picture.png");
        std::fs::write(&path, "content").unwrap();
        let path = path.to_str().unwrap();
        let args = |line: &[&str]| match read(FileOperation::Upload, line) {
            Ok(Some(Transfer::Upload(upload))) => {
                serde_json::to_string(&upload.wire_args()).unwrap()
            }
            Ok(_) => "ordinary".to_owned(),
            Err(failure) => failure.one_line(),
        };
        let plain = r#"{"filename":"picture.png","content_type":"image/png"}"#;
        assert_eq!(args(&["--path", path]), plain);
        let named = [
            "--path",
            path,
            "--object-name",
            "../a/x.txt",
            "--destination",
            "d",
        ];
        let named = args(&named);
        let expected = r#"{"filename":"x.txt","content_type":"text/plain","destination":"d"}"#;
        assert_eq!(named, expected);
        let typed = args(&["--path", path, "--content_type", "a/b"]);
        assert!(typed.contains(r#""content_type":"a/b""#), "{typed}");
        assert_eq!(args(&[]), "Missing required argument: path");
        assert_eq!(
            args(&["--filename", "f", "--content_base64", "QQ=="]),
            "ordinary"
        );
        for other in ["--file", "--content_base64", "--Content-Base64"] {
            let two = args(&["--path", path, other, "QQ=="]);
            assert!(two.contains("are two files; give one of them"), "{two}");
        }
        let absent = args(&["--path", "/nonexistent/file"]);
        assert!(absent.starts_with("/nonexistent/file: "), "{absent}");
        let folder = args(&["--path", dir.path().to_str().unwrap()]);
        assert!(folder.contains("no regular file"), "{folder}");
    }
}
