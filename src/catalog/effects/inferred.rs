//! What can be concluded about a tool whose author has declared no effects.

use http::Method;
use serde_json::Value;

use super::{Effects, KnownEffects, Source};
use crate::catalog::Invocation;
use crate::catalog::files::FileOperation;

/// By what HTTP says about a method, or by the annotations of an MCP server, which are its author's
/// own word. None where nothing is known, as of a program.
pub fn inferred(invocation: &Invocation) -> Option<KnownEffects> {
    let over_network = Effects {
        network: Some(true),
        ..Effects::default()
    };
    let effects = match invocation {
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
        Invocation::Mcp(remote) => {
            let hints = remote.details.annotations.as_ref()?;
            return of_annotations(hints).map(|effects| KnownEffects {
                effects,
                source: Source::Native,
            });
        }
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
    };
    Some(KnownEffects {
        effects,
        source: Source::Inferred,
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
    fn annotations_of_a_server_are_its_authors_word() {
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
