use serde::{Deserialize, Serialize};

use super::section::offer;

/// `handler` of a manifest: where the tools of a provider come from.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum HandlerKind {
    #[default]
    Http,
    OpenApi,
    Mcp,
    Cli,
    FileManager,
    /// Routes instead of tools.
    Passthrough,
    Xai,
    /// A tool that describes its own commands.
    Atip,
    /// Programs that describe themselves by CMP.
    Cmp,
    /// Functions of a Runfile.
    Runfile,
    /// None of the others, as written.
    Unknown(String),
}

static KNOWN: [HandlerKind; 10] = [
    HandlerKind::Http,
    HandlerKind::OpenApi,
    HandlerKind::Mcp,
    HandlerKind::Cli,
    HandlerKind::FileManager,
    HandlerKind::Passthrough,
    HandlerKind::Xai,
    HandlerKind::Atip,
    HandlerKind::Cmp,
    HandlerKind::Runfile,
];

impl HandlerKind {
    /// The names that a manifest may use.
    pub const NAMES: [&'static str; KNOWN.len()] = {
        let mut names = [""; KNOWN.len()];
        let mut index = 0;
        while index < names.len() {
            names[index] = KNOWN[index].name();
            index += 1;
        }
        names
    };

    /// As manifests write it.
    pub const fn name(&self) -> &str {
        match self {
            HandlerKind::Http => "http",
            HandlerKind::OpenApi => "openapi",
            HandlerKind::Mcp => "mcp",
            HandlerKind::Cli => "cli",
            HandlerKind::FileManager => "file_manager",
            HandlerKind::Passthrough => "passthrough",
            HandlerKind::Xai => "xai",
            HandlerKind::Atip => "atip",
            HandlerKind::Cmp => "cmp",
            HandlerKind::Runfile => "runfile",
            HandlerKind::Unknown(name) => name.as_str(),
        }
    }

    /// Why a provider with this handler has no tools; `None` for a handler that this build has.
    pub fn absence(&self) -> Option<String> {
        match self {
            HandlerKind::Http
            | HandlerKind::OpenApi
            | HandlerKind::Mcp
            | HandlerKind::Cli
            | HandlerKind::FileManager
            | HandlerKind::Passthrough
            | HandlerKind::Xai
            | HandlerKind::Atip
            | HandlerKind::Cmp
            | HandlerKind::Runfile => None,
            HandlerKind::Unknown(name) => {
                let offer = offer(name, &Self::NAMES);
                Some(format!(
                    "unknown handler '{name}', so its tools are absent; {offer}"
                ))
            }
        }
    }
}

impl From<&str> for HandlerKind {
    fn from(name: &str) -> Self {
        KNOWN
            .iter()
            .find(|known| known.name() == name)
            .cloned()
            .unwrap_or_else(|| HandlerKind::Unknown(name.to_owned()))
    }
}

impl From<String> for HandlerKind {
    fn from(name: String) -> Self {
        HandlerKind::from(name.as_str())
    }
}

impl From<HandlerKind> for String {
    fn from(kind: HandlerKind) -> Self {
        kind.name().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handler_names_are_read_as_they_are_written() {
        for name in HandlerKind::NAMES {
            let kind = HandlerKind::from(name);
            assert_eq!(kind.name(), name);
            assert!(!matches!(kind, HandlerKind::Unknown(_)), "{name}");
        }
        assert_eq!(HandlerKind::from("HTTP").name(), "HTTP");
    }

    #[test]
    fn absent_handlers_say_why() {
        let absence = |name: &str| HandlerKind::from(name).absence();
        assert_eq!(absence("mcp"), None);
        assert_eq!(absence("cli"), None);
        assert_eq!(
            absence("opnapi").as_deref(),
            Some(
                "unknown handler 'opnapi', so its tools are absent; did you mean 'openapi'? \
                 Known are http, openapi, mcp, cli, file_manager, passthrough, xai, atip, cmp, \
                 runfile"
            )
        );
        assert_eq!(
            absence("zzz").as_deref(),
            Some(
                "unknown handler 'zzz', so its tools are absent; \
                 known are http, openapi, mcp, cli, file_manager, passthrough, xai, atip, cmp, \
                 runfile"
            )
        );
    }
}
