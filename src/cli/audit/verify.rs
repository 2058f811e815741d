use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cli::{Format, output};
use crate::error::{Code, Failure};
use crate::telemetry::audit::{self, Hash, Misfit, Verified};

#[derive(clap::Args)]
pub struct Args {
    /// The files, oldest first [default: the audit file]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// A hash that was noted before, which a line must have
    #[arg(long, value_name = "HASH", value_parser = parse_hash)]
    contains: Option<Hash>,
}

pub fn run(args: Args, audit_file: &Path, asked: Option<Format>) -> Result<u8, Failure> {
    let mut files = args.files;
    if files.is_empty() {
        files.push(audit_file.to_path_buf());
    }
    // The end is next to the file that is written now, whatever name leads to that; a rotated file
    // has none.
    let end_file = files.last().map(|last| match same_file(last, audit_file) {
        true => audit::chain_file(audit_file),
        false => audit::chain_file(last),
    });
    let checked = audit::verify(&files, end_file.as_deref(), args.contains);
    let checked = checked
        .map_err(|e| Failure::new(Code::InvalidValue, "the audit can't be read").because(e))?;
    match checked {
        Ok(found) if found.lines == 0 => {
            let names: Vec<String> = files.iter().map(|it| it.display().to_string()).collect();
            Err(
                Failure::invalid(format!("{} has no hash chain", names.join(", ")))
                    .hint("set chain = true in [audit] of the conf file"),
            )
        }
        Ok(found) => {
            show(&found, asked);
            Ok(0)
        }
        Err(misfit) => {
            show_misfit(&misfit, asked);
            Ok(1)
        }
    }
}

fn same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    one == other || (real(one).is_some() && real(one) == real(other))
}

fn show(found: &Verified, asked: Option<Format>) {
    let lines = || {
        let last = found.last;
        output::line(&format!(
            "OK: {} lines, {} to {} of the chain; the last has the hash {}",
            found.lines,
            found.begins_at,
            last.seq,
            last.hash.as_str()
        ));
        if found.begins_at > 1 {
            output::line(&format!(
                "Lines 1 to {} are in earlier files: name these before it to check them too.",
                found.begins_at - 1
            ));
        }
        if found.before > 0 {
            output::line(&format!(
                "{} lines were written before the chain began, and are not checked.",
                found.before
            ));
        }
        if found.torn > 0 {
            output::line(&format!(
                "{} lines are half there: a process was killed while it wrote.",
                found.torn
            ));
        }
    };
    output::lines_or_value(asked, lines, || {
        json!({
            "ok": true,
            "lines": found.lines,
            "first_seq": found.begins_at,
            "last_seq": found.last.seq,
            "hash": found.last.hash.as_str(),
            "unchained_before": found.before,
            "torn": found.torn,
        })
    });
}

fn show_misfit(misfit: &Misfit, asked: Option<Format>) {
    let file = misfit.file.display();
    let lines = || output::line(&format!("{file}: line {}: {}", misfit.line, misfit.why));
    output::lines_or_value(asked, lines, || {
        json!({
            "ok": false,
            "file": file.to_string(),
            "line": misfit.line,
            "error": misfit.why,
        })
    });
}

fn parse_hash(text: &str) -> Result<Hash, String> {
    let expected = "expected 64 digits and letters a to f, as `ati audit verify` prints them";
    Hash::parse(text.as_bytes()).ok_or_else(|| expected.to_owned())
}
