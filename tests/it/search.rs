//! Finding tools: the same answers on the command line, behind `GET /tools` and for MCP clients.

use ati::auth::token::{Claims, Signer};
use serde_json::{Value, json};

use crate::support::ati::{Proxy, Setup, command, stderr, stdout};
use crate::support::tokens::{bearer, claims, key_pair};
use crate::support::upstream::Upstream;

const BILLS: &str = "
    [[tools]]
    name = 'createInvoice'
    method = 'POST'
    description = 'Bills a customer'
    tags = ['money']
    [tools.input_schema.properties.due_date]
    type = 'string'
    description = 'The last day for paying'

    [[tools]]
    name = 'list_invoices'
    description = 'All bills'
    examples = ['ati run list_invoices --customer acme']

    [[tools]]
    name = 'secret_invoices'
    description = 'Invoices that few may see: invoice, invoices'

    [[tools]]
    name = 'forecast'
    description = 'The weather at a place'
    hint = 'Ask before picnics'
";

const SCOPES: &str = "tool:createInvoice tool:list_invoices tool:forecast";

fn start() -> (Proxy, Signer) {
    let (signer, public) = key_pair();
    let upstream = Upstream::echo();
    let proxy = Setup::new()
        .jwt(&public)
        .tools("bills", &upstream.url(), "category = 'office'", BILLS)
        .start();
    (proxy, signer)
}

fn token(signer: &Signer, scope: &str) -> String {
    let claims = Claims {
        scope: scope.into(),
        ..claims()
    };
    bearer(signer, &claims)
}

fn names(list: &Value) -> Vec<String> {
    let items = list.as_array().unwrap().iter();
    items
        .map(|item| item["name"].as_str().unwrap().to_owned())
        .collect()
}

/// By `GET /tools`.
fn listed(proxy: &Proxy, token: &str, query: &str) -> Vec<String> {
    let query: String = url::form_urlencoded::byte_serialize(query.as_bytes()).collect();
    let path = format!("/tools?search={query}");
    let headers = [("authorization", token)];
    names(&proxy.client().send("GET", &path, &headers, b"").json())
}

/// By `find_tools`.
fn over_mcp(proxy: &Proxy, token: &str, query: &str) -> Vec<String> {
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "find_tools", "arguments": {"query": query}}});
    let headers = [
        ("authorization", token),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    let body = call.to_string();
    let answer = proxy
        .client()
        .send("POST", "/mcp?tools=search", &headers, body.as_bytes());
    let text = answer.json()["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{}", answer.text()))
        .to_owned();
    names(&serde_json::from_str::<Value>(&text).unwrap()["tools"])
}

/// By `ati tool search`, with the manifests at hand or through the proxy.
fn typed(proxy: &Proxy, token: &str, query: &str, through: bool) -> Vec<String> {
    let mut command = command(&proxy.path(""));
    let token = token.strip_prefix("Bearer ").unwrap();
    command.env("ATI_SESSION_TOKEN", token);
    match through {
        true => command.env("ATI_PROXY_URL", format!("http://{}", proxy.edge)),
        false => command.env("ATI_JWT_PUBLIC_KEY", proxy.path("public.pem")),
    };
    let output = command.args(["tool", "search", query]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    names(&serde_json::from_str(&stdout(&output)).unwrap())
}

#[test]
fn same_tools_are_found_on_every_way() {
    let (proxy, signer) = start();
    let token = token(&signer, SCOPES);
    for (query, first) in [
        // `createInvoice` by a word of its name, in another form.
        ("invoices", "list_invoices"),
        ("create an invoice for a customer", "createInvoice"),
        ("CREATE-INVOICE", "createInvoice"),
        ("What is the weather going to be like?", "forecast"),
        // By a typo, a tag, a parameter, its description, an example, a hint, a category.
        ("wether", "forecast"),
        ("money", "createInvoice"),
        ("due date", "createInvoice"),
        ("paying", "createInvoice"),
        ("acme", "list_invoices"),
        ("picnic", "forecast"),
        ("office weather", "forecast"),
    ] {
        let found = listed(&proxy, &token, query);
        assert_eq!(found.first().map(String::as_str), Some(first), "{query}");
        assert_eq!(over_mcp(&proxy, &token, query), found, "{query}");
        assert_eq!(typed(&proxy, &token, query, true), found, "{query}");
        assert_eq!(typed(&proxy, &token, query, false), found, "{query}");
    }
    assert!(listed(&proxy, &token, "invoices").contains(&"createInvoice".to_owned()));
    assert!(listed(&proxy, &token, "zzzz").is_empty());
}

#[test]
fn search_shows_nothing_out_of_scope_and_depends_on_nothing_there() {
    let (proxy, signer) = start();
    let (few, all) = (token(&signer, SCOPES), token(&signer, "*"));
    for query in [
        "invoices",
        "secret_invoices",
        "few may see",
        "invoice customer",
    ] {
        let found = listed(&proxy, &few, query);
        assert!(!found.contains(&"secret_invoices".to_owned()), "{found:?}");
        assert_eq!(over_mcp(&proxy, &few, query), found);
    }
    assert_eq!(
        listed(&proxy, &all, "secret_invoices")[0],
        "secret_invoices"
    );
    let one = token(&signer, "tool:forecast");
    assert_eq!(listed(&proxy, &one, "invoice or weather"), ["forecast"]);
    assert!(listed(&proxy, &token(&signer, "skill:x"), "invoice").is_empty());
}
