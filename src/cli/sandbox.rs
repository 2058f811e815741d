//! `ati sandbox`: the variables that a sandbox needs to use a proxy.

mod layout;

use clap::builder::PossibleValue;
use serde_json::json;
use tracing::warn;
use url::Url;

pub use layout::Layout;

use super::token::{self as token_command, KeyArgs};
use super::{Printed, Variable, help, secret_input};
use crate::auth::session::{self, SESSION_TOKEN};
use crate::auth::token::{self, Claims, DEFAULT_AUDIENCE, Namespace};
use crate::auth::{sandbox, scope};
use crate::clock::unix_now;
use crate::config::Environment;
use crate::error::{Code, Failure};
use crate::keyring::customer::parse_id;

pub const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "ati sandbox",
        &["ati sandbox provision --agent sandbox:42 --tools 'github:*'"],
    ),
    (
        "ati sandbox provision",
        &[
            "eval \"$(ati sandbox provision --agent sandbox:42 --tools 'github:*,web_search')\"",
            "ati sandbox provision --agent sandbox:42 --tools web_search --rate 'tool:*=100/hour' \\\n      \
             --proxy-url https://edge.example.com --format docker > sandbox.env # docker run --env-file",
        ],
    ),
    (
        "ati sandbox env",
        &["ati sandbox env --proxy-url https://edge.example.com --format dotenv > .env"],
    ),
];

#[derive(clap::Subcommand)]
pub enum Command {
    /// Issue a token for a sandbox, and print the variables that make it use the proxy
    Provision(Box<Provision>),
    /// Print the same variables for a token that exists
    Env(Env),
}

#[derive(clap::Args)]
pub struct Provision {
    /// Who the sandbox is: the token's subject, like sandbox:42
    #[arg(long, value_name = "ID")]
    agent: String,

    /// Tools that it may call: names, or provider:*; by comma or repeated
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tools: Vec<String>,

    /// Skills that it may read, by comma or repeated
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    skills: Vec<String>,

    /// Further scopes as they are, like help; by comma or repeated
    #[arg(long, value_name = "SCOPES", value_delimiter = ',')]
    extra_scopes: Vec<String>,

    /// How long the token is valid: seconds, or a number with s, m, h or d
    #[arg(long, default_value = "3600", value_parser = token_command::parse_ttl)]
    ttl: u64,

    /// A rate limit, like "tool:github:*=10/hour"; by comma or repeated
    #[arg(long, value_name = "PATTERN=N/UNIT", value_delimiter = ',', value_parser = token_command::parse_rate)]
    rate: Vec<(String, String)>,

    /// The tenant whose credentials its calls use
    #[arg(long, value_name = "ID", visible_alias = "customer-id", value_parser = parse_id)]
    customer: Option<String>,

    /// The job that it works on, for the audit log
    #[arg(long)]
    job_id: Option<String>,

    /// The sandbox's own name, for the audit log
    #[arg(long)]
    sandbox_id: Option<String>,

    /// The audience: the service that accepts the token
    #[arg(long, default_value = DEFAULT_AUDIENCE)]
    aud: String,

    /// The issuer [default: $ATI_JWT_ISSUER]
    #[arg(long)]
    iss: Option<String>,

    #[command(flatten)]
    key: KeyArgs,

    /// The name (kid) of the signing key, for verifiers with several keys
    #[arg(long, value_name = "NAME")]
    kid: Option<String>,

    #[command(flatten)]
    edge: Edge,
}

#[derive(clap::Args)]
pub struct Env {
    /// The token; - reads it from standard input, which keeps it out of `ps` [default: the session
    /// token of this machine]
    token: Option<String>,

    #[command(flatten)]
    edge: Edge,
}

