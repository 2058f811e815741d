//! The certificate that a client shows to a server that asks for one.

use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

use crate::error::Problem;

/// A certificate with its chain, and its private key. No `Debug`: the key is a secret.
pub struct ClientIdentity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl ClientIdentity {
    /// From two PEM files, which may be the same.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, Problem> {
        let text = read(certificate)?;
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&text)
            .collect::<Result<_, _>>()
            .map_err(|_| Problem::new("not a PEM file").file(certificate))?;
        if chain.is_empty() {
            return Err(Problem::new("has no certificate").file(certificate));
        }
        // The error's own text isn't used: it may quote the file.
        let key = PrivateKeyDer::from_pem_slice(&read(key)?)
            .map_err(|_| Problem::new("has no private key in PEM form").file(key))?;
        Ok(ClientIdentity { chain, key })
    }
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, Problem> {
    crate::files::read(path)
        .map(Zeroizing::new)
        .map_err(|e| Problem::new("can't be read").file(path).because(&e))
}
