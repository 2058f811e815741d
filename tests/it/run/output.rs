//! Formats of results and of descriptions of tools.

use serde_json::json;

use super::{folder, here, manifest, result};
use crate::support::ati::{Setup, stderr, stdout};
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
