mod hostile;

use super::*;
use serde_json::json;

fn parse(value: &Value) -> Document {
    Document::parse(&value.to_string()).unwrap()
}

fn survey(value: &Value) -> Survey {
    parse(value).survey("p", "https://api.example/v1")
}

fn one(operation: Value) -> Operation {
    let path = match operation.get("parameters") {
        Some(_) => "/x/{id}",
        None => "/x",
    };
    let document = json!({"openapi": "3.0.0", "paths": {path: {"post": operation}},
    "components": {"schemas": {
        "Pet": {"type": "object", "required": ["name", "id"], "properties": {
            "id": {"type": "integer", "readOnly": true}, "name": {"type": "string", "nullable": true},
            "parent": {"$ref": "#/components/schemas/Pet"}}},
        "Big": {"allOf": [{"$ref": "#/components/schemas/Pet"}, {"required": ["size"], "properties": {"size": {"type": "integer", "minimum": 0, "exclusiveMinimum": true}}}]},
    }}});
    let mut survey = survey(&document);
    assert!(survey.left_out.is_empty(), "{:?}", survey.left_out);
    survey.operations.remove(0)
}

#[test]
fn operation_names_are_safe_unique_and_stable() {
    let operation = |id: &str| json!({"operationId": id});
    let document = json!({"openapi": "3.1.0", "paths": {
        "/b": {"get": operation("list pets/all"), "post": operation("list-pets.all"), "head": {}},
        "/a": {"get": operation("list pets/all"), "delete": operation("list_pets_all"), "put": operation(&"x".repeat(300))},
        "/pet/{petId}/photo": {"get": {}, "patch": operation("")},
        "/": {"get": {}},
    }});
    let survey = survey(&document);
    let ids: Vec<&str> = survey.operations.iter().map(|o| o.id.as_str()).collect();
    let long = "x".repeat(126);
    assert_eq!(
        ids,
        [
            "list_pets_all",
            "list-pets.all",
            "list_pets_all_2",
            "list_pets_all_3",
            &long,
            "get_pet_petId_photo",
            "patch_pet_petId_photo",
            "get_"
        ]
    );
    assert_eq!(
        survey.left_out,
        [LeftOut {
            method: "HEAD".into(),
            path: "/b".into(),
            reason: "HEAD is not a tool's method".into()
        }]
    );
}

#[test]
fn selection_accounts_for_every_operation() {
    let operation = |id: &str, tag: &str| json!({"operationId": id, "tags": [tag]});
    let document = json!({"openapi": "3.0.3", "paths": {
        "/1": {"get": operation("a", "x")}, "/2": {"get": operation("b", "y")}, "/3": {"get": operation("c", "x")}, "/4": {"get": operation("d", "z")},
    }});
    let ids = |selection: Selection| -> (Vec<String>, usize) {
        let survey = survey(&document).select(&selection);
        (
            survey.operations.iter().map(|o| o.id.clone()).collect(),
            survey.left_out.len(),
        )
    };
    let list = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        ids(Selection {
            include_tags: list(&["x", "y"]),
            ..Default::default()
        }),
        (list(&["a", "b", "c"]), 1)
    );
    assert_eq!(
        ids(Selection {
            exclude_tags: list(&["x"]),
            ..Default::default()
        }),
        (list(&["b", "d"]), 2)
    );
    assert_eq!(
        ids(Selection {
            include_operations: list(&["d"]),
            ..Default::default()
        }),
        (list(&["d"]), 3)
    );
    assert_eq!(
        ids(Selection {
            exclude_operations: list(&["a"]),
            most: Some(2),
            ..Default::default()
        }),
        (list(&["b", "c"]), 2)
    );
}

