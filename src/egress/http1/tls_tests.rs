//! TLS below the client.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Method;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;
use url::Url;

use super::super::guard::Guard;
use super::super::resolve::Resolver;
use super::super::{Settings, Target};
use super::*;

/// A server with a certificate for 127.0.0.1, and clients that trust it. The counter counts
/// connections.
async fn tls_server(alpn: &'static [u8]) -> (Target, Clients, Arc<AtomicUsize>) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let root = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let own = own.signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![own.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .unwrap();
    config.alpn_protocols = vec![alpn.to_vec()];
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let counter = Arc::new(AtomicUsize::new(0));
    let accepted = counter.clone();
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        while let Ok((stream, _)) = listener.accept().await {
            accepted.fetch_add(1, Ordering::Relaxed);
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut read = Vec::new();
                while stream
                    .read_buf(&mut read)
                    .await
                    .is_ok_and(|bytes| bytes > 0)
                {
                    if read.ends_with(b"\r\n\r\n") {
                        read.clear();
                        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                        stream.write_all(answer).await.unwrap();
                    }
                }
            });
        }
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), root).unwrap();
    let settings = Settings {
        ca_file: Some(file.path().to_owned()),
        ..Settings::default()
    };
    let resolver = Arc::new(Resolver::new(&["127.0.0.1:1".parse().unwrap()]));
    let clients = Clients::new(&settings, Guard::Off, resolver);
    // Read now, while the file is there.
    clients.tls().unwrap();
    let target = Target::of(&Url::parse(&url).unwrap()).unwrap();
    (target, clients, counter)
}

async fn get(clients: &Clients, target: &Target) -> Result<Vec<u8>, SendError> {
    let request = Request {
        method: &Method::GET,
        origin: &target.origin,
        path_and_query: &target.path_and_query,
        headers: &[],
        body: None,
        may_repeat: true,
    };
    let mut answer = send(clients, None, &request).await?;
    let mut body = Vec::new();
    while answer.read_into(&mut body).await? {}
    Ok(body)
}

#[tokio::test]
async fn connection_with_tls_is_used_again() {
    let (target, clients, connections) = tls_server(b"http/1.1").await;
    for _ in 0..3 {
        assert_eq!(get(&clients, &target).await.unwrap(), b"ok");
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn server_that_chooses_http2_is_left_to_the_other_client() {
    let (target, clients, _) = tls_server(b"h2").await;
    let result = get(&clients, &target).await;
    assert!(matches!(result, Err(SendError::Http2)), "{result:?}");
    assert_eq!(pool::idle_connections(), 0);
    clients.note_version(&target.origin, http::Version::HTTP_11);
    assert!(clients.speaks_http1(&target.origin));
    clients.note_version(&target.origin, http::Version::HTTP_2);
    assert!(!clients.speaks_http1(&target.origin));
}

#[tokio::test]
async fn certificate_of_an_unknown_authority_ends_the_handshake() {
    let (target, _, _) = tls_server(b"http/1.1").await;
    let (_, stranger, _) = tls_server(b"http/1.1").await;
    let result = get(&stranger, &target).await;
    let refused = matches!(result, Err(SendError::Fault(UpstreamFault::Tls)));
    assert!(refused, "{result:?}");
}
