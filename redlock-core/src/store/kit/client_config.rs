//! The configuration of rustls, for one connection.

use rustls::ClientConfig;

use crate::access::{TlsOptions, read_config, read_files};
use crate::error::{NodeError, legible};

/// Reads the certificates and the key in another thread, and returns the configuration of one connection.
pub(crate) async fn client_config(options: &TlsOptions) -> Result<ClientConfig, NodeError> {
    let options = options.clone();
    let config = read_files(options.files(), move || read_config(&options)).await;
    let config = config.map_err(|error| NodeError::NotConnected(error.to_string().into()))?;
    // The text may contain parts of a certificate.
    config.map_err(|reason| NodeError::Tls(legible(&reason).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn a_certificate_that_hangs_occupies_one_thread() {
        use std::time::Duration;

        use tokio::time::timeout;

        let dir = tempfile::tempdir().unwrap();
        let (hung, file) = (dir.path().join("hung"), dir.path().join("file"));
        // A read of a FIFO hangs until a writer opens it.
        assert!(std::process::Command::new("mkfifo").arg(&hung).status().unwrap().success());
        std::fs::write(&file, "no certificate").unwrap();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(2).build().unwrap();
        let attempt = async |ca: &std::path::Path, limit: Duration| {
            timeout(limit, client_config(&TlsOptions::new().ca_file(ca))).await
        };
        let other = runtime.block_on(async {
            for _ in 0..3 {
                assert!(attempt(&hung, Duration::from_millis(20)).await.is_err());
            }
            attempt(&file, Duration::from_secs(60)).await
        });
        // Ends the read that hangs.
        std::fs::write(&hung, "").unwrap();
        runtime.shutdown_background();
        let error = other.expect("the other file is read").unwrap_err();
        assert!(error.to_string().contains("contains no certificate"), "{error}");
    }
}
