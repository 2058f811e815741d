//! The policy on `/mcp/{provider}`: the same as for calls of the same tools by other ways.

use serde_json::json;

use super::*;

const DESTRUCTIVE: &str = "[[tools]]\nname = 's:echo'\n[tools.effects]\ndestructive = true\n";

#[test]
fn calls_of_a_server_are_denied_and_confirmed_like_those_of_its_tools() {
    let conf = "[policy]\ndenied_commands = ['s:pid']\nrequire_confirmation = ['effects.trust=very_low']\n";
    let proxy = started(with_program("").conf(conf));
    let session = Session::open_as(&proxy, None);
    let denied = session.call("pid", json!({}));
    assert_eq!(denied["error"]["code"], -32001, "{denied}");
    let message = denied["error"]["message"].as_str().unwrap();
    assert!(
        message.ends_with("policy.deniedCommands: s:pid"),
        "{message}"
    );
    let asked = session.call("echo", json!({"text": "x"}));
    assert_eq!(asked["result"]["isError"], true, "{asked}");
    let token = &asked["result"]["_meta"]["ati/confirmation"]["token"];
    let confirmed = |given: &str| {
        let meta = json!({"ati/confirm": token});
        session.ask(
            "tools/call",
            json!({"name": "echo", "arguments": {"text": given}, "_meta": meta}),
        )
    };
    let changed = confirmed("y");
    assert!(
        changed.to_string().contains("the arguments differ"),
        "{changed}"
    );
    let done = confirmed("x");
    assert!(done.to_string().contains("\"text\":\"x\""), "{done}");
    let again = confirmed("x");
    assert!(again.to_string().contains("used already"), "{again}");
}

/// A call of `echo` with these arguments as text.
fn call(session: &Session, arguments: &str, token: Option<&str>) -> Value {
    let meta = token.map_or(String::new(), |token| {
        format!(r#","_meta":{{"ati/confirm":"{token}"}}"#)
    });
    let message = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{arguments}{meta}}}}}"#
    );
    let answer = session.send("POST", message.as_bytes());
    match events(&answer).pop() {
        Some(event) => event,
        None => answer.json(),
    }
}

#[test]
fn relayed_call_runs_only_with_the_text_that_was_confirmed() {
    let proxy = started(with_program(DESTRUCTIVE));
    let session = Session::open(&proxy);
    let asked = call(&session, r#"{"text":"harmless"}"#, None);
    let token = &asked["result"]["_meta"]["ati/confirmation"]["token"];
    let token = token.as_str().unwrap();
    for other in [
        r#"{"text":"evil","text":"harmless"}"#,
        r#"{"text":"harmless","n":12345678901234567890123}"#,
    ] {
        let refused = call(&session, other, Some(token));
        assert_eq!(refused["result"]["isError"], true, "{refused}");
    }
    let done = call(&session, r#"{"text":"harmless"}"#, Some(token));
    assert_eq!(text(&done), "harmless");
}

#[test]
fn tool_that_is_not_listed_is_refused_where_effects_are_weighed() {
    let conf = "[policy]\neffect_restrictions = { destructive = false }\n";
    let proxy = started(with_program("").conf(conf));
    let session = Session::open(&proxy);
    assert_eq!(text(&session.call("echo", json!({"text": "x"}))), "x");
    for name in ["Echo", "echo ", "s__echo"] {
        let refused = session.call(name, json!({"text": "x"}));
        let said = refused["error"]["message"].as_str().unwrap_or_default();
        assert!(said.contains("policy.unlisted"), "{name}: {refused}");
    }
    let refused = session.ask("Tools/Call", json!({"name": "echo", "arguments": {}}));
    assert_eq!(refused["error"]["code"], -32601, "{refused}");
}

#[test]
fn name_that_a_lax_server_takes_for_a_listed_one_is_refused() {
    let proxy = started(with_program(DESTRUCTIVE));
    let session = Session::open(&proxy);
    for name in ["Echo", "ECHO", "echo ", " echo", "e_cho"] {
        let denied = session.call(name, json!({"text": "x"}));
        assert_eq!(denied["error"]["code"], -32001, "{name}: {denied}");
    }
    let padded = session.ask("tools/call ", json!({"name": "echo", "arguments": {}}));
    assert_eq!(padded["error"]["code"], -32601, "{padded}");
}
