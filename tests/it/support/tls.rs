//! A certificate authority, and upstreams that speak TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Authority {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    pub fn pem(&self) -> &str {
        &self.pem
    }

    fn server_config(&self, name: &str, alpn: &[&str]) -> Arc<rustls::ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
            )
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// An upstream under this name, speaking HTTP/2 or HTTP/1.1. It answers with the protocol, the path and the authorization.
    pub fn serve(&self, name: &str, http2: bool) -> SocketAddr {
        let config = self.server_config(name, if http2 { &["h2"] } else { &["http/1.1"] });
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let acceptor = tokio_rustls::TlsAcceptor::from(config);
                while let Ok((stream, _)) = listener.accept().await {
                    let acceptor = acceptor.clone();
                    tokio::spawn(async move {
                        let Ok(stream) = acceptor.accept(stream).await else {
                            return;
                        };
                        if http2 {
                            serve_h2(stream).await;
                        } else {
                            serve_h1(stream).await;
                        }
                    });
                }
            });
        });
        address
    }
}

async fn serve_h2(stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let authorization = request
            .headers()
            .get("authorization")
            .and_then(|v| v.to_str().ok());
        let text = format!(
            "h2 {} {} {}",
            request.uri().path(),
            request
                .uri()
                .authority()
                .map_or("-", |authority| authority.as_str()),
            authorization.unwrap_or("-")
        );
        let mut body = respond
            .send_response(http::Response::new(()), false)
            .unwrap();
        body.send_data(text.into(), true).unwrap();
    }
}

async fn serve_h1(mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin) {
    let mut buffer = Vec::new();
    while stream.read_buf(&mut buffer).await.is_ok_and(|n| n > 0) {
        if buffer.ends_with(b"\r\n\r\n") {
            buffer.clear();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nh1";
            stream.write_all(answer).await.unwrap();
        }
    }
}
