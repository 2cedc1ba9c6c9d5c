//! The options of TLS of all nodes, which complete those of each URL.

use super::builder::{LockManagerBuilder, NodeConfig};
use crate::access::{TlsOptions, check_tls, read_files};
use crate::error::{ConnectError, InvalidOption};
use crate::store::kit::description::StoreUrl;

impl LockManagerBuilder {
    /// Sets the options of TLS for all nodes whose URL begins with `rediss`, or has the parameter
    /// `sslmode=require`: the trusted authorities, and the certificate of the client. Defaults to the root certificates of the system, and to no
    /// certificate of the client.
    ///
    /// A URL may have options of its own, which win for that node:
    /// `rediss://host?tls_ca=/path/ca.pem&tls_cert=/path/client.pem&tls_key=/path/client.key`.
    pub fn tls(mut self, options: TlsOptions) -> Self {
        self.tls = Some(options);
        self
    }

    /// Checks that the options of TLS for all nodes are used, and that their files can be used.
    pub(super) async fn check_tls(&self) -> Result<(), ConnectError> {
        let Some(tls) = &self.tls else {
            return Ok(());
        };
        // `connect` reports a URL that cannot be read.
        let parse = |node: &NodeConfig| match node {
            NodeConfig::Url(url) => url.parse(1).ok(),
            NodeConfig::Node(_) => None,
        };
        let (mut has_tls, mut has_plain) = (false, false);
        for mut parsed in self.nodes.iter().filter_map(parse) {
            let is_local = parsed.is_local();
            if let Some(tls) = parsed.tls() {
                has_tls |= tls.is_some();
                has_plain |= tls.is_none() && !is_local;
            }
        }
        if has_plain && !has_tls {
            let message = "tls is set, but no URL begins with rediss or has sslmode=require: the connections would not be encrypted";
            return Err(InvalidOption::conflict("tls", message).into());
        }
        let checked = check_files(tls).await;
        checked.map_err(|reason| InvalidOption::conflict("tls", reason).into())
    }

    /// Completes the options of a URL by those of all nodes. The error explains a mistake in the files that the URL
    /// names.
    pub(super) async fn with_tls(
        &self,
        mut url: Box<dyn StoreUrl>,
    ) -> Result<Box<dyn StoreUrl>, String> {
        if let Some(own) = url.tls().and_then(Option::take) {
            check_files(&own).await?;
            let tls = own.or(self.tls.as_ref().unwrap_or(&TlsOptions::default()));
            if tls.is_insecure() {
                tracing::warn!(
                    node = url.name(),
                    "the certificates of this node are not verified: anybody on the network can pose as its servers"
                );
            }
            url.tls().map(|own| own.replace(tls));
        }
        Ok(url)
    }
}

/// Checks that the files can be read and used.
async fn check_files(tls: &TlsOptions) -> Result<(), String> {
    let options = tls.clone();
    let checked = read_files(tls.files(), move || check_tls(&options)).await;
    checked.map_err(|error| error.to_string()).and_then(|checked| checked)
}

#[cfg(all(test, unix))]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::LockManager;

    /// A file on a disk that hangs would stop every task of the thread.
    #[tokio::test]
    async fn files_of_certificates_are_read_in_other_threads() {
        let dir = tempfile::tempdir().unwrap();
        let hung = dir.path().join("hung");
        // A read of a FIFO hangs until a writer opens it.
        assert!(std::process::Command::new("mkfifo").arg(&hung).status().unwrap().success());
        for builder in [
            LockManager::builder()
                .url("rediss://127.0.0.1:1")
                .tls(TlsOptions::new().ca_file(&hung)),
            LockManager::builder().url(format!("rediss://127.0.0.1:1?tls_ca={}", hung.display())),
        ] {
            let (returned, signal) = mpsc::channel();
            let hung = hung.clone();
            let writer = std::thread::spawn(move || {
                let has_returned = signal.recv_timeout(Duration::from_secs(60)).is_ok();
                std::fs::write(hung, "no certificate").unwrap();
                has_returned
            });
            let mut connecting = pin!(builder.connect());
            assert!(futures_util::poll!(&mut connecting).is_pending());
            returned.send(()).unwrap();
            let error = connecting.await.unwrap_err().to_string();
            assert!(error.contains("contains no certificate"), "{error}");
            assert!(writer.join().unwrap(), "the read blocked the task");
        }
    }
}
