//! The command line: parsed arguments, one function per command, and one place that turns its
//! outcome into an exit code.

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
mod permissions;
mod provider;
mod proxy;
mod reference;
mod remote;
mod run;
mod secret_input;
mod token;
mod tool;
mod transport;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use tracing::{debug, error};

use crate::config;
use crate::error::{Code, Failure, Problem};
use crate::telemetry::{self, Audience};

/// The edge proxy between agent sandboxes and the services they use: it holds the credentials and
/// lets each request do only what its caller may do.
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
    /// Run a tool: on this machine, or on the proxy that ATI_PROXY_URL names
    Run(run::Args),
    /// List, search and describe tools
    #[command(subcommand, visible_alias = "tools")]
    Tool(tool::Command),
    /// Manage the providers that tools come from
    #[command(subcommand)]
    Provider(provider::Command),
    /// Show what your session token allows
    #[command(subcommand)]
    Auth(auth::Command),
    /// Show which tools were called
    #[command(subcommand)]
    Audit(audit::Command),
    /// Run the proxy server
    Proxy(proxy::Args),
    /// Load everything as `ati proxy` would, and report every problem at once
    Check(check::Args),
    /// Check this machine, the upstreams and the running proxy, with a fix for each problem found
    Doctor(doctor::Args),
    /// Run a proxy with generated keys on this machine until Ctrl-C, and print requests to try
    Demo(demo::Args),
    /// Create the ATI folder; with --proxy, a signing key for session tokens too
    Init(init::Args),
    /// Edit the credentials that are stored as plain text
    #[command(subcommand)]
    Key(key::Command),
    /// Create, rotate and inspect the sealed keyring of a proxy
    #[command(subcommand)]
    Edge(edge::Command),
    /// Make signing keys; issue, inspect and validate session tokens
    #[command(subcommand)]
    Token(token::Command),
    /// Print the version
    Version,
    /// Print a completion script for a shell
    Completions { shell: clap_complete::Shell },
    /// Run a program until standard input closes, then end it and everything that it has started
    #[command(hide = true, name = crate::process::SUPERVISE)]
    Supervise {
        #[arg(last = true, required = true)]
        words: Vec<std::ffi::OsString>,
    },
    /// Write the generated pages of the documentation
    #[command(hide = true)]
    Reference(reference::Args),
}

impl Command {
    /// Who reads the log. None: nothing is logged, because the streams belong to another program.
    fn audience(&self) -> Option<Audience> {
        match self {
            Command::Supervise { .. } => None,
            Command::Proxy(_) | Command::Demo(_) => Some(Audience::Machine),
            Command::Run(_)
            | Command::Tool(_)
            | Command::Provider(_)
            | Command::Auth(_)
            | Command::Audit(_)
            | Command::Init(_)
            | Command::Key(_)
            | Command::Token(_)
            | Command::Check(_)
            | Command::Doctor(_)
            | Command::Edge(_)
            | Command::Version
            | Command::Completions { .. }
            | Command::Reference { .. } => Some(Audience::Person),
        }
    }

    /// Whether the command creates the ATI folder where it is missing. `proxy` does so itself, in
    /// the folder of its flags. `edge` must not: a rotation needs a folder that was bootstrapped.
    fn creates_ati_dir(&self) -> bool {
        match self {
            Command::Run(_)
            | Command::Tool(_)
            | Command::Provider(_)
            | Command::Auth(_)
            | Command::Audit(_)
            | Command::Init(_)
            | Command::Key(_)
            | Command::Token(_) => true,
            Command::Proxy(_)
            | Command::Check(_)
            | Command::Doctor(_)
            | Command::Demo(_)
            | Command::Edge(_)
            | Command::Version
            | Command::Completions { .. }
            | Command::Supervise { .. }
            | Command::Reference(_) => false,
        }
    }
}

/// Run one command to its exit code.
pub fn run(cli: Cli) -> ExitCode {
    let format = if cli.json { Format::Json } else { cli.output };
    let audience = cli.command.audience();
    if let Some(audience) = audience {
        telemetry::init(audience, cli.verbose);
    }
    if cli.command.creates_ati_dir() {
        init::ensure(&config::ati_dir());
    }
    let outcome = match cli.command {
        Command::Run(args) => run::run(&args, format, cli.verbose),
        Command::Tool(command) => tool::run(command, format),
        Command::Provider(command) => provider::run(command, format),
        Command::Auth(auth::Command::Status) => auth::status(format),
        Command::Audit(command) => audit::run(command, format),
        Command::Proxy(args) => proxy::run(args),
        Command::Check(args) => check::run(&args, format),
        Command::Doctor(args) => doctor::run(&args, cli.json),
        Command::Demo(args) => demo::run(&args),
        Command::Init(args) => init::run(&args),
        Command::Key(command) => key::run(command),
        Command::Edge(command) => edge::run(command),
        Command::Token(command) => token::run(command),
        Command::Version => {
            output::line(concat!("ati ", env!("CARGO_PKG_VERSION")));
            Ok(0)
        }
        Command::Completions { shell } => {
            completions(shell);
            Ok(0)
        }
        Command::Supervise { words } => Ok(supervise(&words)),
        Command::Reference(args) => reference::run(&args),
    };
    let code = match outcome {
        Ok(code) => code,
        Err(failure) => report(&failure, audience, format, cli.verbose),
    };
    telemetry::flush();
    ExitCode::from(code)
}

fn completions(shell: clap_complete::Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "ati", &mut script);
    output::line(String::from_utf8_lossy(&script).trim_end());
}

/// The program's exit code, or 127 as a shell has it where the program can't be run. It prints
/// nothing: its streams are the program's.
fn supervise(words: &[std::ffi::OsString]) -> u8 {
    let ended = words
        .split_first()
        .map(|(program, args)| crate::process::supervise(program, args));
    ended.and_then(Result::ok).unwrap_or(127)
}

/// Print a failure: a line for people, and a JSON line for scripts where the output is JSON. The
/// log of a server is JSON already.
fn report(failure: &Failure, audience: Option<Audience>, format: Format, verbose: bool) -> u8 {
    let code = failure.code;
    let text = failure.one_line();
    if audience == Some(Audience::Machine) {
        error!(
            code = code.as_str(),
            exit_code = code.exit_code(),
            hint = failure.hint,
            "ati command failed: {text}"
        );
        return code.exit_code();
    }
    match &failure.hint {
        Some(hint) => error!("ati command failed: {text}\n\nhint: {hint}"),
        None => error!("ati command failed: {text}"),
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

/// A runtime for a command that makes a few requests.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::new(Code::ExecutionFailed, "no runtime").because(e))
}

/// A file or a folder that can't be used: its path, because of the error.
fn file_failure(code: Code, path: &Path, error: std::io::Error) -> Failure {
    Failure::new(code, path.display().to_string()).because(error)
}

/// A problem as the end of a command. The problem is the whole message.
fn problem_failure(code: Code, problem: &Problem) -> Failure {
    Failure::new(code, problem.to_string())
}

/// The parser, for completions and for the reference page.
fn command() -> clap::Command {
    Cli::command()
}
