//! The access to the servers: TLS and credentials. The options of all nodes complete those of each URL.

use std::path::PathBuf;
#[cfg(feature = "redis")]
use std::sync::Arc;

use super::builder::LockManagerBuilder;
#[cfg(feature = "redis")]
use super::builder::NodeConfig;
use crate::access::Pem;
#[cfg(feature = "tls")]
use crate::access::read_files;
#[cfg(feature = "redis")]
use crate::access::{Credentials, Provider, ProviderError, TlsOptions};
#[cfg(feature = "redis")]
use crate::error::{ConnectError, InvalidOption};
#[cfg(feature = "tls")]
use crate::node::redis::check_tls;
#[cfg(feature = "redis")]
use crate::node::redis::{RedisUrl, Servers};

impl LockManagerBuilder {
    /// Sets the options of TLS for all nodes whose URL begins with `rediss`: the trusted authorities, and
    /// the certificate of the client. Defaults to the root certificates of the system, and to no
    /// certificate of the client.
    ///
    /// A URL may have options of its own, which win for that node:
    /// `rediss://host?tls_ca=/path/ca.pem&tls_cert=/path/client.pem&tls_key=/path/client.key`.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, options: TlsOptions) -> Self {
        self.tls = Some(options);
        self
    }

    /// Sets the file with the trusted authorities, for a configuration.
    pub(super) fn tls_ca(mut self, path: PathBuf) -> Self {
        self.tls.get_or_insert_default().ca = Some(Pem::file(path));
        self
    }

    /// Sets the file with the certificate of the client, for a configuration.
    pub(super) fn tls_cert(mut self, path: PathBuf) -> Self {
        self.tls.get_or_insert_default().cert = Some(Pem::file(path));
        self
    }

    /// Sets the file with the key of the client, for a configuration.
    pub(super) fn tls_key(mut self, path: PathBuf) -> Self {
        self.tls.get_or_insert_default().key = Some(Pem::file(path));
        self
    }
}

#[cfg(feature = "redis")]
impl LockManagerBuilder {
    /// Gets the credentials for each connection from an async function, for passwords and tokens that
    /// change. The function gets the [name of the node](crate::LockManager::nodes). It is used for nodes
    /// whose URL has no password and no `password_file`. Defaults to the credentials of the URLs.
    ///
    /// The manager calls the function for each connection that it makes. If the credentials
    /// [expire](Credentials::expires_in), it calls the function again after about three quarters of
    /// their life, and sends `AUTH` over the same connection. The locks and their waiters stay. After a
    /// failure it tries again after 1 s, and then at growing intervals of up to 30 s. It logs a warning, and
    /// counts the metric `redlock_authentications_total`. If the server ends a connection because its
    /// credentials have expired, the manager makes a new one.
    ///
    /// An error of the function, and a call that takes longer than three quarters of the
    /// [`connect_timeout`](Self::connect_timeout), is a failed vote of the node
    /// ([`NodeError::Credentials`](crate::NodeError::Credentials)). The text of the error is part of the vote and
    /// of the log, so it must not contain secrets. The function should return a token that it has
    /// in memory while the token is valid for long enough.
    ///
    /// A URL can name a file instead, such as a mounted secret: `redis://app@host?password_file=/run/secrets/redis`.
    /// The file contains only the password, and is read for each connection.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use redlock_core::{Credentials, LockManager};
    ///
    /// # async fn sign_token(_: &str) -> std::io::Result<String> { Ok(String::new()) }
    /// async fn token(node: Arc<str>) -> std::io::Result<Credentials> {
    ///     let token = sign_token(&node).await?;
    ///     Ok(Credentials::new(token).username("app").expires_in(Duration::from_secs(900)))
    /// }
    ///
    /// # async fn run() -> Result<(), redlock_core::ConnectError> {
    /// let locks = LockManager::builder().url("redis://cache.local").credentials(token).connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn credentials<F, R, E>(mut self, provider: F) -> Self
    where
        F: Fn(Arc<str>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.credentials = Some(Arc::new(move |node| {
            let credentials = provider(node);
            Box::pin(async move { credentials.await.map_err(Into::<ProviderError>::into) })
        }));
        self
    }

    /// Checks that the options of TLS for all nodes are used, and that their files can be used.
    pub(super) async fn check_tls(&self) -> Result<(), ConnectError> {
        let Some(tls) = &self.tls else {
            return Ok(());
        };
        let urls = self.nodes.iter().filter_map(|node| match node {
            // `connect` reports a URL that cannot be read.
            NodeConfig::Url(url) => RedisUrl::parse(url).ok(),
            _ => None,
        });
        let is_plain = |url: &RedisUrl| !matches!(url.servers, Servers::Unix(_));
        let (with_tls, without): (Vec<_>, Vec<_>) = urls.partition(|url| url.tls.is_some());
        if with_tls.is_empty() && without.iter().any(is_plain) {
            let message =
                "tls is set, but no URL begins with rediss: the connections would not be encrypted";
            return Err(InvalidOption::conflict("tls", message).into());
        }
        let checked = check_files(tls).await;
        checked.map_err(|reason| InvalidOption::conflict("tls", reason).into())
    }

    /// Completes the options of a URL by those of all nodes. The error explains a mistake in the files that the URL
    /// names.
    pub(super) async fn with_access(&self, mut url: RedisUrl) -> Result<RedisUrl, String> {
        let name = url.name();
        if let Some(tls) = url.tls.take() {
            check_files(&tls).await?;
            let tls = tls.or(self.tls.as_ref().unwrap_or(&TlsOptions::default()));
            if tls.is_insecure() {
                tracing::warn!(
                    node = name,
                    "the certificates of this node are not verified: anybody on the network can pose as its servers"
                );
            }
            url.tls = Some(tls);
        }
        let login = &mut url.login;
        if let Some(function) = &self.credentials
            && login.password.is_none()
            && login.provider.is_none()
        {
            let name = name.into();
            login.provider = Some(Provider::Function(Arc::clone(function), name));
        }
        Ok(url)
    }
}

/// Checks that the files can be read and used.
#[cfg(feature = "tls")]
async fn check_files(tls: &TlsOptions) -> Result<(), String> {
    let options = tls.clone();
    let checked = read_files(tls.files(), move || check_tls(&options)).await;
    checked.map_err(|error| error.to_string()).and_then(|checked| checked)
}

/// Without TLS there are no files.
#[cfg(all(feature = "redis", not(feature = "tls")))]
#[expect(clippy::unused_async, reason = "with the feature it reads files")]
async fn check_files(_: &TlsOptions) -> Result<(), String> {
    Ok(())
}

#[cfg(all(test, feature = "tls", unix))]
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
