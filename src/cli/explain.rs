//! `ati explain`: what would become of a call or of a request, and why. Nothing is done.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};
use tracing::debug;

use super::local::Local;
use super::remote::{self, Remote};
use super::run::{card_of_local, card_of_remote, file_arguments, file_operation, format_of};
use super::{Format, output, secret_input, stored};
use crate::api::explain::{AskedRequest, Question};
use crate::auth::session::{self, SESSION_TOKEN};
use crate::auth::signature;
use crate::catalog::Invocation;
use crate::catalog::files::FileOperation;
use crate::catalog::words::Words;
use crate::clock::unix_now;
use crate::config::{self, Environment, Flags};
use crate::error::{Code, Failure};
use crate::filters::Rules;
use crate::keyring::KeptKeys;
use crate::snapshot::Snapshot;

#[derive(clap::Subcommand)]
pub enum Command {
    /// What would become of a tool call
    Tool(Tool),
    /// What would become of an HTTP request to the proxy
    Request(Box<Request>),
}

#[derive(clap::Args)]
#[command(override_usage = "ati explain tool [OPTIONS] <TOOL> [--NAME VALUE]...")]
pub struct Tool {
    /// The token of the caller whose call it would be; - reads it from standard input [default:
    /// your own]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,

    /// The conf file of a proxy on this machine, whose policy counts then
    #[arg(long, value_name = "FILE")]
    conf: Option<std::path::PathBuf>,

    /// The tool's name, then its arguments, as for `ati run`
    #[arg(value_name = "TOOL", required = true, num_args = 1.., trailing_var_arg = true)]
    words: Vec<String>,
}

#[derive(clap::Args)]
pub struct Request {
    /// The request's method
    method: String,

    /// The request's URL, or its path as it would be sent
    url: String,

    /// The token that the request would carry; - reads it from standard input [default: your own]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,

    /// A header of the request, like "Host: api.example.com"; repeatable
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,

    /// Leave the request unsigned, though there is a secret to sign with
    #[arg(long)]
    unsigned: bool,

    #[command(flatten)]
    flags: Flags,
}

pub fn run(command: &Command, format: Format) -> Result<u8, Failure> {
    let (explained, format) = match command {
        Command::Tool(asked) => {
            let words = Words::parse(asked.words.get(1..).unwrap_or_default());
            if words.help
                && let Some(card) = card(asked)?
            {
                output::line(&card);
                return Ok(0);
            }
            (tool(asked)?, format_of(&words, format))
        }
        Command::Request(asked) => (request(asked)?, format),
    };
    match format {
        Format::Json => output::pretty(&explained),
        Format::Text | Format::Table => print(&explained),
    }
    Ok(0)
}

/// How the tool is called. None for a program, whose own word `--help` is.
fn card(asked: &Tool) -> Result<Option<String>, Failure> {
    let name = asked.words.first().map_or("", String::as_str);
    match Remote::from_environment()? {
        Some(remote) => card_of_remote(&remote.for_tool(&config::ati_dir(), name), name),
        None => {
            let mut local = match Local::load_to_explain(name, asked.token.is_some())? {
                Ok(local) => local,
                Err(refused) => {
                    let why = refused.steps.into_iter().find_map(|step| step.detail);
                    return Err(Failure::new(Code::InvalidToken, why.unwrap_or_default()));
                }
            };
            card_of_local(&mut local, name)
        }
    }
}

/// A running proxy has settings of its own: flags that say others would be ignored.
fn refuse_flags(has_flags: bool) -> Result<(), Failure> {
    if !has_flags {
        return Ok(());
    }
    let message = "ATI_PROXY_URL is set, so that the running proxy is asked, with its own \
                   settings: --conf and other flags of 'ati proxy' can't be given with it";
    Err(Failure::invalid(message)
        .hint("leave them out, or unset ATI_PROXY_URL to explain what a proxy here would do"))
}

fn tool(asked: &Tool) -> Result<Value, Failure> {
    let (name, words) = asked
        .words
        .split_first()
        .ok_or_else(|| Failure::invalid("which tool?"))?;
    let words = match words.split_first() {
        Some((first, rest)) if first == "--" => rest,
        _ => words,
    };
    let parsed = Words::parse(words);
    let members = parsed
        .arguments()
        .map(|(name, value)| format!("{}:{value}", json!(name)));
    let args = format!("{{{}}}", members.collect::<Vec<_>>().join(","));
    let mut question = Question {
        tool: Some(name.clone()),
        args: serde_json::value::RawValue::from_string(args).ok(),
        raw_args: words.to_vec(),
        token: given(asked.token.as_deref())?,
        ..Question::default()
    };
    if let Some(remote) = Remote::from_environment()? {
        refuse_flags(asked.conf.is_some())?;
        as_sent(&mut question, file_operation(name), &parsed)?;
        return ask(remote.for_tool(&config::ati_dir(), name), &question);
    }
    debug!("mode: local");
    let other_caller = question.token.is_some();
    let explainer = match &asked.conf {
        None => Local::load_to_explain(name, other_caller)?,
        Some(conf) => {
            let flags = Flags {
                conf: Some(conf.clone()),
                ..Flags::default()
            };
            Local::of_server(server_snapshot(&flags)?, other_caller)?
        }
    };
    let explained = match explainer {
        Ok(local) => {
            let tool = local.catalog().find(name);
            let operation = tool.and_then(|tool| match &tool.invocation {
                Invocation::Files(operation) => Some(*operation),
                _ => None,
            });
            as_sent(&mut question, operation, &parsed)?;
            local.explain(name, &question)?
        }
        Err(refused) => refused,
    };
    Ok(json!(explained))
}

