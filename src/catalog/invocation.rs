//! What a tool calls, by handler. Everything else about a tool is common to all of them.

use std::sync::Arc;

use http::Method;
use serde_json::Value;

use super::atip::AtipInvocation;
use super::cmp::CmpInvocation;
use super::files::FileOperation;
use super::mcp::ToolDetails;
use super::mcp::param_headers::ParamHeader;
use super::provider::{Handler, Provider};
use super::runfile::RunfileInvocation;
use crate::config::{HandlerKind, Section, offer};

/// What `method` may be.
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "DELETE", "PATCH"];

#[derive(Debug, Clone)]
pub enum Invocation {
    Http(HttpInvocation),
    Mcp(McpInvocation),
    /// The provider's program.
    Cli,
    Files(FileOperation),
    /// A command of the provider's program.
    Atip(Box<AtipInvocation>),
    /// An intent of a CMP tool.
    Cmp(Arc<CmpInvocation>),
    /// A function of a Runfile.
    Runfile(Arc<RunfileInvocation>),
}

#[derive(Debug, Clone)]
pub struct HttpInvocation {
    pub method: Method,
    /// The path after the provider's base URL, with `{name}` for path parameters.
    pub endpoint: String,
    pub dialect: Dialect,
}

/// What an HTTP tool's arguments and answers are to its upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Arguments and answers pass as they are.
    Plain,
    /// `handler = "xai"`: a question for an agent, and its final text.
    Agentic,
}

#[derive(Debug, Clone)]
pub struct McpInvocation {
    /// The tool's name at its server.
    pub remote_name: String,
    /// The server says that a second call does no harm.
    pub repeatable: bool,
    /// Arguments that are sent as headers, too.
    pub headers: Vec<ParamHeader>,
    pub details: Arc<ToolDetails>,
}

impl Invocation {
    /// From a `[[tools]]` table.
    pub(super) fn read(s: &mut Section<'_>, tool: &str, provider: &Provider) -> Self {
        let method = read_method(s);
        let endpoint: Option<String> = s.take("endpoint");
        match provider.handler {
            Handler::Mcp(_) => Invocation::Mcp(McpInvocation {
                remote_name: endpoint.unwrap_or_else(|| own_name(tool, &provider.name).to_owned()),
                repeatable: false,
                headers: Vec::new(),
                details: Arc::default(),
            }),
            Handler::Cli(_) => Invocation::Cli,
            Handler::FileManager(_) => {
                let endpoint = endpoint.unwrap_or_default();
                Invocation::Files(FileOperation::read(s, tool, &provider.name, &endpoint))
            }
            Handler::Http(_)
            | Handler::OpenApi(_)
            | Handler::Cmp(_)
            | Handler::Runfile(_)
            | Handler::Atip(_)
            | Handler::Passthrough
            | Handler::Absent => Invocation::Http(HttpInvocation {
                method,
                endpoint: endpoint.unwrap_or_default(),
                dialect: match provider.kind {
                    HandlerKind::Xai => Dialect::Agentic,
                    _ => Dialect::Plain,
                },
            }),
        }
    }

    /// The names of path parameters, where the tool has a path.
    pub(super) fn placeholders(&self) -> impl Iterator<Item = &str> {
        let endpoint = match self {
            Invocation::Http(http) => http.endpoint.as_str(),
            Invocation::Mcp(_)
            | Invocation::Cli
            | Invocation::Files(_)
            | Invocation::Atip(_)
            | Invocation::Cmp(_)
            | Invocation::Runfile(_) => "",
        };
        placeholders(endpoint)
    }

    /// Whether the tool is a program, which gets the words of the command line as they are. Of
    /// other tools, a word that belongs to no argument is a mistake.
    pub fn is_program(&self) -> bool {
        match self {
            Invocation::Cli => true,
            Invocation::Http(_)
            | Invocation::Mcp(_)
            | Invocation::Files(_)
            | Invocation::Atip(_)
            | Invocation::Cmp(_)
            | Invocation::Runfile(_) => false,
        }
    }

