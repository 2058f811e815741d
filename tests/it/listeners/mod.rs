//! Listeners: TLS, HTTP/2, client certificates, PROXY headers, Unix sockets, proxies in front.

mod over_http2;
mod proxy_protocol;
mod sockets;
mod tls_listener;

use std::net::SocketAddr;
use std::sync::Arc;

use crate::support::ati::{Proxy, Setup};
use crate::support::tls::Authority;
use crate::support::{PATIENCE, eventually};

const TLS: &str = r#"
    [server.tls]
    certificate = "cert.pem"
    key = "key.pem"
"#;

/// An edge with a certificate of this authority for `edge.test`.
fn encrypted(authority: &Authority, conf: &str) -> Setup {
    let (certificate, key) = authority.issue("edge.test");
    Setup::new()
        .file("cert.pem", certificate)
        .file("key.pem", key)
        .conf(conf)
}

/// One request over HTTP/2: status and body.
fn http2(
    address: SocketAddr,
    config: &Arc<rustls::ClientConfig>,
    request: http::Request<Vec<u8>>,
) -> (u16, Vec<u8>) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(config.clone());
        let name = rustls::pki_types::ServerName::try_from("edge.test").unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(async move {
            let _ = connection.await;
        });
        let (parts, mut body) = request.into_parts();
        let head = http::Request::from_parts(parts, ());
        let (response, mut sending) = client.send_request(head, body.is_empty()).unwrap();
        while !body.is_empty() {
            sending.reserve_capacity(body.len());
            let room = std::future::poll_fn(|cx| sending.poll_capacity(cx)).await;
            let room = room.unwrap().unwrap().min(body.len());
            let rest = body.split_off(room);
            sending.send_data(body.into(), rest.is_empty()).unwrap();
            body = rest;
        }
        let response = tokio::time::timeout(PATIENCE, response)
            .await
            .unwrap()
            .unwrap();
        let status = response.status().as_u16();
        let mut stream = response.into_body();
        let mut received = Vec::new();
        while let Some(piece) = stream.data().await {
            let piece = piece.unwrap();
            stream.flow_control().release_capacity(piece.len()).unwrap();
            received.extend_from_slice(&piece);
        }
        (status, received)
    })
}

fn logged_peer(proxy: &Proxy, path: &str) -> String {
    let line = eventually("the access line", || {
        let lines = proxy.log.find_all("request");
        lines.into_iter().find(|line| line["path"] == path)
    });
    line["peer"].as_str().unwrap_or("none").to_owned()
}
