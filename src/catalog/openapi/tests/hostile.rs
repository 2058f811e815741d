//! Documents that are made to be expensive.

use super::*;

#[test]
fn schema_bomb_is_converted_in_bounded_time() {
    // Each refers to the next one twice: written out, it would be 2^1000 schemas.
    let mut schemas = serde_json::Map::new();
    for n in 0..1000 {
        let next = json!({"$ref": format!("#/components/schemas/S{}", n + 1)});
        schemas.insert(
            format!("S{n}"),
            json!({"allOf": [next, next], "properties": {format!("p{n}"): next}}),
        );
    }
    schemas.insert(
        "S1000".into(),
        json!({"properties": {"end": {"type": "string"}}}),
    );
    let document = json!({"openapi": "3.0.0", "components": {"schemas": schemas}, "paths": {"/x": {"post": {
        "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/S0"}}}}}}}});
    let survey = survey(&document);
    assert!(survey.operations[0].input_schema.to_string().len() < 2 << 20);

    let deep = "[".repeat(1 << 20);
    let deep_yaml = "a: ".to_owned() + &deep;
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        laughs += &format!(
            "a{n}: &a{n} [{}]\n",
            vec![format!("*a{}", n - 1); 10].join(", ")
        );
    }
    for (text, expected) in [
        (deep.as_str(), "not JSON: "),
        (&deep_yaml, "not YAML: "),
        (&laughs, "not YAML: "),
        ("{", "not JSON: "),
        ("a: [", "not YAML: "),
        ("{}", "no OpenAPI document"),
        ("just text", "no OpenAPI document"),
        (
            r#"{"openapi": "4.0.0", "paths": {}}"#,
            "OpenAPI 4.0.0 is not known here",
        ),
        (
            r#"{"openapi": "3.1.0", "webhooks": {}}"#,
            "it has webhooks and no paths",
        ),
        (r#"{"swagger": "1.2"}"#, "OpenAPI 1.2 is not known here"),
    ] {
        let Err(Unreadable(message)) = Document::parse(text) else {
            panic!("{expected}")
        };
        assert!(message.starts_with(expected), "{expected}: {message}");
        assert!(message.len() < 500);
    }
}

/// The cost of hostile documents and arguments is bounded.
#[test]
fn hostile_documents_cost_a_bounded_time() {
    let body = |schemas: Value, name: &str| {
        let reference = json!({"$ref": format!("#/components/schemas/{name}")});
        let document = json!({"openapi": "3.0.0", "components": {"schemas": schemas}, "paths": {"/x": {"post": {
            "requestBody": {"required": true, "content": {"application/json": {"schema": {"type": "object", "properties": {"a": reference}}}}}}}}});
        survey(&document).operations.remove(0).input_schema
    };
    // A chain of parts, longer than the stack is deep.
    let chain: serde_json::Map<String, Value> = (0..20_000)
        .map(|n| {
            (
                format!("S{n}"),
                json!({"allOf": [{"$ref": format!("#/components/schemas/S{}", n + 1)}]}),
            )
        })
        .collect();
    let document = json!({"openapi": "3.0.0", "components": {"schemas": chain}, "paths": {"/x": {"post": {
        "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/S0"}}}}}}}});
    assert_eq!(survey(&document).operations.len(), 1);
    // Hundreds of parts that refer to itself.
    let itself: Vec<Value> = (0..200)
        .map(|_| json!({"$ref": "#/components/schemas/X"}))
        .collect();
    let schema = body(
        json!({"X": {"allOf": itself, "properties": {"p": {"$ref": "#/components/schemas/X"}}}}),
        "X",
    );
    assert!(schema.to_string().len() < 20_000, "{schema}");
    // Variables whose defaults contain variables.
    let variables: serde_json::Map<String, Value> = (0..20)
        .map(|n| {
            (
                format!("v{n}"),
                json!({"default": format!("{{v{}}}", n + 1).repeat(12)}),
            )
        })
        .collect();
    let document = json!({"openapi": "3.0.0", "paths": {}, "servers": [{"url": "https://h/{v0}", "variables": variables}]});
    assert!(parse(&document).base_url(None).len() < 1000);
    // Thousands of operations with the same long name.
    let paths: serde_json::Map<String, Value> = (0..4000)
        .map(|n| {
            (
                format!("/{n}"),
                json!({"get": {"operationId": format!("{}{:03}", "x".repeat(130), n % 1000)}}),
            )
        })
        .collect();
    let names: std::collections::HashSet<String> =
        survey(&json!({"openapi": "3.0.0", "paths": paths}))
            .operations
            .into_iter()
            .map(|o| o.id)
            .collect();
    assert_eq!(names.len(), 4000);

    // Nested choices, as in and/or filters, and an argument as deep as JSON allows.
    let filter = json!({"N": {"anyOf": [
        {"properties": {"c": {"$ref": "#/components/schemas/N"}}, "required": ["k1"]},
        {"properties": {"c": {"$ref": "#/components/schemas/N"}}, "required": ["k2"]}]}});
    let doubled: serde_json::Map<String, Value> = (0..28)
        .map(|n| (format!("S{n}"), json!({"allOf": [{"$ref": format!("#/components/schemas/S{}", n + 1)}, {"$ref": format!("#/components/schemas/T{n}")}]})))
        .chain((0..28).map(|n| (format!("T{n}"), json!({"allOf": [{"$ref": format!("#/components/schemas/S{}", n + 1)}]}))))
        .chain([("S28".to_owned(), json!({"type": "object"}))])
        .collect();
    let started = std::time::Instant::now();
    for (schemas, name, fits) in [(filter, "N", false), (Value::Object(doubled), "S0", true)] {
        let schema = crate::catalog::schema::Schema::new(body(schemas, name));
        let deep = (0..100).fold(json!({}), |inner, _| json!({"c": inner}));
        let prepared = schema.prepare(
            serde_json::Map::from_iter([("a".to_owned(), deep)]),
            &Default::default(),
        );
        assert_eq!(prepared.is_ok(), fits, "{name}: {prepared:?}");
    }
    // Each choice tried at each level would be 2^28 checks and more.
    assert!(started.elapsed() < std::time::Duration::from_secs(10));
}
