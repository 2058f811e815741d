//! What the tools of a document send.

use serde_json::{Value, json};

use super::{run, server, spec};
use crate::support::ati::{Setup, stdout, write};
use crate::support::upstream::Upstream;

#[test]
fn operations_are_selected_and_overridden_by_the_manifest() {
    let api = server(Vec::new());
    let spec = std::fs::read(spec("petstore-3.1.json")).unwrap();
    let manifest = |more: &str| {
        format!(
            r#"
                [provider]
                name = 'p'
                handler = 'openapi'
                base_url = '{}'
                openapi_spec = 'p.json'
                {more}
            "#,
            api.url()
        )
    };
    let names = |more: &str| -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("manifests/p.toml"), manifest(more));
        write(&dir.path().join("specs/p.json"), &spec);
        let output = run(dir.path(), &["tool", "list"]);
        let list: Value = serde_json::from_str(&stdout(&output)).unwrap_or_default();
        let list = list.as_array().cloned().unwrap_or_default();
        list.iter()
            .map(|tool| tool["tool"].as_str().unwrap().to_owned())
            .filter(|name| name.starts_with("p:"))
            .collect()
    };
    assert_eq!(names("openapi_include_tags = ['user']"), ["p:createUsers"]);
    assert_eq!(
        names("openapi_max_operations = 2"),
        ["p:addPet", "p:updatePet"]
    );
    assert_eq!(
        names("openapi_include_operations = ['getPetById']"),
        ["p:getPetById"]
    );
    assert_eq!(names("openapi_exclude_tags = ['pet']"), ["p:createUsers"]);
    assert_eq!(names("").len(), 8);
    let overrides = r#"
        [provider.openapi_overrides.getPetById]
        hint = 'by id'
        description = 'Mine'
        tags = ['zoo', 'pet']
        scope = 'tool:own'
        response_extract = '$.target'
    "#;
    let proxy = Setup::new()
        .manifest("p", &manifest(overrides))
        .file("specs/p.json", &spec)
        .start();
    let tool = proxy.client().get("/tools/p:getPetById").json();
    assert_eq!(
        (
            &tool["hint"],
            &tool["description"],
            &tool["tags"],
            &tool["scope"]
        ),
        (
            &json!("by id"),
            &json!("Mine"),
            &json!(["pet", "zoo"]),
            &json!("tool:own")
        )
    );
    assert_eq!(
        proxy.call(None, "p:getPetById", json!({"petId": 1})).json()["result"],
        "/pet/1"
    );
}

#[test]
fn request_bodies_of_every_media_type_are_encoded() {
    let api = Upstream::echo();
    let document = json!({"openapi": "3.0.0", "info": {"title": "B", "version": "1"}, "paths": {
        "/upload": {"post": {"operationId": "upload", "requestBody": {"content": {"multipart/form-data": {"schema": {"type": "object", "properties": {
            "file": {"type": "string", "format": "binary"}, "note": {"type": "string"}, "meta": {"type": "object"}, "many": {"type": "array", "items": {"type": "string"}}}}}}}}},
        "/raw": {"put": {"operationId": "raw", "requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}}},
        "/xml": {"post": {"operationId": "xml", "requestBody": {"content": {"application/xml": {"schema": {"type": "string"}}}}}},
        "/deep": {"get": {"operationId": "deep", "parameters": [
            {"name": "filter", "in": "query", "style": "deepObject", "explode": true, "schema": {"type": "object"}},
            {"name": "sid", "in": "cookie", "schema": {"type": "string"}},
            {"name": "X-List", "in": "header", "schema": {"type": "array", "items": {"type": "integer"}}}]}},
        "/m{p}/x": {"get": {"operationId": "matrix", "parameters": [{"name": "p", "in": "path", "required": true, "style": "matrix", "explode": true, "schema": {"type": "array", "items": {"type": "string"}}}]}},
        "/both/{id}": {"delete": {"operationId": "both", "parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}],
            "requestBody": {"content": {"application/json": {"schema": {"type": "object", "properties": {"id": {"type": "integer"}}}}}}}},
    }});
    let proxy = Setup::new()
        .manifest(
            "b",
            &format!(
                r#"
                    [provider]
                    name = 'b'
                    handler = 'openapi'
                    base_url = '{}'
                    openapi_spec = 'b.json'
                "#,
                api.url()
            ),
        )
        .file("specs/b.json", document.to_string())
        .start();
    let call = |tool: &str, args: Value| {
        let response = proxy.call(None, tool, args);
        assert_eq!(response.status, 200, "{}", response.text());
        api.last()
    };
    let upload = call(
        "b:upload",
        json!({"file": {"content_base64": "AAH/", "filename": "a\"b.bin"}, "note": "hi", "meta": {"a": 1}, "many": ["x", "y"]}),
    );
    let kind = upload.header("content-type").unwrap();
    let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
    let parts: Vec<&[u8]> = split(&upload.body, format!("--{boundary}").as_bytes());
    assert_eq!(parts.len(), 7, "{}", String::from_utf8_lossy(&upload.body));
    let expected = b"\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a%22b.bin\"\r\ncontent-type: application/octet-stream\r\n\r\n\x00\x01\xff\r\n";
    assert_eq!(parts[1], expected);
    assert_eq!(
        parts[2],
        b"\r\ncontent-disposition: form-data; name=\"note\"\r\n\r\nhi\r\n"
    );
    assert_eq!(parts[3], b"\r\ncontent-disposition: form-data; name=\"meta\"\r\ncontent-type: application/json\r\n\r\n{\"a\":1}\r\n");
    let raw = call("b:raw", json!({"body": {"content_base64": "AAH/"}}));
    assert_eq!(
        (raw.body.as_slice(), raw.header("content-type")),
        (&[0, 1, 255][..], Some("application/octet-stream"))
    );
    let xml = call("b:xml", json!({"body": "<a/>"}));
    assert_eq!(
        (xml.body.as_slice(), xml.header("content-type")),
        (&b"<a/>"[..], Some("application/xml"))
    );
    let deep = call(
        "b:deep",
        json!({"filter": {"a": {"b": 1}, "c": [1, 2]}, "sid": "s d", "X-List": [1, 2]}),
    );
    assert_eq!(
        deep.target,
        "/deep?filter%5Ba%5D%5Bb%5D=1&filter%5Bc%5D%5B0%5D=1&filter%5Bc%5D%5B1%5D=2"
    );
    assert_eq!(
        (deep.header("cookie"), deep.header("x-list")),
        (Some("sid=s%20d"), Some("1,2"))
    );
    assert_eq!(
        call("b:matrix", json!({"p": ["a", "b/c"]})).target,
        "/m;p=a;p=b%2Fc/x"
    );
    let both = call("b:both", json!({"id": "x", "id_body": 5}));
    assert_eq!(
        (both.target.as_str(), both.body.as_slice()),
        ("/both/x", &br#"{"id":5}"#[..])
    );
}

fn split<'a>(text: &'a [u8], separator: &[u8]) -> Vec<&'a [u8]> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = memchr::memmem::find(rest, separator) {
        parts.push(&rest[..at]);
        rest = &rest[at + separator.len()..];
    }
    parts.push(rest);
    parts
}

