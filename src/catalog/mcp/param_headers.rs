//! `x-mcp-header` in the input schema of an MCP tool: arguments that are also sent as
//! `Mcp-Param-<name>` headers, so that servers on the way can route by them.

use serde_json::Value;

/// More annotations than this aren't read: each becomes a header.
const MOST_HEADERS: usize = 64;
/// How deep properties of properties are looked at.
const DEEPEST: usize = 16;

/// One argument that is sent as a header, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamHeader {
    /// Names of properties, from the root of the arguments on.
    pub path: Vec<String>,
    /// What follows `Mcp-Param-`.
    pub name: String,
}

/// The annotations along `properties`. Those of a schema that breaks a rule aren't told apart here:
/// rmcp leaves such a tool out of the listing.
pub fn annotations(schema: &Value) -> Vec<ParamHeader> {
    let mut found = Vec::new();
    collect(schema, &mut Vec::new(), &mut found);
    found
}

fn collect(schema: &Value, path: &mut Vec<String>, found: &mut Vec<ParamHeader>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return;
    };
    if path.len() >= DEEPEST {
        return;
    }
    for (name, property) in properties {
        path.push(name.clone());
        if let Some(header) = property.get("x-mcp-header").and_then(Value::as_str)
            && !header.is_empty()
            && found.len() < MOST_HEADERS
        {
            found.push(ParamHeader {
                path: path.clone(),
                name: header.to_owned(),
            });
        }
        collect(property, path, found);
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn annotations_are_found_at_every_depth_of_properties_and_nowhere_else() {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "plain": {"type": "string"},
            "empty": {"type": "string", "x-mcp-header": ""},
            "number": {"type": "string", "x-mcp-header": 5},
            "place": {"type": "object", "properties": {"city": {"type": "string", "x-mcp-header": "City"}}},
            "list": {"type": "array", "items": {"properties": {"x": {"x-mcp-header": "X"}}}},
        }});
        let found: Vec<_> = annotations(&schema)
            .into_iter()
            .map(|one| (one.path.join("."), one.name))
            .collect();
        let expected = [("region", "Region"), ("place.city", "City")];
        assert_eq!(
            found,
            expected.map(|(path, name)| (path.to_owned(), name.to_owned()))
        );
        assert!(annotations(&json!(true)).is_empty());
    }
}
