//! What can be concluded about a tool where its author has declared nothing.

use http::Method;
use serde_json::Value;

use super::Effects;
use crate::catalog::Invocation;
use crate::catalog::files::FileOperation;

/// By what HTTP says about a method, or by the annotations of an MCP server: those are hints for a
/// user interface, which a server may get wrong or lie about. None where nothing is known, as of a
/// program.
pub fn concluded_of(invocation: &Invocation) -> Option<Effects> {
    let over_network = Effects {
        network: Some(true),
        ..Effects::default()
    };
    Some(match invocation {
        Invocation::Http(http) => match http.method {
            Method::GET => Effects {
                idempotent: Some(true),
                destructive: Some(false),
                ..over_network
            },
            Method::PUT => Effects {
                idempotent: Some(true),
                ..over_network
            },
            Method::DELETE => Effects {
                idempotent: Some(true),
                destructive: Some(true),
                ..over_network
            },
            _ => over_network,
        },
        Invocation::Mcp(remote) => of_annotations(remote.details.annotations.as_ref()?)?,
        Invocation::Files(FileOperation::Download) => Effects {
            idempotent: Some(true),
            destructive: Some(false),
            ..over_network
        },
        Invocation::Files(FileOperation::Upload) => Effects {
            idempotent: Some(false),
            destructive: Some(false),
            ..over_network
        },
        Invocation::Cli | Invocation::Atip(_) | Invocation::Cmp(_) | Invocation::Runfile(_) => {
            return None;
        }
    })
}

/// MCP's own hints, as far as they say the same.
fn of_annotations(hints: &Value) -> Option<Effects> {
    let hint = |name: &str| hints[name].as_bool();
    let read_only = hint("readOnlyHint") == Some(true);
    let effects = Effects {
        network: hint("openWorldHint"),
        // What only reads destroys nothing, and can be repeated.
        destructive: hint("destructiveHint").or(read_only.then_some(false)),
        idempotent: hint("idempotentHint").or(read_only.then_some(true)),
        ..Effects::default()
    };
    Some(effects).filter(|effects| !effects.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn annotations_of_a_server_are_read_as_effects() {
        let effects = |hints: Value| serde_json::to_value(of_annotations(&hints)).unwrap();
        assert_eq!(
            effects(json!({"readOnlyHint": true, "openWorldHint": false})),
            json!({"network": false, "idempotent": true, "destructive": false})
        );
        assert_eq!(
            effects(json!({"destructiveHint": true})),
            json!({"destructive": true})
        );
        assert_eq!(effects(json!({"title": "T"})), Value::Null);
    }
}
