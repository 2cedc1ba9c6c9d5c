//! The configuration of rustls, with certificates that are read anew for each connection.

use std::borrow::Cow;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::{Pem, TlsOptions};

/// Checks that the files can be read and used.
pub(crate) fn check_tls(options: &TlsOptions) -> Result<(), String> {
    // A system without root certificates is no mistake in the options: the URL of a node may name its own.
    let insecure = Some(options.ca.is_none());
    read_config(&TlsOptions { insecure, ..options.clone() }).map(drop)
}

/// Reads the certificates and the key, and returns the configuration of one connection. The error names the file.
///
/// If the application has installed a crypto provider, rustls uses that one.
pub(crate) fn read_config(options: &TlsOptions) -> Result<ClientConfig, String> {
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
    let algorithms = provider.signature_verification_algorithms;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("the crypto provider cannot be used: {error}"))?;
    let config = if options.is_insecure() {
        config.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(algorithms)))
    } else {
        config.with_root_certificates(roots(options.ca.as_ref())?)
    };
    let (Some(cert), Some(key)) = (&options.cert, &options.key) else {
        return Ok(config.with_no_client_auth());
    };
    let (cert_name, chain) = certificates(cert, "client certificate")?;
    let (key_name, key) = read(key, "client key")?;
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|_| format!("{key_name} contains no key, or the key is encrypted"))?;
    config.with_client_auth_cert(chain, key).map_err(|error| match error {
        Error::InconsistentKeys(_) => format!("{key_name} does not belong to {cert_name}"),
        error => format!("{key_name} cannot be used: {error}"),
    })
}

fn roots(ca: Option<&Pem>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let (name, certificates) = match ca {
        Some(ca) => certificates(ca, "CA certificate")?,
        None => ("the root certificates of the system".to_owned(), system_roots()?),
    };
    for certificate in certificates {
        roots.add(certificate).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(roots)
}

fn system_roots() -> Result<Vec<CertificateDer<'static>>, String> {
    let mut loaded = rustls_native_certs::load_native_certs();
    match loaded.errors.pop() {
        Some(error) => Err(format!("cannot read the root certificates of the system: {error}")),
        None => Ok(loaded.certs),
    }
}

/// Returns the name of the certificates for errors, and the certificates.
fn certificates(pem: &Pem, what: &str) -> Result<(String, Vec<CertificateDer<'static>>), String> {
    let (name, bytes) = read(pem, what)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err(format!("{name} contains no certificate"))
        }
        Ok(certificates) => Ok((name, certificates)),
        Err(error) => Err(format!("{name} is not in the format PEM: {error}")),
    }
}

/// Returns the name of the file or text for errors, and its content.
fn read<'a>(pem: &'a Pem, what: &str) -> Result<(String, Cow<'a, [u8]>), String> {
    match pem {
        Pem::Text(text) => Ok((format!("the text of the {what}"), Cow::Borrowed(&text[..]))),
        Pem::File(path) => {
            let name = format!("the {what} {}", path.display());
            let bytes =
                std::fs::read(path).map_err(|error| format!("cannot read {name}: {error}"))?;
            Ok((name, Cow::Owned(bytes)))
        }
    }
}

/// Accepts the certificate of every server, for `danger_accept_invalid_certs`. The server must still have the key of its certificate.
#[derive(Debug)]
struct AnyCertificate(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::*;

    fn signed() -> (String, String) {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (cert.pem(), signing_key.serialize_pem())
    }

    #[test]
    fn the_right_certificates_and_keys_are_accepted() {
        let (cert, key) = signed();
        check_tls(&TlsOptions::new()).unwrap();
        check_tls(&TlsOptions::new().ca_pem(&cert).client_cert_pem(cert, key)).unwrap();
    }

    #[test]
    fn a_wrong_file_is_an_error_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.pem");
        let name = path.display();
        let options = TlsOptions::new();
        let error = |options: TlsOptions| check_tls(&options).unwrap_err();
        let missing = error(options.clone().ca_file(&path));
        assert!(missing.starts_with(&format!("cannot read the CA certificate {name}: ")));
        std::fs::write(&path, "s3cret").unwrap();
        let expected = format!("the CA certificate {name} contains no certificate");
        assert_eq!(error(options.clone().ca_file(&path)), expected);
        let (cert, _) = signed();
        std::fs::write(dir.path().join("c.pem"), cert).unwrap();
        let expected = format!("the client key {name} contains no key, or the key is encrypted");
        let options = options.client_cert_files(dir.path().join("c.pem"), &path);
        assert_eq!(error(options), expected);
    }

    #[test]
    fn the_key_of_another_certificate_is_an_error() {
        let ((cert, _), (_, key)) = (signed(), signed());
        assert_eq!(
            check_tls(&TlsOptions::new().client_cert_pem(cert, key)),
            Err("the text of the client key does not belong to the text of the client certificate"
                .to_owned())
        );
    }
}
