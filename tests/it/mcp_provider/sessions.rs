//! Sessions of the handshake era in front of a program.

use serde_json::json;

use super::*;
use crate::support::ati::write;
use crate::support::eventually;

#[test]
fn client_gets_the_tools_of_the_server_under_its_own_names() {
    let proxy = started(with_program(""));
    let session = Session::open(&proxy);
    let listed = session.ask("tools/list", json!({}));
    assert!(names(&listed).contains(&"echo"), "{listed}");
    let echo = session.call("echo", json!({"text": "hi"}));
    assert_eq!((text(&echo), &echo["id"]), ("hi", &json!(7)));
    let failed = session.call("fail", json!({}));
    assert_eq!(failed["result"]["isError"], true);
    let refused = session.call("error", json!({}));
    assert_eq!(refused["error"]["code"], -32050);
    let audit = proxy.wait_for_audit(3);
    let shown: Vec<_> = audit
        .iter()
        .map(|line| {
            (
                line["tool"].as_str().unwrap(),
                line["status"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [("s:echo", "ok"), ("s:fail", "error"), ("s:error", "error")]
    );
    let series = "ati_tool_calls_total{outcome=\"tool_error\",provider=\"s\",tool=\"s:fail\"}";
    proxy.settles(series, 1.0);
}

#[test]
fn sessions_have_a_server_process_each_which_ends_with_them() {
    let proxy = started(with_program(""));
    let (one, two) = (Session::open(&proxy), Session::open(&proxy));
    let pid = |session: &Session| text(&session.call("pid", json!({}))).to_owned();
    let (first, second) = (pid(&one), pid(&two));
    assert!(first != second && first == pid(&one));
    let deleted = one.send("DELETE", b"");
    assert_eq!((deleted.status, deleted.text().as_str()), (200, ""));
    eventually("the end of the server", || {
        let stat = std::fs::read_to_string(format!("/proc/{first}/stat"));
        stat.is_err().then_some(())
    });
    let gone = one.post(&request("tools/list", json!({})));
    assert_eq!(gone.status, 404);
    assert_eq!(
        gone.json()["error"]["message"],
        "Session not found: initialize again"
    );
    assert_eq!(pid(&two), second);
}

#[test]
fn request_without_a_session_is_400_and_of_another_provider_404() {
    let proxy = started(with_program(""));
    let mut session = Session::open(&proxy);
    let mut client = proxy.client();
    let other = client.send("POST", "/mcp/other", &session.headers(), b"{}");
    assert_eq!(other.status, 404);
    assert_eq!(other.json()["error"], "MCP provider 'other' not found");
    session.id.clear();
    let none = session.post(&request("tools/list", json!({})));
    assert_eq!(
        (none.status, &none.json()["error"]["code"]),
        (400, &json!(-32600))
    );
    session.id = "0123456789".to_owned();
    for method in ["POST", "GET", "DELETE"] {
        let body = request("tools/list", json!({})).to_string();
        let body = if method == "POST" {
            body.as_bytes()
        } else {
            b""
        };
        assert_eq!(session.send(method, body).status, 404, "{method}");
    }
}

#[test]
fn question_of_the_server_reaches_the_client_and_its_answer_the_server() {
    let proxy = started(with_program(""));
    let session = Session::open(&proxy);
    let call = request("tools/call", json!({"name": "ask", "arguments": {}}));
    let mut stream = session.begin("POST", Some(&call));
    let asked = read_until(&mut stream, "sampling/createMessage");
    let data = asked.lines().find_map(|line| line.strip_prefix("data: "));
    let question: Value = serde_json::from_str(data.unwrap()).unwrap();
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"role": "assistant", "model": "m", "content": {"type": "text", "text": "yes"}}});
    assert_eq!(session.post(&answer).status, 202);
    read_until(&mut stream, "you said yes");
}

