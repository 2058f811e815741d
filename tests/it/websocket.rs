//! WebSockets through the proxy, with a real client and a real server.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use tungstenite::handshake::server::{Request, Response};
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tungstenite::{ClientRequestBuilder, Message, WebSocket};

use crate::support::PATIENCE;
use crate::support::ati::{Proxy, Setup};
use crate::support::upstream::Upstream;

/// The target of a handshake, and its headers.
type Handshake = (String, Vec<(String, String)>);

/// An echo server that notes each handshake. The message "bye" makes it close with 4001.
struct Echo {
    address: SocketAddr,
    handshakes: Arc<Mutex<Vec<Handshake>>>,
}

impl Echo {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let handshakes: Arc<Mutex<Vec<_>>> = Arc::default();
        let noted = handshakes.clone();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let noted = noted.clone();
                std::thread::spawn(move || serve(stream, &noted));
            }
        });
        Echo {
            address,
            handshakes,
        }
    }

    fn last_handshake(&self) -> Handshake {
        self.handshakes.lock().unwrap().last().unwrap().clone()
    }
}

#[allow(clippy::result_large_err)]
fn serve(stream: TcpStream, noted: &Mutex<Vec<Handshake>>) {
    let note = |request: &Request, mut response: Response| {
        let headers = request.headers().iter();
        let headers =
            headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
        noted
            .lock()
            .unwrap()
            .push((request.uri().to_string(), headers.collect()));
        if let Some(offered) = request.headers().get("sec-websocket-protocol") {
            let chosen = offered
                .to_str()
                .unwrap()
                .split(',')
                .next_back()
                .unwrap()
                .trim()
                .to_owned();
            response
                .headers_mut()
                .insert("sec-websocket-protocol", chosen.parse().unwrap());
        }
        Ok(response)
    };
    let config = WebSocketConfig::default()
        .max_message_size(None)
        .max_frame_size(None);
    let Ok(mut socket) = tungstenite::accept_hdr_with_config(stream, note, Some(config)) else {
        return;
    };
    while let Ok(message) = socket.read() {
        match message {
            Message::Text(text) if text.as_str() == "bye" => {
                let frame = CloseFrame {
                    code: CloseCode::from(4001),
                    reason: "enough".into(),
                };
                let _ = socket.close(Some(frame));
            }
            Message::Text(_) | Message::Binary(_) => {
                // If the caller is gone, the next read fails.
                let _ = socket.send(message);
            }
            _ => {}
        }
    }
}

fn connect_with(
    proxy: &Proxy,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<WebSocket<TcpStream>, Box<tungstenite::Error>> {
    let mut request =
        ClientRequestBuilder::new(format!("ws://{}{path}", proxy.edge).parse().unwrap());
    for (name, value) in headers {
        request = request.with_header(*name, *value);
    }
    let stream = TcpStream::connect(proxy.edge).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let config = WebSocketConfig::default()
        .max_message_size(None)
        .max_frame_size(None);
    match tungstenite::client::client_with_config(request, stream, Some(config)) {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::HandshakeError::Failure(e)) => Err(Box::new(e)),
        Err(tungstenite::HandshakeError::Interrupted(_)) => panic!("timed out"),
    }
}

fn connect(proxy: &Proxy, path: &str) -> WebSocket<TcpStream> {
    connect_with(proxy, path, &[]).unwrap()
}

fn setup(echo: &Echo, more: &str) -> Setup {
    let more = format!(
        r#"
            path_prefix = '/ws'
            forward_websockets = true
            {more}
        "#
    );
    Setup::new()
        .credentials(&json!({"api_key": "planted-socket-key"}))
        .route("ws", &format!("http://{}", echo.address), &more)
}

