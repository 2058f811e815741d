//! `ati doctor`: checks of everything that goes wrong in the field, each with a fix.

mod logins;
mod machine;
mod mcp;
mod network;
mod programs;

use serde::Serialize;

use super::{Format, output};
use crate::config::{self, Environment, Flags, Settings};
use crate::error::Failure;
use crate::snapshot::Snapshot;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    flags: Flags,

    /// The admin listener of the running proxy, which knows the credentials that upstreams refuse
    /// [default: the one of the settings]
    #[arg(long, value_name = "URL")]
    admin_url: Option<String>,

    /// Contact no upstream
    #[arg(long)]
    offline: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Warn,
    Fail,
}

#[derive(Serialize)]
struct Finding {
    check: &'static str,
    status: Status,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn ok(&mut self, check: &'static str, message: impl Into<String>) {
        self.add(check, Status::Ok, message, None);
    }

    fn warn(&mut self, check: &'static str, message: impl Into<String>, fix: &str) {
        self.add(check, Status::Warn, message, Some(fix));
    }

    fn fail(&mut self, check: &'static str, message: impl Into<String>, fix: &str) {
        self.add(check, Status::Fail, message, Some(fix));
    }

    fn add(
        &mut self,
        check: &'static str,
        status: Status,
        message: impl Into<String>,
        fix: Option<&str>,
    ) {
        self.0.push(Finding {
            check,
            status,
            message: message.into(),
            fix: fix.map(str::to_owned),
        });
    }
}

pub fn run(args: &Args, asked: Option<Format>) -> Result<u8, Failure> {
    let mut found = Findings::default();
    let env = Environment::read();
    match config::resolve(&args.flags, &env) {
        Ok(settings) => examine(&settings, args, &mut found)?,
        Err(problems) => {
            for problem in problems {
                let fix = problem.advice.as_ref().map_or(
                    "ati check lists everything that is wrong with the settings",
                    |advice| &advice.fix,
                );
                found.fail("settings", problem.to_string(), fix);
            }
        }
    }
    let worst = found
        .0
        .iter()
        .map(|finding| finding.status as u8)
        .max()
        .unwrap_or(0);
    if asked == Some(Format::Json) {
        output::pretty(&found.0);
    } else {
        for finding in &found.0 {
            let mark = match finding.status {
                Status::Ok => "ok  ",
                Status::Warn => "WARN",
                Status::Fail => "FAIL",
            };
            output::line(&format!("{mark} {}: {}", finding.check, finding.message));
            if let Some(fix) = &finding.fix {
                output::line(&format!("     fix: {fix}"));
            }
        }
    }
    Ok(if worst == Status::Fail as u8 { 1 } else { 0 })
}

fn examine(settings: &Settings, args: &Args, found: &mut Findings) -> Result<(), Failure> {
    machine::permissions(settings, found);
    machine::memlock(found);
    machine::confinement(found);
    machine::disk(settings, found);
    machine::ports(settings, found);
    // The one-shot key is left for the server.
    let mut settings_for_check = settings.clone();
    settings_for_check.keyring.places.consume = false;
    let stored = match args.offline {
        true => None,
        false => machine::stored(settings, found),
    };
    let built = Snapshot::build(
        settings_for_check,
        &crate::keyring::KeptKeys::default(),
        &stored.unwrap_or_default(),
    );
    machine::jwt(settings, built.as_ref().ok().map(|it| &it.snapshot), found);
    match built {
        Ok(built) => {
            machine::loaded(&built.snapshot, &built.warnings, found);
            mcp::servers(&built.snapshot, args.offline, found)?;
            programs::check(&built.snapshot, found);
            if !args.offline {
                logins::check(&built.snapshot, found)?;
            }
            if args.offline {
                found.ok("upstreams", "not contacted (--offline)");
            } else {
                network::upstreams(&built.snapshot, found)?;
            }
        }
        Err(failure) => {
            for problem in failure.problems {
                found.fail(
                    "load",
                    problem.to_string(),
                    "the proxy would not start like this; ati check has the whole list",
                );
            }
        }
    }
    if let Some(admin) = network::admin_url(settings, args.admin_url.as_deref(), found)? {
        network::credentials(&admin, found)?;
        mcp::states(&admin, found)?;
    }
    Ok(())
}