/// What both commands print besides the token, and how.
#[derive(clap::Args)]
struct Edge {
    /// Where the sandbox reaches the proxy
    #[arg(
        long,
        value_name = "URL",
        env = "ATI_PROXY_URL",
        hide_env_values = true
    )]
    proxy_url: Option<String>,

    /// Also print ATI_SANDBOX_SECRET, which an edge in enforce mode wants requests signed with
    #[arg(long)]
    with_sandbox_secret: bool,

    /// env: lines for eval; docker: for docker run --env-file [default: env]
    // The id of the option that every command has: it takes its place.
    #[arg(
        id = "output",
        long = "output",
        visible_alias = "format",
        help_heading = help::GLOBAL,
        env = "ATI_OUTPUT",
        hide_env_values = true,
        value_name = "FORMAT",
        value_parser = layouts(),
    )]
    layout: Option<Printed>,
}

/// Those for variables, and the names that `ATI_OUTPUT` may have for other commands.
fn layouts() -> impl clap::builder::TypedValueParser<Value = Printed> {
    use super::Format;
    use clap::builder::TypedValueParser as _;
    let hidden = |name| PossibleValue::new(name).hide(true);
    let names = ["env", "json", "dotenv", "docker"].map(PossibleValue::new);
    let names = names.into_iter().chain(["text", "table"].map(hidden));
    clap::builder::PossibleValuesParser::new(names).map(|name| match name.as_str() {
        "dotenv" => Printed::Variables(Layout::Dotenv),
        "docker" => Printed::Variables(Layout::Docker),
        "json" => Printed::As(Format::Json),
        "table" => Printed::As(Format::Table),
        "text" => Printed::As(Format::Text),
        _ => Printed::Variables(Layout::Env),
    })
}

/// `json`: asked for by `-J`, which counts more than `--output`.
pub fn run(command: Command, json: bool) -> Result<u8, Failure> {
    let (token, edge) = match command {
        Command::Provision(args) => (issue(&args)?, args.edge),
        Command::Env(args) => (existing(args.token)?, args.edge),
    };
    let mut variables = vec![
        Variable("ATI_PROXY_URL", proxy_url(edge.proxy_url.as_deref())?),
        Variable(SESSION_TOKEN, token),
    ];
    if edge.with_sandbox_secret {
        variables.push(Variable("ATI_SANDBOX_SECRET", sandbox_secret()?));
    }
    layout::print(&variables, edge.layout, json);
    Ok(0)
}

fn issue(args: &Provision) -> Result<String, Failure> {
    // Found out before a token exists.
    proxy_url(args.edge.proxy_url.as_deref())?;
    if args.agent.trim().is_empty() {
        return Err(Failure::invalid("--agent: who is the sandbox?"));
    }
    let scope = scopes(args)?;
    if scope.is_empty() {
        warn!("the token allows nothing: give --tools, --skills or --extra-scopes");
    }
    let now = unix_now();
    let claims = Claims {
        iss: args.iss.clone().or_else(|| Environment::read().issuer),
        sub: args.agent.clone(),
        aud: args.aud.clone(),
        iat: now,
        exp: now.saturating_add(args.ttl),
        jti: Some(uuid::Uuid::new_v4().to_string()),
        scope,
        job_id: args.job_id.clone(),
        sandbox_id: args.sandbox_id.clone(),
        ati: Some(Namespace {
            v: 1,
            rate: args.rate.iter().cloned().collect(),
            customer_id: args.customer.clone(),
            delegation: None,
        }),
    };
    token_command::sign(&claims, &args.key, args.kid.as_deref())
}

/// The scopes of the three lists, each once.
fn scopes(args: &Provision) -> Result<String, Failure> {
    let lists = [
        ("--tools", "tool:", &args.tools),
        ("--skills", "skill:", &args.skills),
        ("--extra-scopes", "", &args.extra_scopes),
    ];
    let mut scopes: Vec<String> = Vec::new();
    for (flag, prefix, names) in lists {
        for name in names {
            let name = name.trim();
            // White space separates scopes: a name with some would allow more than it says.
            if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control()) {
                let message = format!("{flag}: a name is empty, or has white space in it");
                return Err(Failure::invalid(message));
            }
            let name = name.strip_prefix(prefix).unwrap_or(name);
            let scope = format!("{prefix}{name}");
            if prefix == "tool:" && !scope::can_cover_a_tool(&scope) {
                let message =
                    format!("{flag}: '{name}' can match no tool: a * stands at the end only");
                return Err(Failure::invalid(message));
            }
            if prefix.is_empty()
                && let Some(doubt) = token_command::doubtful(&scope)
            {
                warn!("{flag}: {doubt}");
            }
            if !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
    }
    Ok(scopes.join(" "))
}

