//! Documents that are imported, inspected or refused.

use std::path::Path;

use serde_json::{Value, json};

use super::{run, server, spec};
use crate::support::ati::{Setup, command, stderr, stdout, write};
use crate::support::tokens::{bearer, claims, key_pair};
use crate::support::upstream::Received;

fn good(dir: &Path, args: &[&str]) -> String {
    let output = run(dir, args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

fn result(dir: &Path, args: &[&str]) -> Value {
    serde_json::from_str(&good(dir, args)).unwrap()
}

/// What identifies a request: method, target, body, and two of its headers.
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
fn document_in_three_versions_gives_the_same_tools_and_requests() {
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
    assert_eq!(tools.as_array().unwrap().len(), 8 + 2);
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
fn document_on_disk_works_locally_and_through_the_proxy() {
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

    // A reload with a broken document is refused. At the start, a missing document costs only its
    // own tools.
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
    // Those that need no manifest.
    assert_eq!(without.client().get("/health").json()["tools"], 2);
    assert!(without.log.text().contains("its tools are absent"));
}

#[test]
fn unusable_documents_are_refused_and_leave_no_files() {
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
fn inspection_and_dry_run_show_the_import_and_write_nothing() {
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
        "Would save spec to: ~/.ati/specs/petstore_3.json",
        &format!("~/.ati stands for {} here", dir.path().display()),
    ] {
        assert!(dry.lines().any(|known| known == line), "{line}:\n{dry}");
    }
    assert_eq!(
        std::fs::read_dir(dir.path().join("specs")).unwrap().count(),
        0
    );
}
