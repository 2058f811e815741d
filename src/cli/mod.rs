//! The command line: parsed arguments, one function per command, and one place that turns its
//! outcome into an exit code.

mod admin;
mod agent;
mod assist;
mod audit;
mod auth;
mod check;
mod cleanup;
mod complete;
mod credential;
mod demo;
mod doctor;
mod edge;
mod explain;
mod help;
mod init;
mod interrupt;
mod key;
mod local;
mod man;
mod mcp;
mod mcp_servers;
mod new_file;
mod output;
mod permissions;
mod plan;
mod programs;
mod prompt;
mod provider;
mod proxy;
mod reference;
mod reload;
mod remote;
mod run;
mod runfile;
mod sandbox;
mod secret_input;
#[cfg(feature = "sentry")]
mod sentry;
mod sign;
mod skill;
mod skillati;
mod status;
mod stored;
mod token;
mod tool;
mod transport;

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;

use clap::builder::{EnumValueParser, TypedValueParser};
use clap::{FromArgMatches, Parser, Subcommand, ValueEnum};
use tracing::{debug, error};

use crate::config;
use crate::error::{Code, Failure, Problem};
use crate::telemetry::{self, Audience};
use runfile::CalledRun;

/// The edge proxy between agent sandboxes and the services they use: it holds the credentials and
/// lets each request do only what its caller may do.
#[derive(Parser)]
#[command(name = "ati", version, propagate_version = true)]
pub struct Cli {
    /// How results are printed [default: json]
    #[arg(
        long,
        visible_alias = "format",
        global = true,
        help_heading = help::GLOBAL,
        env = "ATI_OUTPUT",
        value_parser = formats(),
        value_name = "FORMAT",
        hide_env_values = true
    )]
    output: Option<Printed>,

    /// Print JSON, whatever --output says
    #[arg(short = 'J', long, global = true, help_heading = help::GLOBAL)]
    json: bool,

    /// Log at debug level, and give the causes of an error
    #[arg(long, global = true, help_heading = help::GLOBAL)]
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

/// What `--output` says. One type for all commands, because the option is one of all commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Printed {
    As(Format),
    /// Only `ati sandbox` prints variables.
    Variables(sandbox::Layout),
}

impl Printed {
    fn format(self) -> Option<Format> {
        match self {
            Printed::As(format) => Some(format),
            Printed::Variables(_) => None,
        }
    }
}

fn formats() -> impl TypedValueParser<Value = Printed> {
    EnumValueParser::<Format>::new().map(Printed::As)
}

