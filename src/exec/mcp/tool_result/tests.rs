//! The short reading of an answer gives what rmcp's types give.

use rmcp::model::{RequestId, ServerJsonRpcMessage};

use super::*;
use crate::credential::Attachment;
use crate::exec::mcp::message::{NOT_UNDERSTOOD, ServerMessage, classify, plain_answer};
use crate::exec::mcp::result;

/// What a caller gets of an answer: the id that it is for, and the result or the error.
fn told(answered: Option<Answered>, attachment: &Attachment, native: bool) -> String {
    match answered {
        None => format!("error -32603: {NOT_UNDERSTOOD}"),
        Some(Answered::Other) => "another question".to_owned(),
        Some(Answered::InputRequired(wanted)) => format!("input required: {wanted:?}"),
        Some(Answered::Result(tool)) => match result::made(tool, attachment, native) {
            Ok(json) => json.get().to_owned(),
            Err(error) => format!("{error:?}"),
        },
    }
}

/// All of it read with rmcp's types.
fn read_whole(line: &str, attachment: &Attachment, native: bool) -> String {
    let id = |id: RequestId| match id {
        RequestId::Number(id) => id.to_string(),
        RequestId::String(id) => format!("{id:?}"),
    };
    match classify(line.as_bytes()) {
        ServerMessage::Message(message) => match *message {
            ServerJsonRpcMessage::Response(answer) => {
                let told = told(Some(answer.result.into()), attachment, native);
                format!("{} {told}", id(answer.id))
            }
            ServerJsonRpcMessage::Error(answer) => {
                let error = answer.error;
                let told = format!("error {}: {}", error.code.0, error.message);
                format!("{} {told}", answer.id.map(id).unwrap_or_default())
            }
            _ => "other".to_owned(),
        },
        ServerMessage::Request(_) => "request".to_owned(),
        ServerMessage::Progress(_) => "progress".to_owned(),
        ServerMessage::Ignored => "ignored".to_owned(),
        ServerMessage::Garbage => "garbage".to_owned(),
    }
}

fn read_shortly(line: &str, attachment: &Attachment, native: bool) -> String {
    match plain_answer(line.as_bytes()) {
        Some((id, text)) => format!("{id} {}", told(read(text, native), attachment, native)),
        None => read_whole(line, attachment, native),
    }
}

fn check(line: &str) {
    let secret = Attachment::default().with_redacted([&b"planted-secret"[..]].into_iter());
    for attachment in [Attachment::default(), secret] {
        for native in [false, true] {
            let (short, whole) = (
                read_shortly(line, &attachment, native),
                read_whole(line, &attachment, native),
            );
            assert_eq!(short, whole, "native {native}: {line}");
        }
    }
}