/// `ati run` keeps what is about files of this machine to itself: a call has other arguments.
fn as_sent(
    question: &mut Question,
    operation: Option<FileOperation>,
    words: &Words<'_>,
) -> Result<(), Failure> {
    let (Some(operation), Some(args)) = (operation, &question.args) else {
        return Ok(());
    };
    if let Some(sent) = file_arguments(operation, args, words)? {
        question.args = Some(sent);
        question.raw_args.clear();
    }
    Ok(())
}

fn request(asked: &Request) -> Result<Value, Failure> {
    let method = Method::from_bytes(asked.method.to_ascii_uppercase().as_bytes())
        .map_err(|_| Failure::invalid(format!("'{}' is no method", asked.method)))?;
    let mut headers: BTreeMap<String, String> = asked.headers.iter().cloned().collect();
    if !asked.unsigned && !headers.contains_key(signature::HEADER.as_str()) {
        let path = signed_path(&asked.url);
        if let Some(signing) = remote::signing_key()? {
            let signed = signing.key.sign(unix_now(), method.as_str(), path);
            headers.insert(signature::HEADER.to_string(), signed);
        }
    }
    let own = || session::resolve(SESSION_TOKEN).ok().flatten();
    let token = given(asked.token.as_deref())?.or_else(own);
    let request = AskedRequest {
        method: method.to_string(),
        url: asked.url.clone(),
        headers,
    };
    if let Some(remote) = Remote::from_environment()? {
        refuse_flags(asked.flags != Flags::default())?;
        let question = Question {
            request: Some(request),
            token,
            ..Question::default()
        };
        return ask(remote, &question);
    }
    debug!("mode: local");
    let snapshot = server_snapshot(&asked.flags)?;
    // Virtual keys are the running proxy's to know.
    let rules = Rules {
        snapshot: &snapshot,
        keys: None,
    };
    let explained = crate::api::explain::explain_request(&request, token.as_deref(), rules);
    Ok(json!(super::runtime()?.block_on(explained)))
}

/// The path as it is sent and signed, whatever it holds.
fn signed_path(url: &str) -> &str {
    let path = match url.split_once("://") {
        Some((_, rest)) => rest.find(['/', '?', '#']).map_or("/", |at| &rest[at..]),
        None => url,
    };
    match path.split(['?', '#']).next() {
        Some("") | None => "/",
        Some(path) => path,
    }
}

/// Asks the running proxy.
fn ask(remote: Remote, question: &Question) -> Result<Value, Failure> {
    debug!("mode: proxy");
    let body = serde_json::to_string(question)
        .map_err(|e| Failure::new(Code::ExecutionFailed, "the question").because(e))?;
    let remote = remote.with_token_or(question.token.as_deref());
    remote.post_json("explain", body)
}

/// Everything as `ati proxy` would load it. A one-shot key is left alone.
fn server_snapshot(flags: &Flags) -> Result<Snapshot, Failure> {
    let mut settings = config::resolve(flags, &Environment::read())
        .map_err(|problems| Failure::from_problems("the settings", &problems))?;
    settings.keyring.places.consume = false;
    let stored = stored::load(&settings)
        .map_err(|problem| Failure::from_problems("the database", &[problem]))?;
    let built = Snapshot::build(settings, &KeptKeys::default(), &stored.unwrap_or_default())
        .map_err(|failure| Failure::from_problems("the settings", &failure.problems))?;
    Ok(built.snapshot)
}

fn given(token: Option<&str>) -> Result<Option<String>, Failure> {
    match token {
        Some("-") => Ok(Some(secret_input::from_stdin()?.trim().to_owned())),
        token => Ok(token.map(str::to_owned)),
    }
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("like 'Host: api.example.com'")?;
    Ok((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
}

fn print(explained: &Value) {
    let text = |value: &Value| match value {
        Value::String(text) => output::printable(text),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    for step in explained["steps"].as_array().into_iter().flatten() {
        let pattern = match &step["pattern"] {
            Value::Null => String::new(),
            pattern => format!(" ({})", text(pattern)),
        };
        let line = format!(
            "{:<11} {:<8} {}{pattern}",
            text(&step["step"]),
            text(&step["outcome"]),
            text(&step["detail"])
        );
        output::line(line.trim_end());
    }
    let rule = match &explained["rule"] {
        Value::Null => String::new(),
        rule => format!(" by {}", text(rule)),
    };
    let (verdict, status) = (text(&explained["verdict"]), text(&explained["status"]));
    output::line(&format!("{verdict} ({status}){rule}"));
}
