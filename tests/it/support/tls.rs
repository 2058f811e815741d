//! A certificate authority, and upstreams that speak TLS.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::PATIENCE;
use super::http::Client;

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

    /// A certificate for this name and its key, as PEM.
    pub fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// A caller that trusts this authority, perhaps with a certificate and key of its own.
    pub fn caller(
        &self,
        own: Option<&(String, String)>,
        alpn: &[&str],
    ) -> Arc<rustls::ClientConfig> {
        let mut roots = rustls::RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap();
        roots.add(root).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                    PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
                )
                .unwrap(),
        };
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
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

    /// An upstream under this name. `answer` gets a request's head and body, and returns status and
    /// JSON.
    pub fn answering(
        &self,
        name: &str,
        answer: impl Fn(&str, &[u8]) -> (u16, String) + Send + Sync + 'static,
    ) -> SocketAddr {
        self.answering_at("127.0.0.1:0", name, answer)
    }

    /// The same, on this address.
    pub fn answering_at(
        &self,
        address: &str,
        name: &str,
        answer: impl Fn(&str, &[u8]) -> (u16, String) + Send + Sync + 'static,
    ) -> SocketAddr {
        let config = self.server_config(name, &["http/1.1"]);
        let answer = Arc::new(answer);
        listen(address, config, move |stream| {
            let answer = answer.clone();
            async move { serve_answers(stream, answer.as_ref()).await }
        })
    }

    /// An upstream under this name, over HTTP/2 or HTTP/1.1. It answers with the protocol, the path
    /// and the authorization.
    pub fn serve(&self, name: &str, http2: bool) -> SocketAddr {
        let config = self.server_config(name, if http2 { &["h2"] } else { &["http/1.1"] });
        listen("127.0.0.1:0", config, move |stream| async move {
            if http2 {
                serve_h2(stream).await;
            } else {
                serve_h1(stream).await;
            }
        })
    }
}

pub type TlsStream = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

/// TLS over this connection, to the name `edge.test`. The handshake happens with the first write.
pub fn over(stream: TcpStream, config: &Arc<rustls::ClientConfig>) -> TlsStream {
    let name = ServerName::try_from("edge.test").unwrap();
    let connection = rustls::ClientConnection::new(config.clone(), name).unwrap();
    rustls::StreamOwned::new(connection, stream)
}

pub fn connect(address: SocketAddr, config: &Arc<rustls::ClientConfig>) -> Client<TlsStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    Client::over(over(stream, config), "edge.test")
}

type Tls = tokio_rustls::server::TlsStream<tokio::net::TcpStream>;

fn listen<F: Future<Output = ()> + Send + 'static>(
    address: &str,
    config: Arc<rustls::ServerConfig>,
    serve: impl Fn(Tls) -> F + Send + Sync + 'static,
) -> SocketAddr {
    let listener = std::net::TcpListener::bind(address).unwrap();
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
            let serve = Arc::new(serve);
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, serve) = (acceptor.clone(), serve.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream).await;
                    }
                });
            }
        });
    });
    address
}

async fn serve_answers(mut stream: Tls, answer: &(impl Fn(&str, &[u8]) -> (u16, String) + Sync)) {
    let mut buffer = Vec::new();
    while stream.read_buf(&mut buffer).await.is_ok_and(|n| n > 0) {
        let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&buffer[..end]).to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().unwrap());
        if buffer.len() < end + 4 + length {
            continue;
        }
        let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
        let (status, body) = answer(&head, &buffer[end + 4..]);
        buffer.clear();
        let text = format!(
            "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(text.as_bytes()).await.unwrap();
    }
}

async fn serve_h2(stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, respond))) = connection.accept().await {
        // In a task of its own: the connection reads the body only while it is being polled.
        tokio::spawn(answer_h2(request, respond));
    }
}

/// Answers once the whole body is here, so that a body that is cut off gets no answer.
async fn answer_h2(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<bytes::Bytes>,
) {
    let (head, mut body) = request.into_parts();
    while let Some(chunk) = body.data().await {
        let Ok(chunk) = chunk else { return };
        let _ = body.flow_control().release_capacity(chunk.len());
    }
    let authorization = head.headers.get("authorization");
    let authority = head.uri.authority();
    let text = format!(
        "h2 {} {} {}",
        head.uri.path(),
        authority.map_or("-", |authority| authority.as_str()),
        authorization.and_then(|v| v.to_str().ok()).unwrap_or("-")
    );
    let mut response = http::Response::new(());
    if let Some(authorization) = authorization {
        let headers = response.headers_mut();
        headers.insert("x-echo", authorization.clone());
    }
    let mut answer = respond.send_response(response, false).unwrap();
    // `/pieces` comes byte by byte and ends with an empty frame, `/trailers` with trailers.
    let path = head.uri.path();
    if !path.contains("pieces") && !path.contains("trailers") {
        answer.send_data(text.into(), true).unwrap();
        return;
    }
    for byte in text.bytes() {
        answer.send_data(vec![byte].into(), false).unwrap();
        tokio::task::yield_now().await;
    }
    match authorization.filter(|_| path.contains("trailers")) {
        Some(authorization) => {
            let mut trailers = http::HeaderMap::new();
            trailers.insert("x-trailer", authorization.clone());
            answer.send_trailers(trailers).unwrap();
        }
        None => answer.send_data(bytes::Bytes::new(), true).unwrap(),
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
