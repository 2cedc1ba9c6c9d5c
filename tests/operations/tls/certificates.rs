//! Authorities, the certificates that they sign, and servers with these certificates.

use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PublicKeyData,
    date_time_ymd,
};
use redlock_core::TlsOptions;
use redlock_tests::{RedisOptions, RedisServer, skip};
use tempfile::TempDir;

/// A folder with the files of a server and of its client. `ca.pem` is the authority that has signed both certificates.
pub(crate) struct Files(TempDir);

impl Files {
    /// Returns files with certificates of a new authority, for a server with the name `localhost`.
    pub(crate) fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        files.replace(&Authority::new());
        files
    }

    /// Replaces all files by certificates of this authority.
    pub(crate) fn replace(&self, authority: &Authority) {
        std::fs::write(self.path("ca.pem"), authority.pem()).unwrap();
        for name in ["server", "client"] {
            self.sign(authority, name, &names());
        }
    }

    /// Replaces a certificate and its key.
    pub(crate) fn sign(&self, authority: &Authority, name: &str, params: &CertificateParams) {
        let key = KeyPair::generate().unwrap();
        std::fs::write(self.path(&format!("{name}.pem")), authority.sign(params, &key)).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the path of a file as a text.
    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Returns options that trust the authority.
    pub(crate) fn trust(&self) -> TlsOptions {
        TlsOptions::new().ca_file(self.path("ca.pem"))
    }

    /// Returns options that trust the authority, with the certificate of the client.
    pub(crate) fn identify(&self) -> TlsOptions {
        self.trust().client_cert_files(self.path("client.pem"), self.path("client.key"))
    }

    /// Returns the options of a server with these files, which requires no client certificate. Without TLS in the
    /// server under test, skips the test and returns `None`.
    pub(crate) fn options(&self) -> Option<RedisOptions> {
        if let Err(why) = RedisServer::check_tls() {
            skip(&why);
            return None;
        }
        let options = RedisServer::options();
        let options = options.tls(&self.path("server.pem"), &self.path("server.key"));
        Some(options.directive("tls-ca-cert-file", &self.text("ca.pem")))
    }

    /// Starts a server with these files, see [`options`](Self::options).
    pub(crate) async fn server(&self) -> Option<RedisServer> {
        Some(self.options()?.start().await)
    }

    /// Starts a server that requires a client certificate, see [`options`](Self::options).
    pub(crate) async fn strict_server(&self) -> Option<RedisServer> {
        Some(self.options()?.directive("tls-auth-clients", "yes").start().await)
    }
}

/// Signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Each has a name of its own.
        let key = KeyPair::generate().unwrap();
        let number = key.der_bytes()[..4].iter().map(u8::to_string).collect::<String>();
        params.distinguished_name.push(rcgen::DnType::CommonName, format!("CA {number}"));
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// Returns a certificate, followed by that of the authority.
    fn sign(&self, params: &CertificateParams, key: &KeyPair) -> String {
        params.signed_by(key, &self.0).unwrap().pem() + &self.pem()
    }
}

/// Returns the names of a server: `localhost`, but not its address.
fn names() -> CertificateParams {
    CertificateParams::new(["localhost".to_owned()]).unwrap()
}

/// Returns the parameters of a certificate that has expired.
pub(crate) fn expired() -> CertificateParams {
    let mut params = names();
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2020, 2, 1);
    params
}
