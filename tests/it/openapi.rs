//! A user points at a document and has tools.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};

use crate::support::ati::{Setup, command, stderr, stdout, write};
use crate::support::tokens::{bearer, claims, key_pair};
use crate::support::upstream::{Received, Upstream};

fn spec(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/specs")
        .join(name)
}

/// Serves a document at `/openapi.json` and echoes everything else.
fn server(document: Vec<u8>) -> Upstream {
    Upstream::answering(move |received, stream| {
        let body = match received.target.as_str() {
            "/openapi.json" => document.clone(),
            _ => json!({"method": received.method, "target": received.target})
                .to_string()
                .into_bytes(),
        };
        let head = match received.target.as_str() {
            "/moved.json" => "HTTP/1.1 302 Found\r\nlocation: /openapi.json".to_owned(),
            _ => "HTTP/1.1 200 OK".to_owned(),
        };
        let head = format!("{head}\r\ncontent-length: {}\r\n\r\n", body.len());
        std::io::Write::write_all(stream, &[head.as_bytes(), &body].concat()).is_ok()
    })
}

fn run(dir: &Path, args: &[&str]) -> Output {
    command(dir).args(args).output().unwrap()
}

fn good(dir: &Path, args: &[&str]) -> String {
    let output = run(dir, args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

fn result(dir: &Path, args: &[&str]) -> Value {
    serde_json::from_str(&good(dir, args)).unwrap()
}

/// What came over the wire, as far as it matters.
fn essence(received: &Received) -> (String, String, Vec<u8>, Option<String>, Option<String>) {
    let header = |name: &str| received.header(name).map(str::to_owned);
    (
        received.method.clone(),
        received.target.clone(),
        received.body.clone(),
        header("content-type"),
        header("x-reason"),
    )
}

const CALLS: [(&str, &[&str]); 8] = [
    (
        "addPet",
        &[
            "--name",
            "Rex",
            "--photoUrls",
            "[\"a\"]",
            "--tags",
            "[{\"id\": 1}]",
        ],
    ),
    (
        "updatePet",
        &["--id", "5", "--name", "Rex", "--photo-urls", "[]"],
    ),
    ("findPetsByStatus", &["--status", "[\"sold\", \"a b\"]"]),
    ("getPetById", &["--petId", "5"]),
    (
        "updatePetWithForm",
        &["--petId", "5", "--name", "Rex & Co", "--status", "sold"],
    ),
    ("deletePet", &["--petId", "5", "--X-Reason", "gone"]),
    ("patchPet", &["--petId", "5", "--name", "Max"]),
    ("createUsers", &["--body", "[{\"name\": \"a\"}]"]),
];

#[test]
fn the_same_document_in_three_versions_is_the_same_tools_and_requests() {
    let mut seen: Vec<(Value, Vec<_>)> = Vec::new();
    for file in [
        "petstore-2.0.json",
        "petstore-3.0.yaml",
        "petstore-3.1.json",
    ] {
        let api = server(std::fs::read(spec(file)).unwrap());
        let dir = tempfile::tempdir().unwrap();
        good(dir.path(), &["init"]);
        let imported = run(
            dir.path(),
            &[
                "provider",
                "import-openapi",
                &format!("{}/openapi.json", api.url()),
                "--name",
                "petstore",
            ],
        );
        assert!(imported.status.success(), "{}", stderr(&imported));
        assert_eq!(stdout(&imported), "");
        assert!(
            stderr(&imported).contains("8 operations registered"),
            "{}",
            stderr(&imported)
        );
        assert!(
            stderr(&imported).contains("ati key set petstore_api_key"),
            "{}",
            stderr(&imported)
        );
        good(
            dir.path(),
            &["key", "set", "petstore_api_key", "planted-store-key"],
        );
        let tools = result(dir.path(), &["tool", "list"]);
        for (operation, args) in CALLS {
            let tool = format!("petstore:{operation}");
            let mut line = vec!["run", tool.as_str()];
            line.extend(args);
            let answer = result(dir.path(), &line);
            assert_eq!(
                answer["target"].as_str().map(|t| t.starts_with("/v2/")),
                Some(true),
                "{answer}"
            );
            assert_eq!(api.last().header("x-store-key"), Some("planted-store-key"));
        }
        let requests = api.received().iter().skip(1).map(essence).collect();
        seen.push((tools, requests));
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[1], seen[2]);
    let (tools, requests) = &seen[0];
    assert_eq!(tools.as_array().unwrap().len(), 8);
    let wire: Vec<(&str, &str, String)> = requests
        .iter()
        .map(|(method, target, body, ..)| {
            (
                method.as_str(),
                target.as_str(),
                String::from_utf8(body.clone()).unwrap(),
            )
        })
        .collect();
    assert_eq!(
        wire[2],
        (
            "GET",
            "/v2/pet/findByStatus?status=sold&status=a%20b&limit=10",
            String::new()
        )
    );
    assert_eq!(
        wire[4],
        ("POST", "/v2/pet/5", "name=Rex+%26+Co&status=sold".into())
    );
    assert_eq!(wire[6], ("PATCH", "/v2/pet/5", r#"{"name":"Max"}"#.into()));
    assert_eq!(wire[7].2, r#"[{"name":"a"}]"#);
}

#[test]
fn a_document_on_disk_works_here_and_through_the_proxy() {
    let api = server(Vec::new());
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(spec("petstore-3.0.yaml")).unwrap();
    let file = dir.path().join("petstore.yaml");
    write(
        &file,
        text.replace("url: /v2", &format!("url: {}/v2", api.url())),
    );
    good(dir.path(), &["init"]);
    good(
        dir.path(),
        &["provider", "import-openapi", file.to_str().unwrap()],
    );
    good(
        dir.path(),
        &["key", "set", "petstore_api_key", "planted-store-key"],
    );
    let manifest = std::fs::read_to_string(dir.path().join("manifests/petstore.toml")).unwrap();
    assert_eq!(
        manifest,
        format!(
            "# The document also offers:\n#   login: oauth2 (implicit)\n[provider]\nname = \"petstore\"\ndescription = \"Petstore\"\nhandler = \"openapi\"\n\
             base_url = \"{}/v2\"\nopenapi_spec = \"petstore.json\"\nauth_type = \"header\"\nauth_key_name = \"petstore_api_key\"\nauth_header_name = \"X-Store-Key\"\n",
            api.url()
        )
    );
    assert_eq!(
        result(dir.path(), &["run", "petstore:getPetById", "--petId", "5"])["target"],
        "/v2/pet/5"
    );

    let (signer, public) = key_pair();
    let mut setup = Setup::new()
        .jwt(&public)
        .credentials(&json!({"petstore_api_key": "planted-store-key"}));
    setup = setup.manifest("petstore", &manifest);
    let spec = std::fs::read(dir.path().join("specs/petstore.json")).unwrap();
    let proxy = setup.file("specs/petstore.json", spec).start();
    let token = bearer(
        &signer,
        &ati::auth::token::Claims {
            scope: "tool:petstore:getPetById".into(),
            ..claims()
        },
    );
    let sandbox = tempfile::tempdir().unwrap();
    let output = command(sandbox.path())
        .env("ATI_PROXY_URL", format!("http://{}", proxy.edge))
        .env("ATI_SESSION_TOKEN", token.trim_start_matches("Bearer "))
        .args(["run", "petstore:getPetById", "--petId", "7"])
        .output()
        .unwrap();
    assert!(stdout(&output).contains("/v2/pet/7"), "{}", stderr(&output));
    assert_eq!(
        proxy
            .call(Some(&token), "petstore_getPetById", json!({"petId": "8"}))
            .status,
        200
    );
    assert_eq!(
        proxy
            .call(Some(&token), "petstore:deletePet", json!({"petId": 8}))
            .status,
        403
    );
    assert_eq!(
        proxy
            .call(Some(&token), "petstore:getPetById", json!({"petId": "x"}))
            .status,
        422
    );

    // A reload that would lose the tools keeps them; a document that is gone at the start costs its tools only.
    write(&proxy.path("specs/petstore.json"), "{");
    let line = proxy.reload();
    assert!(
        line["problems"]
            .as_str()
            .unwrap()
            .contains("the document of 'petstore' can't be read"),
        "{line}"
    );
    assert_eq!(
        proxy
            .call(Some(&token), "petstore:getPetById", json!({"petId": 9}))
            .status,
        200
    );
    let without = Setup::new().manifest("petstore", &manifest).start();
    assert_eq!(without.client().get("/health").json()["tools"], 0);
    assert!(without.log.text().contains("its tools are absent"));
}

#[test]
fn selections_and_overrides() {
    let api = server(Vec::new());
    let spec = std::fs::read(spec("petstore-3.1.json")).unwrap();
    let manifest = |more: &str| {
        format!(
            "[provider]\nname = 'p'\nhandler = 'openapi'\nbase_url = '{}'\nopenapi_spec = 'p.json'\n{more}",
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
    let overrides = "[provider.openapi_overrides.getPetById]\nhint = 'by id'\ndescription = 'Mine'\ntags = ['zoo', 'pet']\nscope = 'tool:own'\nresponse_extract = '$.target'";
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
fn bodies_of_every_kind() {
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
        .manifest("b", &format!("[provider]\nname = 'b'\nhandler = 'openapi'\nbase_url = '{}'\nopenapi_spec = 'b.json'", api.url()))
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
fn documents_that_can_not_be_used_say_why_and_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let api = server(std::fs::read(spec("petstore-3.1.json")).unwrap());
    let bad = |args: &[&str]| {
        let output = run(dir.path(), args);
        assert!(!output.status.success(), "{args:?}");
        stderr(&output)
    };
    for (text, expected) in [
        ("", "no OpenAPI document"),
        ("{\"openapi\": \"3.0.0\"}", "it has no paths"),
        (&("[".repeat(1 << 20)), "not JSON"),
        ("a: &a [*a]", "YAML"),
    ] {
        let file = dir.path().join("spec.yaml");
        write(&file, text);
        let said = bad(&["provider", "import-openapi", file.to_str().unwrap()]);
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert!(bad(&["provider", "import-openapi", "/nonexistent.json"]).contains("No such file"));
    let moved = bad(&[
        "provider",
        "import-openapi",
        &format!("{}/moved.json", api.url()),
    ]);
    assert!(
        moved.contains(
            "URL redirected to '/openapi.json' — fetch the target URL directly to avoid SSRF"
        ),
        "{moved}"
    );
    let name = bad(&[
        "provider",
        "import-openapi",
        &format!("{}/openapi.json", api.url()),
        "--name",
        "../x",
    ]);
    assert!(name.contains("is no name for a provider"), "{name}");
    let guarded = command(dir.path())
        .env("ATI_SSRF_PROTECTION", "1")
        .args([
            "provider",
            "import-openapi",
            &format!("{}/openapi.json", api.url()),
        ])
        .output()
        .unwrap();
    assert!(
        stderr(&guarded).contains("SSRF protection"),
        "{}",
        stderr(&guarded)
    );
    let left: Vec<_> = ["manifests", "specs"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(dir.path().join(folder)).unwrap())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_look_before_an_import() {
    let dir = tempfile::tempdir().unwrap();
    let file = spec("petstore-3.0.yaml");
    let file = file.to_str().unwrap();
    let text = good(dir.path(), &["provider", "inspect-openapi", file]);
    for line in [
        "OpenAPI: Petstore v1.0.0",
        "  Pets, and who wants them.",
        "Base URL: /v2",
        "Auth: header (auth_header_name=X-Store-Key)",
        "Operations (8):",
        "  TAG: pet (7 operations)",
        "  TAG: user (1 operations)",
        "    getPetById               GET     /pet/{petId}                   Get one pet",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}:\n{text}");
    }
    let dry = good(
        dir.path(),
        &[
            "provider",
            "import-openapi",
            file,
            "--dry-run",
            "--include-tags",
            "user",
        ],
    );
    for line in [
        "--- Generated manifest (petstore_3.toml) ---",
        "--- Spec: Petstore (1 operations) ---",
        "openapi_include_tags = [\"user\"]",
    ] {
        assert!(dry.lines().any(|known| known == line), "{line}:\n{dry}");
    }
    assert_eq!(
        std::fs::read_dir(dir.path().join("specs")).unwrap().count(),
        0
    );
}

#[test]
fn what_a_tool_is_told_it_sends() {
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
        .manifest("t", &format!("[provider]\nname = 't'\nhandler = 'openapi'\nbase_url = '{}/v1'\nopenapi_spec = 't.json'", api.url()))
        .file("specs/t.json", document.to_string())
        .start();
    let call = |tool: &str, args: Value| proxy.call(None, tool, args);
    // Two harmless pieces that together would lead out.
    for pieces in [json!(["", ""]), json!([""])] {
        let refused = call("t:label", json!({"p": pieces}));
        assert_eq!(refused.status, 502, "{}", refused.text());
    }
    assert!(api.received().is_empty());
    assert_eq!(call("t:label", json!({"p": ["a", "b"]})).status, 200);
    assert_eq!(api.last().target, "/v1/files/.a.b/x");
    // A default of the wrong type is meant to be one of the right type; a body that nobody asked for isn't sent for its defaults.
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