#[test]
fn progress_and_changes_are_told_as_they_come() {
    let proxy = started(with_program(""));
    let session = Session::open(&proxy);
    let mut standing = session.begin("GET", None);
    read_until(&mut standing, "text/event-stream");
    let params = json!({"name": "steps", "arguments": {}, "_meta": {"progressToken": "mine"}});
    let answer = session.post(&request("tools/call", params));
    let told = events(&answer);
    assert_eq!(told.len(), 4, "{told:?}");
    assert_eq!(told[0]["params"]["progressToken"], "mine");
    assert_eq!(text(&told[3]), "done");
    assert_eq!(text(&session.call("change", json!({}))), "changed");
    read_until(&mut standing, "notifications/tools/list_changed");
    assert!(names(&session.ask("tools/list", json!({}))).contains(&"new"));
}

#[test]
fn secret_is_redacted_in_resources_errors_and_progress() {
    let setup = with_program("[provider.mcp_env]\nGIVEN = \"${given}\"");
    let setup = setup.credentials(&json!({"given": "planted-given/secret"}));
    let proxy = started(setup);
    let session = Session::open(&proxy);
    let read = session.ask("resources/read", json!({"uri": "test://given"}));
    assert_eq!(
        read["result"]["contents"][0]["text"], "[REDACTED]",
        "{read}"
    );
    let prompt = session.ask("prompts/get", json!({"name": "x"}));
    assert_eq!(prompt["error"]["message"], "no prompt for [REDACTED]");
    let params = json!({"name": "steps", "_meta": {"progressToken": 1}});
    let told = session.post(&request("tools/call", params)).text();
    assert!(
        told.contains("[REDACTED]") && !told.contains("planted"),
        "{told}"
    );
    let audit = proxy.wait_for_audit(3);
    assert_eq!(audit[0]["tool"], "s:resources/read");
    assert_eq!(audit[0]["args"]["uri"], "test://given");
    assert_eq!(
        (&audit[1]["tool"], &audit[1]["status"]),
        (&json!("s:prompts/get"), &json!("error"))
    );
}

#[test]
fn session_ends_with_its_server_and_the_client_is_told() {
    let proxy = started(with_program(""));
    let session = Session::open(&proxy);
    let crashed = session.call("crash", json!({}));
    assert_eq!(crashed["result"]["isError"], true);
    let said = text(&crashed);
    assert!(
        said.contains("the server ended") && said.contains("crashing now"),
        "{said}"
    );
    let gone = session.post(&request("tools/list", json!({})));
    assert_eq!(gone.status, 404);
}

#[test]
fn reload_that_removes_or_changes_the_provider_ends_its_sessions() {
    let proxy = started(with_program(""));
    let session = Session::open(&proxy);
    let mut standing = session.begin("GET", None);
    read_until(&mut standing, "text/event-stream");
    let path = proxy.path("manifests/s.toml");
    let manifest = std::fs::read_to_string(&path).unwrap();
    write(&path, format!("{manifest}\nmcp_args = [\"banner\"]\n"));
    proxy.reload();
    let gone = session.post(&request("tools/list", json!({})));
    assert_eq!(gone.status, 404, "{}", gone.text());
    read_until(&mut standing, "0\r\n\r\n");
    let session = Session::open(&proxy);
    std::fs::remove_file(&path).unwrap();
    proxy.reload();
    let gone = session.post(&request("tools/list", json!({})));
    assert_eq!(gone.status, 404);
    assert_eq!(gone.json()["error"], "MCP provider 's' not found");
}

#[test]
fn hand_over_ends_streams_and_the_successor_wants_a_new_session() {
    let mut proxy = started(with_program(""));
    let session = Session::open(&proxy);
    let mut standing = session.begin("GET", None);
    read_until(&mut standing, "text/event-stream");
    let mut former = proxy.upgrade();
    read_until(&mut standing, "0\r\n\r\n");
    former.wait();
    let gone = session.post(&request("tools/list", json!({})));
    assert_eq!(gone.status, 404);
    assert_eq!(
        text(&Session::open(&proxy).call("echo", json!({"text": "x"}))),
        "x"
    );
}

#[test]
fn route_with_the_same_prefix_wins() {
    let upstream = crate::support::upstream::Upstream::echo();
    let setup = with_program("").route("r", &upstream.url(), "path_prefix = \"/mcp/s\"");
    let proxy = started(setup);
    let answer = proxy.client().send("POST", "/mcp/s", &[JSON], b"{}");
    assert_eq!(answer.status, 200);
    assert!(upstream.saw(|request| request.method == "POST"));
}
