//! The certificate of the client, and whether the server has requested one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;

/// Gives the server the certificate of the client, and records that the server has requested one.
///
/// Without a certificate, a server that requires one ends the connection, with TLS 1.3 only after the handshake and
/// perhaps without an alert. The record explains that end.
#[derive(Debug, Default)]
pub(crate) struct CertificateRequest {
    is_made: AtomicBool,
    certificate: Option<Arc<CertifiedKey>>,
}

impl CertificateRequest {
    pub(super) fn answered_with(certificate: Option<CertifiedKey>) -> Arc<Self> {
        Arc::new(Self { certificate: certificate.map(Arc::new), ..Self::default() })
    }

    /// Returns whether the server has requested a certificate in this handshake.
    pub(super) fn is_made(&self) -> bool {
        self.is_made.load(Ordering::Relaxed)
    }

    /// Returns whether the client has a certificate.
    pub(super) fn has_certificate(&self) -> bool {
        self.certificate.is_some()
    }
}

impl ResolvesClientCert for CertificateRequest {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.is_made.store(true, Ordering::Relaxed);
        self.certificate.clone()
    }

    /// Always `true`, because rustls then calls [`resolve`](Self::resolve) if the server requests a certificate.
    fn has_certs(&self) -> bool {
        true
    }
}
