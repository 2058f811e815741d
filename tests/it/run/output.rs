//! Formats of results and of descriptions of tools.

use serde_json::json;

use super::{folder, here, manifest, result};
use crate::support::ati::{Setup, stderr, stdout, write};
use crate::support::upstream::Upstream;

#[test]
fn run_output_has_the_requested_format() {
    let api = Upstream::answering(|_, stream| {
        let body = json!([{"b": 1, "a": "x"}, {"a": null, "c": [true]}]).to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        std::io::Write::write_all(stream, (head + &body).as_bytes()).is_ok()
    });
    let dir = folder(&api.url());
    let look = |format: &str| {
        stdout(&here(
            dir.path(),
            &[("ATI_OUTPUT", format)],
            &["run", "shop:buy"],
        ))
    };
    assert_eq!(
        look("json"),
        "[\n  {\n    \"b\": 1,\n    \"a\": \"x\"\n  },\n  {\n    \"a\": null,\n    \"c\": [\n      true\n    ]\n  }\n]\n"
    );
    assert_eq!(
        look("text"),
        "{\"b\":1,\"a\":\"x\"}\n{\"a\":null,\"c\":[true]}\n"
    );
    let table = look("table");
    for part in ["┌", "╞", "╪", "┆", "│ a ", " b ", " c      │", "[true]"] {
        assert!(table.contains(part), "{part}:\n{table}");
    }
    let bad = here(dir.path(), &[("ATI_OUTPUT", "yaml")], &["tool", "list"]);
    assert_eq!(bad.status.code(), Some(2));
}

#[test]
fn tool_info_and_search_describe_the_tool() {
    let dir = folder("https://shop.example/v1/");
    let list = result(&here(
        dir.path(),
        &[],
        &["tool", "list", "--provider", "shop"],
    ));
    assert_eq!(
        list[0],
        json!({"description": "Find things", "method": "GET", "name": "shop:find", "provider": "shop", "scope": "tool:shop:find", "tool": "shop:find"})
    );
    let none = here(dir.path(), &[], &["tool", "list", "--provider", "absent"]);
    assert_eq!(
        (none.status.code(), stdout(&none).as_str()),
        (Some(0), "[]\n")
    );
    assert!(!stderr(&none).is_empty());
    let info = result(&here(dir.path(), &[], &["tool", "info", "shop:find"]));
    assert_eq!(
        (&info["base_url"], &info["endpoint"], &info["scope"]),
        (
            &json!("https://shop.example/v1/"),
            &json!("/find"),
            &json!("tool:shop:find")
        )
    );
    let text = stdout(&here(
        dir.path(),
        &[],
        &["--output", "text", "tool", "info", "shop:find"],
    ));
    for line in [
        "Tool:        shop:find",
        "Provider:    shop (A shop)",
        "Handler:     http",
        "Endpoint:    GET https://shop.example/v1/find",
        "Description: Find things",
        "Scope:       tool:shop:find",
        "Category:    retail",
        "Tags:        search",
        "Hint:        be brief",
        "Input Schema:",
        "Examples:",
        "  ati run shop:find --q <q>",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}:\n{text}");
    }
    let found = result(&here(
        dir.path(),
        &[],
        &["tool", "search", "find", "things"],
    ));
    assert_eq!(
        found[0],
        json!({"category": "retail", "description": "Find things", "handler": "http", "name": "shop:find", "provider": "shop", "tags": ["search"], "tool": "shop:find"})
    );
    let help = here(dir.path(), &[], &["run", "--help"]);
    assert!(stdout(&help).contains("--name value"), "{}", stdout(&help));
    let table = stdout(&here(
        dir.path(),
        &[],
        &["--output", "table", "tool", "list"],
    ));
    assert!(
        table.contains("DESCRIPTION") && table.contains("shop:buy"),
        "{table}"
    );
}