/// The token that was given, or this machine's.
fn existing(given: Option<String>) -> Result<String, Failure> {
    let token = match given {
        Some(dash) if dash == "-" => secret_input::from_stdin()?.to_string(),
        Some(token) => token,
        None => session::resolve(SESSION_TOKEN)
            .map_err(|e| Failure::new(Code::MissingKey, "the session token").because(e))?
            .ok_or_else(|| {
                let message = match session::absent_file(SESSION_TOKEN) {
                    Some(file) => format!(
                        "no token: {SESSION_TOKEN}_FILE names {}, which isn't there",
                        file.display()
                    ),
                    None => "no token: give one, or set ATI_SESSION_TOKEN".to_owned(),
                };
                Failure::new(Code::MissingKey, message)
                    .hint("'ati sandbox provision' issues a new one")
            })?,
    };
    let token = token.trim();
    let claims = token::inspect(token)
        .ok_or_else(|| Failure::invalid("not a token: its claims can't be read"))?;
    let ended = claims.get("exp").and_then(serde_json::Value::as_u64);
    if ended.is_some_and(|exp| exp <= unix_now()) {
        warn!("the token has expired: the proxy will refuse it");
    }
    Ok(token.to_owned())
}

/// The proxy's URL as sandboxes get it: without a slash at its end.
fn proxy_url(given: Option<&str>) -> Result<String, Failure> {
    let url = given.unwrap_or_default().trim();
    if url.is_empty() {
        let message = "where is the proxy? Give --proxy-url, or set ATI_PROXY_URL";
        return Err(Failure::invalid(message));
    }
    let usable = |url: &Url| {
        crate::egress::is_http_url(url) && url.query().is_none() && url.fragment().is_none()
    };
    let plain = !url.contains(|c: char| c.is_whitespace() || c.is_control());
    match Url::parse(url).ok().filter(usable) {
        Some(_) if plain => Ok(url.trim_end_matches('/').to_owned()),
        _ => Err(Failure::invalid(
            "the proxy's URL must be an http or https URL without a query",
        )),
    }
}

fn sandbox_secret() -> Result<String, Failure> {
    let found = sandbox::text().map_err(|e| Failure::from_error(Code::MissingKey, e))?;
    let Some(secret) = found else {
        let message = format!("no signing secret: put it into {}", sandbox::SOURCES);
        return Err(Failure::new(Code::MissingKey, message));
    };
    match secret.contains(char::is_control) {
        false => Ok(secret.to_string()),
        true => Err(Failure::invalid(
            "the signing secret has control characters: it can't be a variable",
        )),
    }
}

/// As a JSON object.
pub(super) fn as_json(variables: &[Variable]) -> serde_json::Value {
    let members = variables
        .iter()
        .map(|Variable(name, value)| ((*name).to_owned(), json!(value)));
    serde_json::Value::Object(members.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn customer_that_no_proxy_would_accept_is_refused() {
        use clap::Args as _;
        let parse = |customer: &str| {
            Provision::augment_args(clap::Command::new("provision")).try_get_matches_from([
                "provision",
                "--agent",
                "a",
                "--customer",
                customer,
            ])
        };
        assert!(parse("acme").is_ok());
        for bad in ["", "a/b", "a@b", " a"] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(error.contains("a customer's id that"), "{error}");
        }
    }

    #[test]
    fn proxy_url_loses_its_last_slash_and_must_be_one() {
        for (given, url) in [
            ("http://h:8090/", "http://h:8090"),
            (" https://h/base/ ", "https://h/base"),
        ] {
            assert_eq!(proxy_url(Some(given)).unwrap(), url);
        }
        for bad in ["", "h:8090", "ftp://h", "http://h/?x=1", "http://h/a b"] {
            assert!(proxy_url(Some(bad)).is_err(), "{bad}");
        }
        assert!(proxy_url(None).is_err());
    }
}
