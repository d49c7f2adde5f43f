//! TLS of the server.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The server's certificate with its key.
#[derive(Clone)]
pub(crate) struct Certificate(Arc<ServerConfig>);

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificate")
    }
}

impl Certificate {
    /// Reads a certificate, those that lead to its authority, and its key (PEM).
    pub(crate) fn read(certificate: &str, key: &str) -> Result<Self, String> {
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|e| format!("[rest] certificate: {certificate}: {e}"))?;
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| format!("[rest] certificate_key: {key}: {e}"))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|versions| versions.with_no_client_auth().with_single_cert(chain, secret))
            .map_err(|e| format!("[rest] certificate: {certificate} with {key}: {e}"))?;
        Ok(Self(Arc::new(config)))
    }

    /// Returns what makes a TLS connection of a TCP connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0))
    }
}