#[test]
fn websocket_messages_of_every_size_go_both_ways() {
    let echo = Echo::start();
    let proxy = setup(&echo, "").start();
    let mut socket = connect(&proxy, "/ws/room?x=1");
    for size in [0, 1, 125, 126, 65_535, 65_536, 1 << 20, 5 << 20] {
        socket.send(Message::Binary(vec![7; size].into())).unwrap();
        assert_eq!(socket.read().unwrap().len(), size);
    }
    socket.send(Message::Text("hello é".into())).unwrap();
    assert_eq!(socket.read().unwrap(), Message::Text("hello é".into()));
    socket.send(Message::Ping("p".into())).unwrap();
    assert_eq!(socket.read().unwrap(), Message::Pong("p".into()));
    assert_eq!(echo.last_handshake().0, "/room?x=1");
    proxy.settles(r#"ati_in_flight{route="ws"}"#, 1.0);

    socket.send(Message::Text("bye".into())).unwrap();
    match socket.read().unwrap() {
        Message::Close(Some(frame)) => {
            assert_eq!(
                (u16::from(frame.code), frame.reason.as_str()),
                (4001, "enough")
            );
        }
        other => panic!("{other:?}"),
    }
    drop(socket);
    let line = proxy.log.wait_for("request");
    assert_eq!(
        (&line["status"], &line["path"]),
        (&json!(101), &json!("/ws/room"))
    );
    assert!(line["bytes_in"].as_u64().unwrap() > 6 << 20);
    assert!(line["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
}

#[test]
fn websocket_close_of_the_caller_is_answered() {
    let echo = Echo::start();
    let proxy = setup(&echo, "").start();
    let mut socket = connect(&proxy, "/ws");
    let frame = CloseFrame {
        code: CloseCode::from(4002),
        reason: "mine".into(),
    };
    socket.close(Some(frame)).unwrap();
    match socket.read().unwrap() {
        Message::Close(Some(frame)) => assert_eq!(u16::from(frame.code), 4002),
        other => panic!("{other:?}"),
    }
}

#[test]
fn websocket_handshake_carries_the_credential_and_the_callers_subprotocol() {
    let echo = Echo::start();
    let auth = r#"
        auth_type = 'bearer'
        auth_key_name = 'api_key'
        extra_headers = { X-Extra = 'ours' }
    "#;
    let proxy = setup(&echo, auth).start();
    let headers = [
        ("authorization", "Bearer mine"),
        ("sec-websocket-protocol", "one, two"),
        ("x-sandbox-job-id", "7"),
        ("sec-websocket-extensions", "permessage-deflate"),
        ("x-extra", "mine"),
        ("cookie", "a=b"),
    ];
    let request = headers.iter().fold(
        ClientRequestBuilder::new(format!("ws://{}/ws/x", proxy.edge).parse().unwrap()),
        |request, (name, value)| request.with_header(*name, *value),
    );
    let stream = TcpStream::connect(proxy.edge).unwrap();
    // tungstenite refuses a subprotocol that it didn't offer itself, so only a success is looked
    // at.
    let result = tungstenite::client::client_with_config(request, stream, None);
    if let Ok((_, response)) = &result {
        assert_eq!(response.headers()["sec-websocket-protocol"], "two");
    }
    let (_, got) = echo.last_handshake();
    let header = |name: &str| {
        let all: Vec<&str> = got
            .iter()
            .filter(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
            .collect();
        assert!(all.len() < 2, "{name}: {all:?}");
        all.first().copied()
    };
    assert_eq!(header("authorization"), Some("Bearer planted-socket-key"));
    assert_eq!(header("x-extra"), Some("ours"));
    assert_eq!(header("sec-websocket-protocol"), Some("one, two"));
    assert_eq!(header("cookie"), Some("a=b"));
    assert_eq!(
        (
            header("x-sandbox-job-id"),
            header("sec-websocket-extensions")
        ),
        (None, None)
    );

    let proxy = setup(
        &echo,
        r#"
            auth_type = 'query'
            auth_key_name = 'api_key'
            auth_query_name = 'token'
        "#,
    )
    .start();
    connect(&proxy, "/ws/x?a=b");
    assert_eq!(echo.last_handshake().0, "/x?a=b&token=planted-socket-key");
}

#[test]
fn websocket_handshake_drops_hop_by_hop_headers() {
    let echo = Echo::start();
    let proxy = setup(&echo, "auth_type = 'bearer'\nauth_key_name = 'api_key'").start();
    let mut client = proxy.client();
    client.write(
        b"GET /ws/x HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: Upgrade, X-Named, Authorization\r\nx-named: 1\r\n\
          proxy-connection: x\r\nexpect: 100-continue\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    let response = client.read(false);
    assert_eq!(response.status, 101);
    assert_eq!(
        response.header("sec-websocket-accept"),
        Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    );
    let (_, got) = echo.last_handshake();
    let has = |name: &str| got.iter().any(|(known, _)| known == name);
    assert!(!has("x-named") && !has("proxy-connection") && !has("expect"));
    // A caller can't remove the credential by naming it in Connection.
    assert!(has("authorization"));

    let mut client = proxy.client();
    client.write(
        b"GET /ws/x HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: Upgrade\r\ncontent-length: 300\r\n\
          sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    assert_eq!(client.read(false).status, 400);
}

#[test]
fn websocket_handshake_after_early_hints_succeeds() {
    let upstream = Upstream::fixed(
        "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\r\n\x01\x02hi",
    );
    let proxy = Setup::new()
        .route(
            "ws",
            &upstream.url(),
            "path_prefix = '/ws'\nforward_websockets = true",
        )
        .start();
    let mut client = proxy.client();
    client.write(
        b"GET /ws/x HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: x\r\n\r\n",
    );
    assert_eq!(client.read(false).status, 101);
    // Bytes that came with the answer's header are passed on.
    assert_eq!(client.read_some(), b"\x01\x02hi");
}

#[test]
fn websocket_to_a_silent_upstream_gets_504() {
    let silent = Upstream::raw(|mut stream| {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let proxy = Setup::new()
        .route(
            "ws",
            &silent.url(),
            r#"
                path_prefix = '/ws'
                forward_websockets = true
                connect_timeout_seconds = 1
            "#,
        )
        .start();
    let started = Instant::now();
    match connect_with(&proxy, "/ws", &[]).map_err(|e| *e) {
        Err(tungstenite::Error::Http(response)) => assert_eq!(response.status(), 504),
        other => panic!("{other:?}"),
    }
    assert!(started.elapsed() < Duration::from_secs(10));
    silent.wait_until_left();
}

#[test]
fn websocket_declined_by_the_upstream_gets_its_answer() {
    let declining = Upstream::fixed(
        "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: x\r\ncontent-length: 2\r\n\r\nno",
    );
    let proxy = Setup::new()
        .route(
            "ws",
            &declining.url(),
            "path_prefix = '/ws'\nforward_websockets = true",
        )
        .start();
    match connect_with(&proxy, "/ws", &[]).map_err(|e| *e) {
        Err(tungstenite::Error::Http(response)) => {
            assert_eq!(response.status(), 401);
            assert_eq!(response.headers()["www-authenticate"], "x");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn websocket_handshake_on_a_plain_route_is_sent_without_the_upgrade() {
    let upstream = Upstream::echo();
    let proxy = Setup::new()
        .route("ws", &upstream.url(), "path_prefix = '/ws'")
        .start();
    match connect_with(&proxy, "/ws/x", &[]).map_err(|e| *e) {
        Err(tungstenite::Error::Http(response)) => assert_eq!(response.status(), 200),
        other => panic!("{other:?}"),
    }
    let got = upstream.last();
    assert_eq!(
        (got.header("upgrade"), got.header("connection")),
        (None, None)
    );
}

#[test]
fn websocket_caller_leaving_ends_the_tunnel() {
    let echo = Echo::start();
    let proxy = setup(&echo, "").start();
    let mut sockets: Vec<_> = (0..20).map(|_| connect(&proxy, "/ws")).collect();
    for socket in &mut sockets {
        socket.send(Message::Text("x".into())).unwrap();
        socket.read().unwrap();
    }
    proxy.settles(r#"ati_in_flight{route="ws"}"#, 20.0);
    drop(sockets);
    proxy.settles(r#"ati_in_flight{route="ws"}"#, 0.0);
}

#[test]
fn websocket_is_closed_at_the_drain_deadline() {
    let echo = Echo::start();
    let mut proxy = setup(&echo, "")
        .conf("[server]\ndrain_seconds = 1\n")
        .start();
    let mut socket = connect(&proxy, "/ws");
    socket.send(Message::Text("x".into())).unwrap();
    socket.read().unwrap();
    proxy.signal("TERM");
    proxy.log.wait_for("draining");
    // It works until the deadline.
    socket.send(Message::Text("still here".into())).unwrap();
    assert_eq!(socket.read().unwrap(), Message::Text("still here".into()));
    match socket.read().unwrap() {
        Message::Close(Some(frame)) => assert_eq!(frame.code, CloseCode::Away),
        other => panic!("{other:?}"),
    }
    assert_eq!(proxy.wait().code(), Some(0));
}