#[test]
fn parameters_get_location_and_style() {
    let operation = one(json!({"parameters": [
        {"name": "id", "in": "path", "schema": {"type": "string"}},
        {"name": "id", "in": "query", "required": true, "description": "The other id", "schema": {"type": "integer"}},
        {"name": "filter", "in": "query", "style": "deepObject", "schema": {"type": "object"}},
        {"name": "tags", "in": "query", "explode": false, "schema": {"type": "array", "items": {"type": "string"}}},
        {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
        {"name": "Authorization", "in": "header", "schema": {"type": "string"}},
        {"name": "session", "in": "cookie", "schema": {"type": "string"}},
        {"name": "q", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}},
    ]}));
    let expected = json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "x-ati-param-location": "path"},
            "id_query": {"type": "integer", "description": "The other id", "x-ati-param-location": "query", "x-ati-name": "id"},
            "filter": {"type": "object", "x-ati-style": "deepObject", "x-ati-explode": false, "x-ati-param-location": "query"},
            "tags": {"type": "array", "items": {"type": "string"}, "x-ati-style": "form", "x-ati-explode": false, "x-ati-collection-format": "csv", "x-ati-param-location": "query"},
            "X-Trace": {"type": "string", "x-ati-param-location": "header"},
            "session": {"type": "string", "x-ati-param-location": "cookie"},
            "q": {"type": "object", "x-ati-style": "json", "x-ati-explode": false, "x-ati-param-location": "query"},
        },
        "required": ["id", "id_query"],
        "x-ati-param-location": "body",
    });
    assert_eq!(operation.input_schema, expected);
}

#[test]
fn list_in_the_query_has_its_collection_format() {
    let list = json!({"type": "array", "items": {"type": "string"}});
    for (style, explode, format) in [
        (None, None, json!("multi")),
        (Some("form"), Some(false), json!("csv")),
        (Some("spaceDelimited"), Some(false), json!("ssv")),
        (Some("pipeDelimited"), Some(false), json!("pipes")),
        (Some("pipeDelimited"), Some(true), json!("multi")),
        (Some("deepObject"), None, Value::Null),
    ] {
        let mut parameter = json!({"name": "tags", "in": "query", "schema": list});
        if let Some(style) = style {
            parameter["style"] = json!(style);
        }
        if let Some(explode) = explode {
            parameter["explode"] = json!(explode);
        }
        let tags = &one(json!({"parameters": [parameter]})).input_schema["properties"]["tags"];
        assert_eq!(
            tags["x-ati-collection-format"], format,
            "{style:?} {explode:?}"
        );
    }
    let in_path = json!({"name": "id", "in": "path", "schema": list});
    let in_path = one(json!({"parameters": [in_path]})).input_schema;
    assert!(
        in_path["properties"]["id"]
            .get("x-ati-collection-format")
            .is_none()
    );
}