#[test]
fn deeply_nested_answer_is_printed_unchanged() {
    let deep = "[".repeat(300) + &"]".repeat(300);
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{deep}",
        deep.len()
    );
    let api = Upstream::fixed(answer);
    let proxy = Setup::new()
        .credentials(&json!({"api": "planted-key-1234"}))
        .manifest("shop", &manifest(&api.url()))
        .start();
    let url = format!("http://{}", proxy.edge);
    let local = folder(&api.url());
    for env in [&[][..], &[("ATI_PROXY_URL", url.as_str())]] {
        let output = here(local.path(), env, &["run", "shop:buy"]);
        assert_eq!(stdout(&output).trim(), deep);
    }
}

#[test]
fn response_format_shapes_text_output_and_nothing_else() {
    let api = Upstream::answering(|received, stream| {
        let body = match received.target.as_str() {
            "/csv" => "a,b\n1,2\n",
            "/object" => "{\"a\":  1.10}",
            _ => "[{\"b\": \"x|y\", \"a\": 1}, {\"a\":  2}]",
        };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        std::io::Write::write_all(stream, (head + body).as_bytes()).is_ok()
    });
    let formats = ["text", "json", "markdown_table", "raw"];
    let tools: String = formats
        .iter()
        .flat_map(|format| ["list", "csv", "object"].map(|kind| (*format, kind)))
        .map(|(format, kind)| {
            format!(
                "[[tools]]\nname = 'f:{format}-{kind}'\nendpoint = '/{kind}'\n\
                 [tools.response]\nformat = '{format}'\n"
            )
        })
        .collect();
    let spec = r#"{"openapi": "3.0.0", "info": {"title": "o", "version": "1"},
        "paths": {"/list": {"get": {"operationId": "get"}}}}"#;
    let http = format!(
        "[provider]\nname = 'f'\nbase_url = '{}'\n{tools}",
        api.url()
    );
    let openapi = format!(
        "[provider]\nname = 'o'\nhandler = 'openapi'\nopenapi_spec = 'o.json'\nbase_url = '{}'\n\
         [provider.openapi_overrides.get]\nresponse_format = 'markdown_table'",
        api.url()
    );
    let setup = Setup::new().manifest("f", &http).manifest("o", &openapi);
    let setup = setup.file("specs/o.json", spec);
    let local = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("manifests/f.toml", http.as_str()),
        ("manifests/o.toml", &openapi),
        ("specs/o.json", spec),
    ] {
        write(&local.path().join(name), text);
    }
    let proxy = setup.start();
    let url = format!("http://{}", proxy.edge);
    let table = "| a | b |\n| --- | --- |\n| 1 | x\\|y |\n| 2 |  |\n";
    for env in [&[][..], &[("ATI_PROXY_URL", url.as_str())]] {
        let look = |tool: &str, format: &str| {
            stdout(&here(local.path(), env, &["run", tool, "--output", format]))
        };
        let pretty = "[\n  {\n    \"b\": \"x|y\",\n    \"a\": 1\n  },\n  {\n    \"a\": 2\n  }\n]\n";
        assert_eq!(
            look("f:text-list", "text"),
            "{\"b\":\"x|y\",\"a\":1}\n{\"a\":2}\n"
        );
        assert_eq!(look("f:json-list", "text"), pretty);
        assert_eq!(look("f:markdown_table-list", "text"), table);
        assert_eq!(look("o:get", "text"), table);
        let raw = "[{\"b\": \"x|y\", \"a\": 1}, {\"a\":  2}]";
        assert_eq!(look("f:raw-list", "text"), raw);
        assert_eq!(look("f:raw-csv", "text"), "a,b\n1,2\n");
        assert_eq!(look("f:raw-object", "text"), "{\"a\":  1.10}");
        // What is no list of objects is plain text.
        assert_eq!(look("f:markdown_table-csv", "text"), "a,b\n1,2\n\n");
        for format in formats {
            assert_eq!(look(&format!("f:{format}-list"), "json"), pretty);
        }
    }
    let answer = proxy.call(None, "f:raw-csv", json!({}));
    assert_eq!(answer.text(), r#"{"result":"a,b\n1,2\n"}"#);
    assert_eq!(answer.header("x-ati-result-format"), Some("raw"));
    let plain = proxy.call(None, "f:text-list", json!({}));
    assert_eq!(plain.header("x-ati-result-format"), None);
}
