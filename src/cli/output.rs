//! The only writer of stdout. A reader that has gone away is no error.

use std::io::Write;

use serde::Serialize;

use crate::error::Failure;

pub fn line(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

pub fn pretty(value: &impl Serialize) {
    let mut out = std::io::stdout().lock();
    if serde_json::to_writer_pretty(&mut out, value).is_ok() {
        let _ = writeln!(out);
    }
}

/// The one-line form that scripts read, on stderr.
pub fn structured_error(failure: &Failure, chain: Option<&Vec<String>>) {
    let mut error = serde_json::json!({
        "code": failure.code.as_str(),
        "message": failure.message,
        "exit_code": failure.code.exit_code(),
    });
    if let Some(chain) = chain {
        error["chain"] = serde_json::json!(chain);
    }
    let _ = writeln!(
        std::io::stderr(),
        "{}",
        serde_json::json!({ "error": error })
    );
}
