//! The options of TLS.

use std::fmt;
#[cfg(feature = "tls")]
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::InvalidOption;

/// The options of TLS for the connections to servers, see
/// [`LockManagerBuilder::tls`](crate::LockManagerBuilder::tls).
///
/// | option | default |
/// |---|---|
/// | [`ca_file`](Self::ca_file), [`ca_pem`](Self::ca_pem) | the root certificates of the system |
/// | [`client_cert_files`](Self::client_cert_files), [`client_cert_pem`](Self::client_cert_pem) | no client certificate |
/// | [`danger_accept_invalid_certs`](Self::danger_accept_invalid_certs) | `false`: the certificate and the host name are verified |
///
/// Files are read anew for each connection, so that a new certificate takes effect without a restart. All files and
/// texts are in the format PEM. [`connect`](crate::LockManagerBuilder::connect) fails if one of them cannot be read or
/// used. Later, such a mistake is a failed vote of the node: [`NodeError::Tls`](crate::NodeError::Tls).
///
/// `Debug` shows the paths of files, but neither certificates nor keys.
///
/// # Examples
///
/// ```no_run
/// use redlock_core::{LockManager, TlsOptions};
///
/// # async fn run() -> Result<(), redlock_core::ConnectError> {
/// let tls = TlsOptions::new()
///     .ca_file("/etc/redis/ca.pem")
///     .client_cert_files("/etc/redis/client.pem", "/etc/redis/client.key");
/// let locks = LockManager::builder().url("rediss://cache.local").tls(tls).connect().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "options do nothing until a builder has them"]
pub struct TlsOptions {
    /// The certificates of the trusted authorities.
    pub(crate) ca: Option<Pem>,
    /// The certificate chain of the client.
    pub(crate) cert: Option<Pem>,
    /// The key of the client.
    pub(crate) key: Option<Pem>,
    /// Whether any certificate of a server is accepted. Unset, it means `false`.
    pub(crate) insecure: Option<bool>,
}

/// A file, or the text of one, in the format PEM.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Pem {
    File(PathBuf),
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "only TlsOptions creates it"))]
    Text(Arc<[u8]>),
}

#[cfg(feature = "tls")]
impl TlsOptions {
    /// Creates options with the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts only servers whose certificate one of the authorities in this file has signed. Defaults to the root
    /// certificates of the system. Replaces an earlier [`ca_pem`](Self::ca_pem).
    pub fn ca_file(mut self, path: impl AsRef<Path>) -> Self {
        self.ca = Some(Pem::File(path.as_ref().into()));
        self
    }

    /// As [`ca_file`](Self::ca_file), with the content of the file.
    pub fn ca_pem(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.ca = Some(Pem::Text(pem.as_ref().into()));
        self
    }

    /// Sets the certificate chain and the key by which the client identifies itself. A server that requires
    /// a certificate (`tls-auth-clients yes`, the default of Redis) refuses other clients. The key must not be
    /// encrypted. Defaults to none.
    pub fn client_cert_files(mut self, cert: impl AsRef<Path>, key: impl AsRef<Path>) -> Self {
        self.cert = Some(Pem::File(cert.as_ref().into()));
        self.key = Some(Pem::File(key.as_ref().into()));
        self
    }

    /// As [`client_cert_files`](Self::client_cert_files), with the contents of the files.
    pub fn client_cert_pem(mut self, cert: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        self.cert = Some(Pem::Text(cert.as_ref().into()));
        self.key = Some(Pem::Text(key.as_ref().into()));
        self
    }

    /// Accepts every certificate of a server, for any host name, even if it has expired. Defaults to `false`.
    ///
    /// **Anybody on the network can then pose as the server**, read the password, and grant locks that are held. The
    /// manager logs a warning. Trust the authority of the servers instead: [`ca_file`](Self::ca_file).
    pub fn danger_accept_invalid_certs(mut self, accept: bool) -> Self {
        self.insecure = Some(accept);
        self
    }
}

#[cfg(feature = "tls")]
impl TlsOptions {
    /// Returns these options, completed by others. The certificate and the key of the client belong together.
    pub(crate) fn or(self, others: &Self) -> Self {
        let Self { ca, cert, key, insecure } = others.clone();
        let has_own = self.cert.is_some() || self.key.is_some();
        let (cert, key) = if has_own { (self.cert, self.key) } else { (cert, key) };
        Self { ca: self.ca.or(ca), cert, key, insecure: self.insecure.or(insecure) }
    }

    /// Returns whether any certificate of a server is accepted.
    pub(crate) fn is_insecure(&self) -> bool {
        self.insecure == Some(true)
    }

    /// Returns the files with the certificates and the key.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let file = |pem: &Pem| match pem {
            Pem::File(path) => Some(path.clone()),
            Pem::Text(_) => None,
        };
        [&self.ca, &self.cert, &self.key].into_iter().flatten().filter_map(file).collect()
    }
}

impl TlsOptions {
    /// Checks that the client has both a certificate and a key, or neither.
    pub(crate) fn check(&self) -> Result<(), InvalidOption> {
        if cfg!(not(feature = "tls")) {
            let allowed = "unset without the feature `tls` of redlock-core (or redlock-axum)";
            return Err(InvalidOption::new("tls", "set", allowed));
        }
        let (name, other) = match (&self.cert, &self.key) {
            (Some(_), None) => ("tls_key", "tls_cert"),
            (None, Some(_)) => ("tls_cert", "tls_key"),
            _ => return Ok(()),
        };
        Err(InvalidOption::new(name, "unset", format!("set together with {other}")))
    }
}

/// Shows where the text is from, but not the text, which may be a key (secrets stay in).
impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.fmt(f),
            Self::Text(_) => f.write_str("(PEM)"),
        }
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_a_node_win_over_those_of_all_nodes() {
        let all = TlsOptions::new().ca_file("all").client_cert_files("cert", "key");
        assert_eq!(TlsOptions::new().or(&all), all);
        let own = TlsOptions::new().ca_file("own").or(&all);
        assert_eq!(own, all.clone().ca_file("own"));
        let own = TlsOptions::new().client_cert_pem("c", "k").or(&all);
        assert_eq!(own, all.clone().client_cert_pem("c", "k"));
        let all = all.danger_accept_invalid_certs(true);
        assert!(TlsOptions::new().or(&all).is_insecure());
        assert!(!TlsOptions::new().danger_accept_invalid_certs(false).or(&all).is_insecure());
    }

    #[test]
    fn debug_shows_paths_but_no_keys() {
        let options = TlsOptions::new().ca_file("/ca.pem").client_cert_pem("s3cret", "s3cret");
        let shown = format!("{options:?}");
        assert!(shown.contains("/ca.pem") && !shown.contains("s3cret"), "{shown}");
        assert!(!shown.contains("115, 51"), "the bytes of the key are shown: {shown}");
    }
}