const RESULTS: &[&str] = &[
    r#"{"content":[{"type":"text","text":"hello"}]}"#,
    r#"{"content":[{"text":"the type last","type":"text"}],"isError":false}"#,
    r#"{ "content" : [ { "type" : "text" , "text" : " 12 " } ] }"#,
    r#"{"content":[{"type":"text","text":"{\"b\": 1.0, \"a\": [1e400]}"}]}"#,
    r#"{"content":[{"type":"text","text":"it has planted-secret in it"}]}"#,
    r#"{"content":[{"type":"text","text":"{\"k\":\"planted\\u002dsecret\"}"}]}"#,
    r#"{"content":[{"type":"text","text":"\ud83d\ude00 \u0000 \/"}]}"#,
    r#"{"content":[{"type":"text","text":"\ud800"}]}"#,
    r#"{"content":[{"type":"t\u0065xt","te\u0078t":"escaped names"}]}"#,
    r#"{"content":[{"type":"text","text":"x"}],"structuredContent":{"x":[1,{"y":null}]}}"#,
    r#"{"content":[{"type":"text","text":"x"}],"structuredContent":null}"#,
    r#"{"content":[{"type":"text","text":"no"}],"isError":true}"#,
    r#"{"content":[{"type":"text","text":"x"}],"isError":null}"#,
    r#"{"content":[{"type":"text","text":"x"}],"isError":"yes"}"#,
    r#"{"content":[{"type":"text","text":"x"}],"isError":1}"#,
    r#"{"content":[{"type":"text","text":"x"}],"resultType":"complete"}"#,
    r#"{"content":[{"type":"text","text":"x"}],"resultType":"input_required"}"#,
    r#"{"content":[{"type":"text","text":"x"}],"resultType":"task"}"#,
    r#"{"content":[{"type":"text","text":"x"}],"resultType":null}"#,
    r#"{"content":[{"type":"text","text":"x"}],"resultType":7}"#,
    r#"{"content":[{"type":"text","text":"x"}],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}"#,
    r#"{"content":[{"type":"text","text":"x"}],"_meta":null}"#,
    r#"{"content":[{"type":"text","text":"x"}],"_meta":7}"#,
    r#"{"content":[{"type":"text","text":"x"}],"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":5}}"#,
    r#"{"content":[{"type":"text","text":"x"}],"more":1}"#,
    r#"{"content":[{"type":"text","text":"x"}],"tools":[]}"#,
    r#"{"content":[{"type":"text","text":"x"}],"messages":[]}"#,
    r#"{"content":[{"type":"text","text":"x"}],"action":"accept"}"#,
    r#"{"content":[{"type":"text","text":"x"}],"content":[{"type":"text","text":"y"}]}"#,
    r#"{"content":[{"type":"text","text":"x"}],"isError":false,"isError":true}"#,
    r#"{"content":[{"type":"text","text":"x","text":"y"}]}"#,
    r#"{"content":[{"type":"text","type":"image","text":"x"}]}"#,
    r#"{"content":[{"type":"text","text":"x","annotations":{"priority":0.5}}]}"#,
    r#"{"content":[{"type":"text","text":"x","annotations":7}]}"#,
    r#"{"content":[{"type":"text","text":"x","_meta":{"a":1}}]}"#,
    r#"{"content":[{"type":"text","text":"x","unknown":1}]}"#,
    r#"{"content":[{"type":"text","text":7}]}"#,
    r#"{"content":[{"type":"text","text":null}]}"#,
    r#"{"content":[{"type":"text"}]}"#,
    r#"{"content":[{"text":"x"}]}"#,
    r#"{"content":[{"type":"image","data":"AAAA","mimeType":"image/png"}]}"#,
    r#"{"content":[{"type":"audio","data":"AAAA","mimeType":"audio/wav"}]}"#,
    r#"{"content":[{"type":"resource","resource":{"uri":"a:b","text":"t"}}]}"#,
    r#"{"content":[{"type":"resource_link","uri":"a:b","name":"n"}]}"#,
    r#"{"content":[{"type":"video","data":"AAAA"}]}"#,
    r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#,
    r#"{"content":[["text","x"]]}"#,
    r#"{"content":["x"]}"#,
    r#"{"content":[]}"#,
    r#"{"content":{}}"#,
    r#"{"content":null}"#,
    r#"{"content":"x"}"#,
    r#"{"content":[],"structuredContent":[1]}"#,
    r#"{"structuredContent":{"x":1}}"#,
    r#"{"isError":true}"#,
    r#"{"toolResult":"of an old revision"}"#,
    r#"{"resultType":"input_required","requestState":"s"}"#,
    r#"{"resultType":"input_required","inputRequests":{}}"#,
    r#"{"tools":[]}"#,
    "{}",
    "[]",
    r#"[[{"type":"text","text":"x"}]]"#,
    "null",
    "7",
    r#""text""#,
];

#[test]
fn results_are_read_as_rmcp_reads_them() {
    for result in RESULTS {
        check(&format!(
            r#"{{"jsonrpc":"2.0","id":1000000,"result":{result}}}"#
        ));
    }
}

#[test]
fn envelopes_are_read_as_rmcp_reads_them() {
    let result = RESULTS[0];
    for line in [
        r#"{"id":1000000,"result":R,"jsonrpc":"2.0"}"#,
        r#" { "jsonrpc" : "2.0" , "id" : 1000000 , "result" : R } "#,
        r#"{"jsonrpc":"2.0","id":"1000000","result":R}"#,
        r#"{"jsonrpc":"2.0","id":1000000.0,"result":R}"#,
        r#"{"jsonrpc":"2.0","id":1e6,"result":R}"#,
        r#"{"jsonrpc":"2.0","id":1000000.5,"result":R}"#,
        r#"{"jsonrpc":"2.0","id":-5,"result":R}"#,
        r#"{"jsonrpc":"2.0","id":99999999999999999999,"result":R}"#,
        r#"{"jsonrpc":"2.0","id":null,"result":R}"#,
        r#"{"jsonrpc":"2.0","id":true,"result":R}"#,
        r#"{"jsonrpc":"2.0","id":[1],"result":R}"#,
        r#"{"jsonrpc":"2.0","result":R}"#,
        r#"{"jsonrpc":"2.0","id":1000000}"#,
        r#"{"id":1000000,"result":R}"#,
        r#"{"jsonrpc":"1.0","id":1000000,"result":R}"#,
        r#"{"jsonrpc":2.0,"id":1000000,"result":R}"#,
        r#"{"jsonrpc":"2\u002e0","id":1000000,"result":R}"#,
        r#"{"jsonrpc":"2.0","\u0069d":1000000,"result":R}"#,
        r#"{"jsonrpc":"2.0","id":1000000,"result":R,"more":[1]}"#,
        r#"{"jsonrpc":"2.0","id":1000000,"result":R,"error":{"code":1,"message":"m"}}"#,
        r#"{"jsonrpc":"2.0","id":1000000,"result":R,"error":null}"#,
        r#"{"jsonrpc":"2.0","id":1000000,"result":R,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1000000,"result":R,"method":null}"#,
        r#"{"jsonrpc":"2.0","id":1000000,"error":{"code":-32000,"message":"m","data":[1]}}"#,
        r#"{"jsonrpc":"2.0","id":1000000,"error":{"code":"x","message":"m"}}"#,
        r#"{"jsonrpc":"2.0","id":1000000,"error":{"code":1}}"#,
        r#"{"jsonrpc":"2.0","id":1000000,"id":1000001,"result":R}"#,
        r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1000000,"result":R}"#,
        r#"{"jsonrpc":"2.0","id":1000000,"result":R,"result":{"content":[]}}"#,
        r#"{"jsonrpc":"2.0","id":1000000,"result":R}}"#,
        r#"{"jsonrpc":"2.0","id":1000000,"result":R"#,
        r#"{"jsonrpc":"2.0","id":1000000,"result":}"#,
        r#"["2.0",1000000,R]"#,
        r#"[{"jsonrpc":"2.0","id":1000000,"result":R}]"#,
        r#"{"jsonrpc":"2.0","id":1,"result":R}"#,
        "R",
        "",
    ] {
        check(&line.replace('R', result));
    }
}