/// A variable of a sandbox: its name and its value.
struct Variable(&'static str, String);

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
    /// Show what your session token allows, and whether the proxy takes it
    #[command(subcommand)]
    Auth(auth::Command),
    /// Print the header that signs a request to a proxy
    Sign(sign::Args),
    /// Say what would become of a call or a request, and why, without doing it
    #[command(subcommand)]
    Explain(explain::Command),
    /// Show which tools were called
    #[command(subcommand)]
    Audit(audit::Command),
    /// Run the proxy server
    Proxy(proxy::Args),
    /// Show what the running proxy is and does: its listeners, what it has loaded, its last reload
    Status(status::Args),
    /// Make the running proxy read its files again, and tell what became of it
    Reload(status::Args),
    /// Load everything as `ati proxy` would, and report every problem at once
    Check(check::Args),
    /// Check this machine, the upstreams and the running proxy, with a fix for each problem found
    Doctor(doctor::Args),
    /// Run a proxy with generated keys on this machine until Ctrl-C, and print requests to try
    Demo(demo::Args),
    /// Create the ATI folder; with --proxy a signing key, with --example a tool and a route to try
    Init(init::Args),
    /// Edit the credentials that are stored as plain text
    #[command(subcommand)]
    Key(key::Command),
    /// Store, list and remove credentials of customers in the database
    #[command(subcommand)]
    Credential(credential::Command),
    /// Create, rotate and inspect the sealed keyring of a proxy
    #[command(subcommand)]
    Edge(edge::Command),
    /// Make signing keys; issue, inspect and validate session tokens
    #[command(subcommand)]
    Token(token::Command),
    /// Print the variables that make a sandbox use a proxy
    #[command(subcommand)]
    Sandbox(sandbox::Command),
    /// Print what to tell an agent about ati, for a system prompt or AGENTS.md
    Prompt,
    /// Print the version
    Version,
    /// Print a completion script for a shell
    Completions {
        /// The shell; bash, zsh and fish also complete the names of tools and providers
        shell: clap_complete::Shell,
    },
    /// Print a page of the manual
    Man(man::Args),
    /// List, read and install skills
    #[command(subcommand, visible_alias = "skills")]
    Skill(skill::Command),
    /// Read skills of a remote catalogue; the same as `ati skill fetch`
    #[command(subcommand)]
    Skillati(skillati::Command),
    /// Ask which tools to use for a task, and how
    Assist(assist::Args),
    /// Run a plan of several tool calls
    #[command(subcommand)]
    Plan(plan::Command),
    /// Serve the tools to MCP clients
    #[command(subcommand)]
    Mcp(mcp::Command),
    /// Show the functions of a Runfile
    #[command(subcommand)]
    Runfile(runfile::Command),
    /// Manage virtual keys, and the master key of the database
    #[command(subcommand)]
    Admin(admin::Command),
    /// Print the names that complete a command line, for the scripts of `ati completions`
    #[command(hide = true, name = complete::COMMAND)]
    Complete {
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
            Command::Complete { .. } => None,
            Command::Proxy(args) => Some(args.audience()),
            Command::Demo(_) => Some(Audience::Machine),
            Command::Run(_)
            | Command::Tool(_)
            | Command::Provider(_)
            | Command::Auth(_)
            | Command::Sign(_)
            | Command::Explain(_)
            | Command::Audit(_)
            | Command::Init(_)
            | Command::Key(_)
            | Command::Credential(_)
            | Command::Token(_)
            | Command::Check(_)
            | Command::Status(_)
            | Command::Reload(_)
            | Command::Doctor(_)
            | Command::Edge(_)
            | Command::Sandbox(_)
            | Command::Prompt
            | Command::Version
            | Command::Completions { .. }
            | Command::Man(_)
            | Command::Skill(_)
            | Command::Skillati(_)
            | Command::Assist(_)
            | Command::Plan(_)
            | Command::Mcp(_)
            | Command::Runfile(_)
            | Command::Admin(_)
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
            | Command::Mcp(_)
            | Command::Skill(_)
            | Command::Assist(_)
            | Command::Plan(_)
            | Command::Token(_) => true,
            Command::Proxy(_)
            | Command::Explain(_)
            | Command::Credential(_)
            | Command::Sign(_)
            | Command::Status(_)
            | Command::Reload(_)
            | Command::Check(_)
            | Command::Doctor(_)
            | Command::Demo(_)
            | Command::Edge(_)
            | Command::Sandbox(_)
            | Command::Prompt
            | Command::Version
            | Command::Completions { .. }
            | Command::Complete { .. }
            | Command::Man(_)
            | Command::Skillati(_)
            | Command::Runfile(_)
            | Command::Admin(_)
            | Command::Reference(_) => false,
        }
    }
}

/// Answers `ati --agent`, which has no command and touches nothing.
pub fn introspect() -> Option<ExitCode> {
    agent::answer(std::env::args_os())
}

/// The command line of this process. A usage error ends it, with exit code 2.
pub fn parse() -> Cli {
    let matches = match runfile::command_line(std::env::args_os()) {
        None => help::command().get_matches(),
        Some(CalledRun::Words(words)) => help::command().get_matches_from(words),
        Some(CalledRun::Help(text)) => {
            output::line(text);
            std::process::exit(0)
        }
        Some(CalledRun::Mistake(why)) => {
            let usage = "Usage: run --inspect | --serve-mcp [--runfile PATH] [--readonly]";
            let text = format!("{why}\n\n{usage}");
            clap::Error::raw(clap::error::ErrorKind::InvalidValue, text).exit()
        }
    };
    if matches.get_flag("agent") {
        let message =
            "--agent describes ati itself: it takes no command, only --commands and --depth";
        help::command()
            .error(clap::error::ErrorKind::ArgumentConflict, message)
            .exit();
    }
    Cli::from_arg_matches(&matches).unwrap_or_else(|e| e.exit())
}

