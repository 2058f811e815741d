//! TLS certificates of the listeners. They are part of the snapshot, so that SIGHUP reloads them
//! and a bad one leaves the old one in use.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroizing;

use crate::config::{EDGE, Settings, Tls};
use crate::error::Problem;

/// The TLS configuration of one listener.
pub struct Certificate {
    pub config: Arc<ServerConfig>,
    /// Unix seconds.
    pub expires: i64,
}

/// By the listener's name.
pub type Certificates = BTreeMap<String, Certificate>;

pub fn load(
    settings: &Settings,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Problem>,
) -> Certificates {
    let mut loaded = Certificates::new();
    for listener in &settings.listeners {
        let Some(tls) = &listener.tls else { continue };
        let mut found = Vec::new();
        match read(tls, &mut found) {
            Ok(certificate) => {
                loaded.insert(listener.name.clone(), certificate);
            }
            Err(problem) => {
                let table = match listener.name.as_str() {
                    EDGE => "server".to_owned(),
                    name => format!("listener.{name}"),
                };
                problems.push(in_conf(problem, &table, tls, settings.conf.as_deref()));
            }
        }
        warnings.append(&mut found);
    }
    loaded
}

/// The problem with the conf file's key that names the file, in front of the file itself.
fn in_conf(problem: Problem, table: &str, tls: &Tls, conf: Option<&Path>) -> Problem {
    let (Some(file), Some(conf)) = (&problem.file, conf) else {
        return problem;
    };
    let key = match file {
        file if *file == tls.certificate => "certificate",
        file if *file == tls.key => "key",
        _ => "client_ca",
    };
    let message = format!("{}: {}", file.display(), problem.message);
    Problem::new(message)
        .file(conf)
        .key(format!("{table}.tls.{key}"))
}

fn read(tls: &Tls, warnings: &mut Vec<Problem>) -> Result<Certificate, Problem> {
    let chain = certificates(&tls.certificate)?;
    let expires = expiry(&chain[0], &tls.certificate)?;
    if expires < crate::clock::unix_now() as i64 {
        warnings.push(Problem::new("the certificate has expired").file(&tls.certificate));
    }
    let key = key(&tls.key, warnings)?;

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| Problem::new(format!("TLS can't be set up: {e}")))?;
    let builder = match &tls.clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let problem = |message: String| Problem::new(message).file(&clients.ca);
            let mut roots = RootCertStore::empty();
            for certificate in certificates(&clients.ca)? {
                let added = roots.add(certificate);
                added.map_err(|e| problem(format!("a certificate is not a CA's: {e}")))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = if clients.required {
                verifier
            } else {
                verifier.allow_unauthenticated()
            };
            let verifier = verifier.build().map_err(|e| problem(e.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|e| {
        // The error names the kind of mismatch, and nothing of the key.
        Problem::new(format!("the certificate and the key can't be used: {e}"))
            .file(&tls.certificate)
    })?;
    if let Ok(ticketer) = rustls::crypto::ring::Ticketer::new() {
        config.ticketer = ticketer;
    }
    config.alpn_protocols = if tls.http2 {
        vec![b"h2".to_vec(), b"http/1.1".to_vec()]
    } else {
        vec![b"http/1.1".to_vec()]
    };
    Ok(Certificate {
        config: Arc::new(config),
        expires,
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let problem = |message: String| Problem::new(message).file(path);
    let text = crate::files::read(path).map_err(|e| problem(format!("can't be read: {e}")))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|e| problem(format!("not a PEM file: {e}")))?;
    if found.is_empty() {
        return Err(problem("has no certificate".to_owned()));
    }
    Ok(found)
}

fn expiry(certificate: &CertificateDer<'_>, path: &Path) -> Result<i64, Problem> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|e| {
        Problem::new(format!("the first certificate can't be read: {e}")).file(path)
    })?;
    Ok(parsed.validity().not_after.timestamp())
}

fn key(path: &Path, warnings: &mut Vec<Problem>) -> Result<PrivateKeyDer<'static>, Problem> {
    let problem = |message: String| Problem::new(message).file(path);
    let text = crate::files::read(path).map_err(|e| problem(format!("can't be read: {e}")))?;
    let text = Zeroizing::new(text);
    if std::fs::metadata(path).is_ok_and(|file| file.mode() & 0o007 != 0) {
        warnings.push(problem(
            "every user of this machine may read this key".to_owned(),
        ));
    }
    PrivateKeyDer::from_pem_slice(&text)
        .map_err(|_| problem("has no private key as PEM (PKCS#8, PKCS#1 or SEC1)".to_owned()))
}