    /// Whether the executor reads the arguments itself, and the schema only describes them.
    pub fn reads_arguments_itself(&self) -> bool {
        match self {
            Invocation::Files(_) => true,
            Invocation::Http(_)
            | Invocation::Mcp(_)
            | Invocation::Cli
            | Invocation::Atip(_)
            | Invocation::Cmp(_)
            | Invocation::Runfile(_) => false,
        }
    }

    /// The schema of a tool whose manifest has none.
    pub(super) fn own_schema(&self) -> Option<Value> {
        match self {
            Invocation::Files(operation) => Some(operation.schema()),
            Invocation::Http(_)
            | Invocation::Mcp(_)
            | Invocation::Cli
            | Invocation::Atip(_)
            | Invocation::Cmp(_)
            | Invocation::Runfile(_) => None,
        }
    }

    /// The method that listings show. Clients of existing deployments expect one for every tool.
    pub fn listed_method(&self) -> &Method {
        match self {
            Invocation::Http(http) => &http.method,
            Invocation::Mcp(_)
            | Invocation::Atip(_)
            | Invocation::Cmp(_)
            | Invocation::Runfile(_)
            | Invocation::Files(FileOperation::Upload) => &Method::POST,
            Invocation::Cli | Invocation::Files(FileOperation::Download) => &Method::GET,
        }
    }

    /// The endpoint that listings show.
    pub fn listed_endpoint(&self) -> &str {
        match self {
            Invocation::Http(http) => &http.endpoint,
            Invocation::Mcp(mcp) => &mcp.remote_name,
            Invocation::Atip(command) => &command.command,
            Invocation::Cmp(cmp) => &cmp.intent.command.text,
            Invocation::Runfile(runfile) => &runfile.function.name,
            Invocation::Cli | Invocation::Files(_) => "",
        }
    }

    /// Whether it changes nothing, by its method, or by the hints of its MCP server.
    pub(super) fn only_reads(&self) -> Option<bool> {
        match self {
            Invocation::Http(http) => Some(http.method == Method::GET),
            Invocation::Mcp(remote) => remote
                .details
                .annotations
                .as_ref()?
                .get("readOnlyHint")?
                .as_bool(),
            Invocation::Files(operation) => Some(*operation == FileOperation::Download),
            Invocation::Cli | Invocation::Atip(_) | Invocation::Cmp(_) | Invocation::Runfile(_) => {
                None
            }
        }
    }

    /// What its author says that it is asked for with.
    pub(super) fn said_patterns(&self) -> &[String] {
        match self {
            Invocation::Cmp(cmp) => &cmp.intent.patterns,
            _ => &[],
        }
    }

    /// Whether its author has patterns for it.
    pub(super) fn has_patterns(&self) -> bool {
        matches!(self, Invocation::Cmp(cmp) if cmp.intent.has_patterns())
    }

    /// Whether a search in these words means it, by the author's own patterns.
    pub(super) fn is_meant_by(&self, query: &str) -> bool {
        matches!(self, Invocation::Cmp(cmp) if cmp.intent.is_meant_by(query))
    }

    /// The category of the tool alone, in place of its provider's.
    pub(super) fn category(&self) -> Option<&str> {
        match self {
            Invocation::Cmp(cmp) => Some(cmp.domain.as_str()).filter(|text| !text.is_empty()),
            _ => None,
        }
    }
}

/// The names in `{}` of a path.
pub(super) fn placeholders(path: &str) -> impl Iterator<Item = &str> {
    path.split('{')
        .skip(1)
        .filter_map(|part| part.split_once('}'))
        .map(|(name, _)| name)
}

fn read_method(s: &mut Section<'_>) -> Method {
    let method: String = s.take("method").unwrap_or_else(|| "GET".to_owned());
    match method.to_ascii_uppercase().as_str() {
        "GET" => Method::GET,
        "POST" => Method::POST,
        "PUT" => Method::PUT,
        "DELETE" => Method::DELETE,
        "PATCH" => Method::PATCH,
        _ => {
            let offer = offer(&method, &METHODS);
            s.problem("method", format!("unknown method '{method}'; {offer}"));
            Method::GET
        }
    }
}

/// Without the provider's name in front.
pub(super) fn own_name<'a>(name: &'a str, provider: &str) -> &'a str {
    let own = name.strip_prefix(provider);
    own.and_then(|own| own.strip_prefix(':')).unwrap_or(name)
}
