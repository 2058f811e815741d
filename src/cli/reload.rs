//! `ati reload`: makes the running proxy read its files again. Unlike SIGHUP, it waits for the
//! outcome.

use super::status::{Args, list, plain};
use super::{Format, output};
use crate::error::{Code, Failure};
use crate::server;

pub fn run(args: &Args, format: Format) -> Result<u8, Failure> {
    let report = args.ask(server::ask_reload)?;
    if report["outcome"] != "ok" {
        let message = format!(
            "reload failed, everything stays as it was: {}",
            list(&report["problems"])
        );
        return Err(Failure::new(Code::ExecutionFailed, message));
    }
    match format {
        Format::Json => output::pretty(&report),
        Format::Text | Format::Table => output::line(&format!(
            "reload done in {} ms: {} tools of {} providers, {} routes, {} keys of {}",
            plain(&report["ms"]),
            plain(&report["tools"]),
            plain(&report["providers"]),
            plain(&report["routes"]),
            plain(&report["keys"]),
            plain(&report["keyring"]),
        )),
    }
    Ok(0)
}