#[test]
fn arguments_are_sent_in_the_declared_style_with_defaults() {
    let api = Upstream::echo();
    let document = json!({"openapi": "3.0.0", "info": {"title": "T", "version": "1"}, "paths": {
        "/files/{p}/x": {"get": {"operationId": "label", "parameters": [{"name": "p", "in": "path", "required": true, "style": "label", "explode": true, "schema": {"type": "array", "items": {"type": "string"}}}]}},
        "/defaults": {"post": {"operationId": "defaults", "parameters": [{"name": "n", "in": "query", "schema": {"type": "integer", "default": "10"}}],
            "requestBody": {"content": {"application/json": {"schema": {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}, "b": {"type": "integer", "default": 1}}}}}}}},
        "/free": {"post": {"operationId": "free", "requestBody": {"content": {"multipart/form-data": {"schema": {"type": "object", "additionalProperties": {"type": "string"}}}}}}},
        "/json": {"get": {"operationId": "json", "parameters": [{"name": "X-J", "in": "header", "content": {"application/json": {"schema": {"type": "array"}}}}]}},
        "/raw": {"put": {"operationId": "raw", "requestBody": {"content": {"image/*": {}}}}},
    }});
    let proxy = Setup::new()
        .manifest(
            "t",
            &format!(
                r#"
                    [provider]
                    name = 't'
                    handler = 'openapi'
                    base_url = '{}/v1'
                    openapi_spec = 't.json'
                "#,
                api.url()
            ),
        )
        .file("specs/t.json", document.to_string())
        .start();
    let call = |tool: &str, args: Value| proxy.call(None, tool, args);
    // Pieces that together would make the path segment `..`.
    for pieces in [json!(["", ""]), json!([""])] {
        let refused = call("t:label", json!({"p": pieces}));
        assert_eq!(refused.status, 502, "{}", refused.text());
    }
    assert!(api.received().is_empty());
    assert_eq!(call("t:label", json!({"p": ["a", "b"]})).status, 200);
    assert_eq!(api.last().target, "/v1/files/.a.b/x");
    // A default of the wrong type is converted. A body without arguments isn't sent only for its
    // defaults.
    assert_eq!(call("t:defaults", json!({})).status, 200);
    assert_eq!(
        (api.last().target.as_str(), api.last().body.len()),
        ("/v1/defaults?n=10", 0)
    );
    assert_eq!(call("t:defaults", json!({"a": "x"})).status, 200);
    assert_eq!(api.last().body, br#"{"a":"x","b":1}"#);
    assert_eq!(call("t:defaults", json!({"b": 5})).status, 422);
    call("t:free", json!({"body": {"x": "1"}}));
    assert!(
        api.last()
            .header("content-type")
            .unwrap()
            .contains("boundary=")
    );
    call("t:json", json!({"X-J": ["a", "b"]}));
    assert_eq!(api.last().header("x-j"), Some(r#"["a","b"]"#));
    call(
        "t:raw",
        json!({"body": {"content_base64": "AAE=", "content_type": "image/png"}}),
    );
    assert_eq!(api.last().header("content-type"), Some("image/png"));
}