#[test]
fn body_fields_become_arguments() {
    let body = |content: Value| {
        one(json!({"requestBody": {"required": true, "content": content}})).input_schema
    };
    let pet = body(
        json!({"application/xml": {}, "application/json": {"schema": {"$ref": "#/components/schemas/Big"}}}),
    );
    assert_eq!(pet["x-ati-body-encoding"], "json");
    assert_eq!(pet["required"], json!(["name", "size"]));
    assert_eq!(pet["properties"]["name"]["type"], json!(["string", "null"]));
    assert_eq!(pet["properties"]["size"]["exclusiveMinimum"], 0);
    assert!(
        pet["properties"].get("id").is_none(),
        "what is read only can't be sent"
    );
    // A schema that refers to itself is converted in finite time.
    assert_eq!(
        pet["$defs"]["Pet"]["properties"]["parent"],
        json!({"$ref": "#/$defs/Pet"})
    );
    assert_eq!(pet["$defs"]["Pet"]["required"], json!(["name"]));

    let list = body(
        json!({"application/json": {"schema": {"type": "array", "items": {"type": "string"}}}}),
    );
    assert_eq!(list["x-ati-body-argument"], "body");
    assert_eq!(
        list["properties"]["body"]["items"],
        json!({"type": "string"})
    );
    let choice = body(
        json!({"application/json": {"schema": {"oneOf": [{"type": "string"}, {"$ref": "#/components/schemas/Pet"}]}}}),
    );
    assert_eq!(
        choice["properties"]["body"]["oneOf"][1],
        json!({"$ref": "#/$defs/Pet"})
    );
    let free = body(
        json!({"application/json": {"schema": {"type": "object", "additionalProperties": true}}}),
    );
    assert_eq!(free["x-ati-body-argument"], "body");
    let file = body(
        json!({"multipart/form-data": {"schema": {"type": "object", "properties": {
        "photo": {"type": "string", "format": "binary"}, "note": {"type": "string"}}}}}),
    );
    assert_eq!(file["x-ati-body-encoding"], "multipart");
    assert_eq!(file["properties"]["photo"]["x-ati-file"], true);
    let raw = body(
        json!({"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}),
    );
    assert_eq!(
        (&raw["x-ati-body-encoding"], &raw["x-ati-body-type"]),
        (&json!("raw"), &json!("application/octet-stream"))
    );
    let any = body(
        json!({"*/*": {"schema": {"type": "object", "properties": {"a": {"type": "string"}}}}}),
    );
    assert_eq!(
        (&any["x-ati-body-encoding"], &any["x-ati-body-type"]),
        (&json!("json"), &json!("application/json"))
    );
    let form = body(
        json!({"application/x-www-form-urlencoded": {"schema": {"type": "object", "properties": {"a": {"type": "object"}}},
        "encoding": {"a": {"style": "deepObject", "explode": true}}}}),
    );
    assert_eq!(form["properties"]["a"]["x-ati-style"], "deepObject");
    let optional = one(
        json!({"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}}}),
    );
    assert!(optional.input_schema.get("required").is_none());
}

#[test]
fn operation_with_an_outside_reference_is_left_out() {
    let document = json!({"openapi": "3.0.0", "paths": {
        "/file": {"get": {"parameters": [{"$ref": "other.yaml#/x"}]}},
        "/url": {"post": {"requestBody": {"$ref": "http://169.254.169.254/x"}}},
        "/item": {"$ref": "./paths.json#/item"},
        "/gone": {"get": {"parameters": [{"$ref": "#/components/parameters/Missing"}]}},
        "/round": {"get": {"parameters": [{"$ref": "#/components/parameters/A"}]}},
        "/other-host": {"get": {"servers": [{"url": "https://evil.example"}]}},
        "/schema": {"get": {"operationId": "kept", "parameters": [{"name": "a", "in": "query", "schema": {"$ref": "other.json"}}]}},
    }, "components": {"parameters": {"A": {"$ref": "#/components/parameters/B"}, "B": {"$ref": "#/components/parameters/A"}}}});
    let survey = survey(&document);
    let reasons: Vec<(&str, &str)> = survey
        .left_out
        .iter()
        .map(|l| (l.path.as_str(), l.reason.as_str()))
        .collect();
    assert_eq!(
        reasons,
        [
            ("/file", "it refers to another document, 'other.yaml#/x'"),
            (
                "/url",
                "it refers to another document, 'http://169.254.169.254/x'"
            ),
            (
                "/item",
                "it refers to another document, './paths.json#/item'"
            ),
            (
                "/gone",
                "it refers to '#/components/parameters/Missing', which isn't there"
            ),
            ("/round", "its references go round in circles"),
            ("/other-host", "it has a server of its own, on another host"),
        ]
    );
    // A schema that can't be resolved accepts anything.
    assert_eq!(
        survey.operations[0].input_schema["properties"]["a"]["x-ati-param-location"],
        "query"
    );
}

#[test]
fn odd_braces_in_a_path_are_kept() {
    let document = json!({"openapi": "3.0.0", "paths": {
        "/{": {"get": {}}, "/a{b": {"get": {}}, "/{}/x": {"get": {}}, "/}{": {"get": {}}, "": {"get": {}}}});
    assert_eq!(survey(&document).operations.len(), 5);
}

#[test]
fn base_url_is_found_in_every_version() {
    let base = |document: Value, from: Option<&str>| {
        let from = from.map(|url| url::Url::parse(url).unwrap());
        parse(&document).base_url(from.as_ref())
    };
    let three = |servers: Value| json!({"openapi": "3.0.0", "paths": {}, "servers": servers});
    let from = Some("https://docs.example/specs/openapi.json?x=1");
    assert_eq!(
        base(three(json!([{"url": "https://api.example/v1/"}])), from),
        "https://api.example/v1"
    );
    assert_eq!(
        base(three(json!([{"url": "/v2"}])), from),
        "https://docs.example/v2"
    );
    assert_eq!(
        base(three(json!([{"url": "v3"}])), from),
        "https://docs.example/specs/v3"
    );
    assert_eq!(base(three(json!([])), from), "https://docs.example");
    assert_eq!(base(three(json!([{"url": "/v2"}])), None), "/v2");
    let variables = json!([{"url": "https://{region}.example:{port}/{v}", "variables": {"region": {"default": "eu"}, "port": {"enum": ["8443"]}, "v": {"default": 2}}}]);
    assert_eq!(base(three(variables), None), "https://eu.example:8443/2");
    let two = |more: Value| {
        let mut document = json!({"swagger": "2.0", "paths": {}});
        document
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        document
    };
    assert_eq!(
        base(
            two(json!({"host": "h.example", "basePath": "/v2", "schemes": ["http", "https"]})),
            None
        ),
        "https://h.example/v2"
    );
    assert_eq!(
        base(two(json!({"host": "h.example", "schemes": ["http"]})), None),
        "http://h.example"
    );
    assert_eq!(
        base(two(json!({"basePath": "/v2"})), from),
        "https://docs.example/v2"
    );
}

#[test]
fn first_usable_security_scheme_is_taken() {
    let auth = |schemes: Value| {
        parse(&json!({"openapi": "3.0.0", "paths": {}, "components": {"securitySchemes": schemes}}))
            .auth()
    };
    assert_eq!(auth(json!({})).scheme, Scheme::None);
    let detected = auth(json!({
        "cookie": {"type": "apiKey", "in": "cookie", "name": "sid"},
        "oidc": {"type": "openIdConnect"},
        "key": {"type": "apiKey", "in": "query", "name": "token"},
        "bearer": {"type": "http", "scheme": "Bearer"},
    }));
    assert_eq!(detected.scheme, Scheme::Query("token".into()));
    assert_eq!(
        detected.others,
        [
            "cookie: apiKey in cookie 'sid'",
            "oidc: openIdConnect",
            "bearer: http Bearer"
        ]
    );
    let flow = |flows: Value| auth(json!({"o": {"type": "oauth2", "flows": flows}})).scheme;
    assert_eq!(
        flow(json!({"implicit": {}, "clientCredentials": {"tokenUrl": "/t"}})),
        Scheme::OAuth2 {
            token_url: "/t".into()
        }
    );
    assert_eq!(flow(json!({"implicit": {}})), Scheme::None);
    let two = parse(
        &json!({"swagger": "2.0", "paths": {}, "securityDefinitions": {"b": {"type": "basic"}}}),
    );
    assert_eq!(two.auth().scheme, Scheme::Basic);
}

#[test]
fn operation_server_on_the_same_host_is_used() {
    let endpoint = |server: &str| {
        let document =
            json!({"openapi": "3.0.0", "paths": {"/x": {"get": {"servers": [{"url": server}]}}}});
        survey(&document).operations[0].endpoint.clone()
    };
    assert_eq!(endpoint("https://api.example/v1/sub"), "/sub/x");
    assert_eq!(
        endpoint("https://api.example/v2"),
        "https://api.example/v2/x"
    );
    assert_eq!(
        endpoint("https://api.example/v10"),
        "https://api.example/v10/x"
    );
    assert_eq!(endpoint("/v1"), "/x");
}

#[test]
fn yaml_words_are_strings() {
    let text = "openapi: 3.0.0\npaths:\n  /p:\n    get:\n      operationId: yes\n      parameters:\n        - {name: y, in: query, required: true, schema: {type: string, enum: [SE, NO, on]}}\n";
    let survey = Document::parse(text).unwrap().survey("p", "https://h");
    let operation = &survey.operations[0];
    assert_eq!(operation.id, "yes");
    assert_eq!(
        operation.input_schema["properties"]["y"]["enum"],
        json!(["SE", "NO", "on"])
    );
    assert_eq!(operation.input_schema["required"], json!(["y"]));
}

#[test]
fn path_placeholders_become_arguments_and_other_urls_are_left_out() {
    let document = json!({"openapi": "3.0.0", "paths": {"/a/{id}": {"get": {}}, "http://evil.example/x": {"get": {}}, "/b#c": {"get": {}}}});
    let survey = survey(&document);
    assert_eq!(survey.operations.len(), 1);
    assert_eq!(survey.operations[0].input_schema["required"], json!(["id"]));
    assert_eq!(survey.left_out.len(), 2);
    let header = parse(
        &json!({"openapi": "3.0.0", "paths": {}, "components": {"securitySchemes": {"k": {"type": "apiKey", "in": "header", "name": "X Key\n"}}}}),
    );
    assert_eq!(header.auth().scheme, Scheme::None);
}