#[test]
fn deep_and_long_results_are_read_as_rmcp_reads_them() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    for depth in [50, 100, 200, 20_000] {
        let deep = nested(depth);
        let text = deep.replace('"', "\\\"");
        for result in [
            format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#),
            format!(r#"{{"content":[],"structuredContent":{deep}}}"#),
            format!(r#"{{"content":[{{"type":"text","text":"x","_meta":{{"a":{deep}}}}}]}}"#),
            format!(r#"{{"content":{deep}}}"#),
        ] {
            check(&format!(
                r#"{{"jsonrpc":"2.0","id":1000000,"result":{result}}}"#
            ));
        }
    }
    let long = "x".repeat(60_000);
    check(&format!(
        r#"{{"jsonrpc":"2.0","id":1000000,"result":{{"content":[{{"type":"text","text":"{long}"}}]}}}}"#
    ));
}

#[test]
fn structured_content_next_to_a_text_is_not_read() {
    // rmcp can't represent these, and refuses the whole answer. Callers of /call get the text only.
    for unread in ["1e999", r#""\ud800""#] {
        let result =
            format!(r#"{{"content":[{{"type":"text","text":"x"}}],"structuredContent":{unread}}}"#);
        let short = told(read(&result, false), &Attachment::default(), false);
        assert_eq!(short, r#""x""#);
        assert!(read(&result, true).is_none());
    }
}

const MEMBERS: [&str; 11] = [
    "content",
    "type",
    "text",
    "isError",
    "structuredContent",
    "_meta",
    "resultType",
    "annotations",
    "tools",
    "requestState",
    "other",
];
const LEAVES: [&str; 11] = [
    "null",
    "true",
    "false",
    "1000000",
    "-1",
    "0.5",
    r#""2.0""#,
    r#""text""#,
    r#""complete""#,
    r#""planted-secret""#,
    r#""a\u0022b\n""#,
];
const ONE_TEXT: &str = r#"[{"type":"text","text":"t"}]"#;

/// The same numbers in each run (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    /// JSON text, mostly of members that answers have, with mistakes that servers make.
    fn json(&mut self, depth: usize) -> String {
        let count = self.below(4);
        match self.below(if depth == 0 { 3 } else { 10 }) {
            0..3 => LEAVES[self.below(LEAVES.len())].to_owned(),
            3..5 => {
                let items: Vec<String> = (0..count).map(|_| self.json(depth - 1)).collect();
                format!("[{}]", items.join(","))
            }
            5 => ONE_TEXT.to_owned(),
            6 => format!(r#"{{"type":"text","text":{}}}"#, self.json(depth - 1)),
            _ => {
                let members: Vec<String> = (0..count).map(|_| self.member(depth - 1)).collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }

    fn member(&mut self, depth: usize) -> String {
        let name = MEMBERS[self.below(MEMBERS.len())];
        format!("\"{name}\":{}", self.json(depth))
    }
}

#[test]
fn any_answer_is_read_as_rmcp_reads_it() {
    let mut random = Random(0x5eed_1234_abcd_0001);
    let (mut plain, mut texts) = (0, 0);
    for _ in 0..4000 {
        let content = match random.below(3) {
            0 => random.json(3),
            _ => ONE_TEXT.to_owned(),
        };
        let mut members = vec![format!("\"content\":{content}")];
        for _ in 0..random.below(3) {
            members.push(random.member(2));
        }
        let at = random.below(members.len());
        members.swap(0, at);
        let result = match random.below(8) {
            0 => random.json(4),
            _ => format!("{{{}}}", members.join(",")),
        };
        let mut line = format!(r#"{{"jsonrpc":"2.0","id":1000000,"result":{result}}}"#);
        if random.below(10) == 0 {
            let cut = random.below(line.len());
            line.truncate(cut);
        }
        check(&line);
        plain += usize::from(plain_answer(line.as_bytes()).is_some());
        texts += usize::from(one_text(&result).is_some());
    }
    // Else this would show nothing.
    assert!(plain > 2000 && texts > 500, "{plain} {texts}");
}
