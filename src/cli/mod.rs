//! The command line: parsed arguments, one function per command, one place that turns its outcome into an exit code.

mod audit;
mod auth;
mod check;
mod demo;
mod doctor;
mod edge;
mod init;
mod key;
mod local;
mod output;
mod provider;
mod proxy;
mod reference;
mod remote;
mod run;
mod token;
mod tool;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use tracing::{debug, error};

use crate::config;
use crate::error::{Code, Failure};
use crate::telemetry::{self, Audience};

/// The edge appliance between agent sandboxes and the world: it holds the credentials, and lets each request do only what its
/// caller may do.
#[derive(Parser)]
#[command(name = "ati", version, propagate_version = true)]
pub struct Cli {
    /// How results are printed
    #[arg(
        long,
        visible_alias = "format",
        global = true,
        env = "ATI_OUTPUT",
        value_enum,
        default_value = "json",
        hide_env_values = true
    )]
    output: Format,

    /// Print JSON, whatever --output says
    #[arg(short = 'J', long, global = true)]
    json: bool,

    /// Log at debug level, and give the causes of an error
    #[arg(long, global = true)]
    verbose: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Json,
    Table,
    Text,
}

#[derive(Subcommand)]
enum Command {
    /// Run a tool, here or through the proxy that ATI_PROXY_URL names
    Run(run::Args),
    /// Find out what tools there are
    #[command(subcommand, visible_alias = "tools")]
    Tool(tool::Command),
    /// Manage where tools come from
    #[command(subcommand)]
    Provider(provider::Command),
    /// See what your token allows
    #[command(subcommand)]
    Auth(auth::Command),
    /// See which tools were called
    #[command(subcommand)]
    Audit(audit::Command),
    /// Run the appliance
    Proxy(proxy::Args),
    /// Load everything as `ati proxy` would, and report every problem at once
    Check(check::Args),
    /// Look at what goes wrong in the field, and say what to do about it
    Doctor(doctor::Args),
    /// Show the appliance on this machine, with generated keys, until Ctrl-C
    Demo(demo::Args),
    /// Create the ATI folder; with --proxy, a signing key for tokens too
    Init(init::Args),
    /// Edit the plaintext credentials
    #[command(subcommand)]
    Key(key::Command),
    /// Provision and rotate the keyring of an edge
    #[command(subcommand)]
    Edge(edge::Command),
    /// Make, issue and check session tokens
    #[command(subcommand)]
    Token(token::Command),
    /// Print the version
    Version,
    /// Print a completion script for a shell
    Completions { shell: clap_complete::Shell },
    /// Run a program until our input closes, and end everything that it has started
    #[command(hide = true, name = crate::process::SUPERVISE)]
    Supervise {
        #[arg(last = true, required = true)]
        words: Vec<std::ffi::OsString>,
    },
    /// Write the generated pages of the documentation
    #[command(hide = true)]
    Reference(reference::Args),
}

/// Run one command to its exit code.
pub fn run(cli: Cli) -> ExitCode {
    // It has nothing to say: its streams are the program's.
    if let Command::Supervise { words } = &cli.command {
        let ended = words
            .split_first()
            .map(|(program, args)| crate::process::supervise(program, args));
        return ExitCode::from(ended.and_then(Result::ok).unwrap_or(127));
    }
    let format = if cli.json { Format::Json } else { cli.output };
    let audience = match cli.command {
        Command::Proxy(_) | Command::Demo(_) => Audience::Machine,
        _ => Audience::Person,
    };
    telemetry::init(audience, cli.verbose);

    let outcome = match cli.command {
        Command::Proxy(args) => proxy::run(args),
        Command::Check(args) => check::run(args, format),
        Command::Doctor(args) => doctor::run(&args, cli.json),
        Command::Demo(args) => demo::run(&args),
        Command::Version => {
            output::line(concat!("ati ", env!("CARGO_PKG_VERSION")));
            Ok(0)
        }
        Command::Reference(args) => reference::run(&args),
        // Not `ensure`: a rotation where nothing was bootstrapped makes no folder.
        Command::Edge(command) => edge::run(command),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command(), "ati", &mut script);
            output::line(String::from_utf8_lossy(&script).trim_end());
            Ok(0)
        }
        command => {
            init::ensure(&config::ati_dir());
            match command {
                Command::Run(args) => run::run(&args, format, cli.verbose),
                Command::Tool(command) => tool::run(command, format),
                Command::Provider(command) => provider::run(command, format),
                Command::Auth(auth::Command::Status) => auth::status(format),
                Command::Audit(command) => audit::run(command, format),
                Command::Init(args) => init::run(&args),
                Command::Key(command) => key::run(command),
                Command::Token(command) => token::run(command),
                _ => Ok(0),
            }
        }
    };
    let code = match outcome {
        Ok(code) => code,
        Err(failure) => report(&failure, audience, format, cli.verbose),
    };
    telemetry::flush();
    ExitCode::from(code)
}

/// A line for people, and one for scripts where the output is JSON. A server's log is JSON already.
fn report(failure: &Failure, audience: Audience, format: Format, verbose: bool) -> u8 {
    let code = failure.code;
    if audience == Audience::Machine {
        error!(
            code = code.as_str(),
            exit_code = code.exit_code(),
            hint = failure.hint,
            "ati command failed: {failure}"
        );
        return code.exit_code();
    }
    match &failure.hint {
        Some(hint) => error!("ati command failed: {failure}\n\nhint: {hint}"),
        None => error!("ati command failed: {failure}"),
    }
    let chain = failure.chain();
    if format == Format::Json {
        output::structured_error(failure, verbose.then_some(&chain));
    } else if verbose {
        for cause in chain {
            debug!("because: {cause}");
        }
    }
    code.exit_code()
}

/// For a command that makes one request.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::new(Code::ExecutionFailed, format!("no runtime: {e}")))
}

/// The parser, for the reference page.
fn command() -> clap::Command {
    Cli::command()
}
