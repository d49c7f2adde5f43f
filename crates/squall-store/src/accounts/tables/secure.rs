//! TLS to PostgreSQL. The server's certificate is always checked, as is the name in it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Certificates of the authorities that this machine trusts.
const SYSTEM: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Makes encrypted connections to a server of one name.
#[derive(Clone)]
pub(super) struct Secure {
    config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
}

impl Secure {
    /// Trusts the authorities in a file; empty: those of this machine.
    pub(super) fn trusting(file: &str) -> Result<Self, String> {
        let file = if file.is_empty() { SYSTEM } else { file };
        let wrong = |e: &dyn std::fmt::Display| format!("sslrootcert: {file}: {e}");
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(file).map_err(|e| wrong(&e))? {
            // Of the many of a machine, one may be of a kind that is not supported.
            drop(roots.add(certificate.map_err(|e| wrong(&e))?));
        }
        if roots.is_empty() {
            return Err(wrong(&"it has no certificate"));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| wrong(&e))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { config: Arc::new(config), name: None })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Secure {
    type Stream = Encrypted<S>;
    type TlsConnect = Self;
    type Error = io::Error;

    fn make_tls_connect(&mut self, name: &str) -> io::Result<Self> {
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        Ok(Self { name: Some(name), ..self.clone() })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Secure {
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = self.name.ok_or_else(|| io::Error::other("the server has no name"))?;
            TlsConnector::from(self.config).connect(name, stream).await.map(Encrypted)
        })
    }
}

/// An encrypted connection.
pub(super) struct Encrypted<S>(client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, to)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, from)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}