/// Run one command to its exit code.
pub fn run(cli: Cli) -> ExitCode {
    // Some commands print lines for people where no format was asked for.
    let asked = if cli.json {
        Some(Format::Json)
    } else {
        cli.output.and_then(Printed::format)
    };
    let without_words = asked.unwrap_or(Format::Json);
    let format = without_words;
    let (format, verbose) = match &cli.command {
        Command::Run(args) => args.options(format, cli.verbose),
        Command::Assist(args) => args.options(format, cli.verbose),
        _ => (format, cli.verbose),
    };
    let audience = cli.command.audience();
    if let Some(audience) = audience {
        telemetry::init(audience, verbose);
    }
    #[cfg(feature = "sentry")]
    let sentry = sentry::start();
    if cli.command.creates_ati_dir() {
        init::ensure(&config::ati_dir());
    }
    let outcome = match cli.command {
        Command::Run(args) => run::run(&args, [format, without_words], verbose),
        Command::Tool(command) => tool::run(command, format, asked),
        Command::Provider(command) => provider::run(command, asked),
        Command::Auth(auth::Command::Status) => auth::status(format, asked),
        Command::Sign(args) => sign::run(&args, asked),
        Command::Explain(command) => explain::run(&command, format),
        Command::Audit(command) => audit::run(command, asked),
        Command::Proxy(args) => proxy::run(args),
        Command::Status(args) => status::run(&args, format),
        Command::Reload(args) => reload::run(&args, format),
        Command::Check(args) => check::run(&args, format),
        Command::Doctor(args) => doctor::run(&args, asked),
        Command::Demo(args) => demo::run(&args, asked),
        Command::Init(args) => init::run(&args, asked),
        Command::Key(command) => key::run(command, asked),
        Command::Credential(command) => credential::run(command, asked),
        Command::Edge(command) => edge::run(command, asked),
        Command::Token(command) => token::run(command, asked),
        Command::Sandbox(command) => sandbox::run(command, cli.json),
        Command::Prompt => {
            prompt::run(asked);
            Ok(0)
        }
        Command::Version => {
            version(asked);
            Ok(0)
        }
        Command::Completions { shell } => {
            complete::script(shell);
            Ok(0)
        }
        Command::Complete { words } => Ok(complete::run(words)),
        Command::Man(args) => man::run(&args),
        Command::Skill(command) => skill::run(command, asked),
        Command::Skillati(command) => skillati::run(command, format),
        Command::Assist(args) => assist::run(&args, asked),
        Command::Plan(command) => plan::run(&command, asked),
        Command::Mcp(command) => mcp::run(&command),
        Command::Runfile(command) => runfile::run(&command),
        Command::Admin(command) => admin::run(command, asked),
        Command::Reference(args) => reference::run(&args),
    };
    let code = match outcome.and_then(|code| output::finish().map(|()| code)) {
        Ok(code) => code,
        Err(failure) => report(&failure, audience, format, verbose),
    };
    #[cfg(feature = "sentry")]
    drop(sentry);
    telemetry::flush();
    ExitCode::from(code)
}

fn version(asked: Option<Format>) {
    let version = env!("CARGO_PKG_VERSION");
    output::lines_or_value(
        asked,
        || output::line(&format!("ati {version}")),
        || serde_json::json!({"name": "ati", "version": version}),
    );
}

/// Print a failure: a line for people, and a JSON line for scripts where the output is JSON and
/// stderr is no terminal, where people would read it twice. The log of a server is JSON already.
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
    if audience == Some(Audience::Operator) {
        return code.exit_code();
    }
    let chain = failure.chain();
    if format == Format::Json && !std::io::stderr().is_terminal() {
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
