//! `ati provider add-mcp` and `add-cli`.

use tracing::info;

use super::super::Format;
use super::name;
use super::write::{Manifest, replace, save_new};
use crate::error::{Code, Failure};

#[derive(clap::Args)]
pub struct AddMcp {
    /// The provider's name; its tools are called <NAME>:<TOOL>
    name: String,

    #[command(flatten)]
    pub server: ServerArgs,

    #[command(flatten)]
    about: AboutArgs,

    /// Replace the manifest that is there
    #[arg(long)]
    force: bool,
}

/// The options that name an MCP server.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct ServerArgs {
    /// How the server is reached: http, or stdio for a program that ati runs [default: http with
    /// --url, stdio with --command]
    #[arg(long, default_value = "", hide_default_value = true)]
    pub transport: String,

    /// The URL of the server, for http
    #[arg(long)]
    pub url: Option<String>,

    /// The program to run, for stdio
    #[arg(long)]
    pub command: Option<String>,

    /// An argument of the program; repeatable
    #[arg(long, allow_hyphen_values = true)]
    pub args: Vec<String>,

    /// An environment variable of the program; ${name} stands for a credential; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub env: Vec<String>,

    /// How the credential is sent: none, bearer or header
    #[arg(long, default_value = "none")]
    pub auth: String,

    /// The credential's name in the keyring
    #[arg(long)]
    pub auth_key: Option<String>,

    /// The header that carries the credential
    #[arg(long)]
    pub auth_header: Option<String>,
}

#[derive(clap::Args)]
struct AboutArgs {
    /// What the provider is for, as `ati provider list` shows it
    #[arg(long)]
    description: Option<String>,

    /// The category that `ati tool search` finds it under
    #[arg(long)]
    category: Option<String>,
}

#[derive(clap::Args)]
pub struct AddCli {
    /// The provider's name, which is also its tool's
    name: String,

    /// The program to run, by name or path
    #[arg(long)]
    command: String,

    /// An argument that comes before those of each call; repeatable
    #[arg(long, allow_hyphen_values = true)]
    default_args: Vec<String>,

    /// An environment variable of the program; ${name} stands for a credential, @{name} for a file
    /// that holds one; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    env: Vec<String>,

    /// Seconds after which the program is killed [default: 120]
    #[arg(long)]
    timeout: Option<u64>,

    #[command(flatten)]
    about: AboutArgs,

    /// Replace the manifest that is there
    #[arg(long)]
    force: bool,
}

impl ServerArgs {
    /// These options, with the transport that the others imply.
    pub fn complete(&self) -> Self {
        let implied = match (self.transport.as_str(), &self.url, &self.command) {
            ("", Some(_), None) => "http",
            ("", None, Some(_)) => "stdio",
            (given, ..) => given,
        };
        ServerArgs {
            transport: implied.to_owned(),
            ..self.clone()
        }
    }

    pub fn check(&self) -> Result<(), Failure> {
        let missing = |what: &str| Failure::new(Code::MissingArg, what.to_owned());
        match self.transport.as_str() {
            "http" if self.url.is_none() => {
                return Err(missing("--url is required for HTTP transport"));
            }
            "stdio" if self.command.is_none() => {
                return Err(missing("--command is required for stdio transport"));
            }
            "http" | "stdio" => {}
            "" => return Err(missing("--transport is required (http or stdio)")),
            other => {
                return Err(Failure::invalid(format!(
                    "Unknown transport: {other} (expected http or stdio)"
                )));
            }
        }
        match self.auth.as_str() {
            "none" => Ok(()),
            "bearer" | "header" if self.auth_key.is_none() => Err(missing(&format!(
                "--auth-key is required for {} auth",
                self.auth
            ))),
            "bearer" | "header" => Ok(()),
            other => Err(Failure::invalid(format!(
                "Unknown auth type: {other} (expected none, bearer or header)"
            ))),
        }
    }

    pub fn environment(&self) -> Result<Vec<(String, String)>, Failure> {
        pairs(&self.env)
    }
}

fn save_as(
    name: &str,
    manifest: &Manifest,
    force: bool,
    asked: Option<Format>,
) -> Result<(), Failure> {
    if force {
        replace(name, manifest, asked)
    } else {
        save_new(name, manifest, asked)
    }
}

pub fn mcp(args: &AddMcp, asked: Option<Format>) -> Result<u8, Failure> {
    let name = name::check(&args.name)?;
    let server = args.server.complete();
    server.check()?;
    let manifest = mcp_manifest(name, &server, &args.about)?;
    save_as(name, &manifest, args.force, asked)?;
    if let Some(key) = &args.server.auth_key {
        info!("remember: ati key set {key} <value>");
    }
    Ok(0)
}

/// Write a manifest for a server of `provider load --save`.
pub fn save_server(name: &str, server: &ServerArgs, asked: Option<Format>) -> Result<(), Failure> {
    let about = AboutArgs {
        description: None,
        category: None,
    };
    save_new(name, &mcp_manifest(name, server, &about)?, asked)
}

fn mcp_manifest(name: &str, server: &ServerArgs, about: &AboutArgs) -> Result<Manifest, Failure> {
    let default = format!("{name} MCP provider");
    let mut manifest = Manifest::new(
        name,
        about.description.as_deref().unwrap_or(&default),
        "mcp",
    );
    manifest
        .text("mcp_transport", &server.transport)
        .optional("mcp_url", server.url.as_deref())
        .optional("mcp_command", server.command.as_deref())
        .list("mcp_args", &server.args)
        .text("auth_type", &server.auth)
        .optional("auth_key_name", server.auth_key.as_deref())
        .optional("auth_header_name", server.auth_header.as_deref())
        .optional("category", about.category.as_deref())
        .map("mcp_env", &server.environment()?);
    Ok(manifest)
}

pub fn cli(args: &AddCli, asked: Option<Format>) -> Result<u8, Failure> {
    let name = name::check(&args.name)?;
    if args.command.trim().is_empty() {
        return Err(Failure::invalid("--command is empty"));
    }
    let env = pairs(&args.env)?;
    let default = format!("{name} CLI provider");
    let description = args.about.description.as_deref().unwrap_or(&default);
    let mut manifest = Manifest::new(name, description, "cli");
    manifest
        .text("cli_command", &args.command)
        .list("cli_default_args", &args.default_args);
    if let Some(timeout) = args.timeout {
        let seconds = i64::try_from(timeout).unwrap_or(i64::MAX);
        manifest.value("cli_timeout_secs", toml::Value::Integer(seconds));
    }
    manifest
        .text("auth_type", "none")
        .optional("category", args.about.category.as_deref())
        .map("cli_env", &env);
    save_as(name, &manifest, args.force, asked)?;
    for key in env.iter().flat_map(|(_, value)| references(value)) {
        info!("remember: ati key set {key} <value>");
    }
    Ok(0)
}

/// The names inside `${}` and `@{}`.
fn references(value: &str) -> Vec<&str> {
    ["${", "@{"]
        .iter()
        .flat_map(|open| value.split(open).skip(1))
        .filter_map(|rest| rest.split_once('}'))
        .map(|(name, _)| name)
        .collect()
}

fn is_variable(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(word) && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn pairs(texts: &[String]) -> Result<Vec<(String, String)>, Failure> {
    texts
        .iter()
        .map(|text| match text.split_once('=') {
            Some((key, value)) if is_variable(key) => Ok((key.to_owned(), value.to_owned())),
            _ => Err(Failure::invalid(format!(
                "Invalid --env format: {text} (expected KEY=VALUE)"
            ))),
        })
        .collect()
}
