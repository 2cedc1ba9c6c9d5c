//! The configuration of a TLS connection, from files that may be replaced at any time.

use std::borrow::Cow;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, InconsistentKeys, RootCertStore};

use super::any_certificate::AnyCertificate;
use super::client_certificate::CertificateRequest;
use super::ensure_crypto_provider;
use crate::access::{Pem, TlsOptions};

/// Reads the certificates and the key, and returns the configuration of one connection. The error names the file.
pub(super) fn client_config(
    options: &TlsOptions,
) -> Result<(ClientConfig, Arc<CertificateRequest>), String> {
    let provider = provider()?;
    let request = CertificateRequest::answered_with(certified_key(options, &provider)?);
    let config = ClientConfig::builder();
    let config = if options.is_insecure() {
        config.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
    } else {
        config.with_root_certificates(roots(options.ca.as_ref())?)
    };
    let resolver = Arc::<CertificateRequest>::clone(&request);
    Ok((config.with_client_cert_resolver(resolver), request))
}

/// Checks that the files can be read and used.
pub(crate) fn check(options: &TlsOptions) -> Result<(), String> {
    if let Some(ca) = &options.ca {
        roots(Some(ca))?;
    }
    let provider = provider()?;
    certified_key(options, &provider).map(drop)
}

fn provider() -> Result<Arc<CryptoProvider>, String> {
    ensure_crypto_provider();
    CryptoProvider::get_default().map(Arc::clone).ok_or_else(|| "no crypto provider".to_owned())
}

fn roots(ca: Option<&Pem>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let (certificates, name) = match ca {
        Some(ca) => (certificates(ca, "CA certificate")?, describe(ca, "CA certificate")),
        None => (system_roots()?, "the root certificates of the system".to_owned()),
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

fn certified_key(
    options: &TlsOptions,
    provider: &CryptoProvider,
) -> Result<Option<CertifiedKey>, String> {
    let (Some(cert), Some(key)) = (&options.cert, &options.key) else {
        return Ok(None);
    };
    let chain = certificates(cert, "client certificate")?;
    let key_name = describe(key, "client key");
    let key = PrivateKeyDer::from_pem_slice(&read(key, "client key")?)
        .map_err(|_| format!("{key_name} contains no key, or the key is encrypted"))?;
    let key = provider.key_provider.load_private_key(key);
    let key = key.map_err(|error| format!("{key_name} cannot be used: {error}"))?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        // Some kinds of keys do not show their public part.
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {
            Ok(Some(certified))
        }
        Err(_) => {
            let cert_name = describe(cert, "client certificate");
            Err(format!("{key_name} does not belong to {cert_name}"))
        }
    }
}

fn certificates(pem: &Pem, what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let name = describe(pem, what);
    let bytes = read(pem, what)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err(format!("{name} contains no certificate"))
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(format!("{name} is not in the format PEM: {error}")),
    }
}

fn read<'a>(pem: &'a Pem, what: &str) -> Result<Cow<'a, [u8]>, String> {
    match pem {
        Pem::Text(text) => Ok(Cow::Borrowed(&text[..])),
        Pem::File(path) => std::fs::read(path)
            .map(Cow::Owned)
            .map_err(|error| format!("cannot read {}: {error}", describe(pem, what))),
    }
}

fn describe(pem: &Pem, what: &str) -> String {
    match pem {
        Pem::File(path) => format!("the {what} {}", path.display()),
        Pem::Text(_) => format!("the text of the {what}"),
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
        check(&TlsOptions::new()).unwrap();
        check(&TlsOptions::new().ca_pem(&cert).client_cert_pem(cert, key)).unwrap();
    }

    #[test]
    fn a_wrong_file_is_an_error_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.pem");
        let name = path.display();
        let options = TlsOptions::new();
        let error = |options: TlsOptions| check(&options).unwrap_err();
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
            check(&TlsOptions::new().client_cert_pem(cert, key)),
            Err("the text of the client key does not belong to the text of the client certificate"
                .to_owned())
        );
    }
}
