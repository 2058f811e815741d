//! Trusted root certificates: the system's, or embedded ones if it has none, and those of
//! `egress.ca_file`.

use std::path::Path;
use std::sync::Arc;

use pem::Pem;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

use super::ClientIdentity;
use crate::error::Problem;

/// All roots as PEM, the form in which Pingora's connector takes them.
pub fn bundle(ca_file: Option<&Path>) -> Result<String, Problem> {
    Ok(pem::encode_many(&all(ca_file)?))
}

/// The TLS settings of a client. It offers HTTP/2 and HTTP/1.1.
pub fn client_config(ca_file: Option<&Path>) -> Result<ClientConfig, Problem> {
    client_config_as(None, ca_file)
}

/// The same, with a certificate for servers that ask for one.
pub fn client_config_as(
    identity: Option<ClientIdentity>,
    ca_file: Option<&Path>,
) -> Result<ClientConfig, Problem> {
    let mut roots = RootCertStore::empty();
    let certificates = all(ca_file)?;
    roots.add_parsable_certificates(
        certificates
            .into_iter()
            .map(|block| CertificateDer::from(block.into_contents())),
    );
    config(roots, identity)
}

/// For a client that won't use TLS.
pub fn client_config_without_roots() -> Result<ClientConfig, Problem> {
    config(RootCertStore::empty(), None)
}

fn config(roots: RootCertStore, identity: Option<ClientIdentity>) -> Result<ClientConfig, Problem> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Problem::new("TLS can't be set up").because(&e))?
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(own) => builder
            .with_client_auth_cert(own.chain, own.key)
            .map_err(|e| Problem::new("the client certificate can't be used").because(&e))?,
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn all(ca_file: Option<&Path>) -> Result<Vec<Pem>, Problem> {
    let system = rustls_native_certs::load_native_certs().certs;
    let mut roots: Vec<Pem> = system
        .iter()
        .map(|certificate| Pem::new("CERTIFICATE", certificate.to_vec()))
        .collect();
    if roots.is_empty() {
        let embedded = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
        roots.extend(embedded.map(|certificate| Pem::new("CERTIFICATE", certificate.to_vec())));
    }
    if let Some(path) = ca_file {
        let problem = |message| Problem::new(message).file(path).key("egress.ca_file");
        let text = crate::files::read(path).map_err(|e| problem("can't be read").because(&e))?;
        let own = pem::parse_many(text).map_err(|e| problem("not a PEM file").because(&e))?;
        let own: Vec<Pem> = own
            .into_iter()
            .filter(|block| block.tag() == "CERTIFICATE")
            .collect();
        if own.is_empty() {
            return Err(problem("has no certificate"));
        }
        roots.extend(own);
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundle_has_roots_and_a_bad_ca_file_is_refused() {
        assert!(bundle(None).unwrap().matches("BEGIN CERTIFICATE").count() > 50);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        for text in [
            "",
            "not pem",
            "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        ] {
            std::fs::write(&path, text).unwrap();
            assert!(bundle(Some(&path)).is_err(), "{text}");
        }
    }
}
