//! Gets the credentials for each connection.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::FutureExt;
use tokio::time::timeout;

use crate::access::{Credentials, ProviderError, ProviderFn, read_files};

/// Gets the credentials for each connection to a node.
#[derive(Clone)]
pub(crate) enum Provider {
    /// A file that contains only the password.
    File(PathBuf),
    /// A function of the application, and the name of the node.
    Function(ProviderFn, Arc<str>),
}

impl Provider {
    /// Gets the credentials. The error explains why there are none.
    pub(crate) async fn credentials(&self, limit: Duration) -> Result<Credentials, String> {
        let late = |_| Err(format!("it did not return within {limit:?}").into());
        let result = timeout(limit, self.ask()).await.unwrap_or_else(late);
        result.map_err(|error| match self {
            Self::File(path) => format!("cannot read {}: {error}", path.display()),
            Self::Function(..) => format!("the provider failed: {error}"),
        })
    }

    async fn ask(&self) -> Result<Credentials, ProviderError> {
        match self {
            Self::File(path) => {
                let file = path.clone();
                let read = move || std::fs::read_to_string(file);
                let text = read_files(vec![path.clone()], read).await??;
                match text.trim_end_matches(['\r', '\n']) {
                    "" => Err("it is empty".into()),
                    password => Ok(Credentials::new(password)),
                }
            }
            Self::Function(function, node) => {
                // A panic must not end the task that keeps the node connected.
                let call = AssertUnwindSafe(async { function(Arc::clone(node)).await });
                call.catch_unwind().await.unwrap_or_else(|_| Err("it panicked".into()))
            }
        }
    }
}

#[cfg(test)]
impl PartialEq for Provider {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(path), Self::File(other)) => path == other,
            (Self::Function(function, node), Self::Function(other, other_node)) => {
                Arc::ptr_eq(function, other) && node == other_node
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_file_has_the_password_and_perhaps_the_end_of_a_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let provider = Provider::File(file.path().to_owned());
        for (text, password) in [("a b ", "a b "), ("a\n", "a"), ("a\r\n", "a")] {
            std::fs::write(file.path(), text).unwrap();
            assert_eq!(provider.credentials(LIMIT).await, Ok(Credentials::new(password)));
        }
        let path = file.path().display().to_string();
        // The server would only say that the password is wrong.
        for text in ["", "\n", "\r\n"] {
            std::fs::write(file.path(), text).unwrap();
            let reason = provider.credentials(LIMIT).await.unwrap_err();
            assert_eq!(reason, format!("cannot read {path}: it is empty"));
        }
        drop(file);
        let reason = provider.credentials(LIMIT).await.unwrap_err();
        assert!(reason.starts_with(&format!("cannot read {path}: ")), "{reason}");
    }

    #[test]
    #[cfg(unix)]
    fn a_file_that_hangs_occupies_one_thread() {
        let dir = tempfile::tempdir().unwrap();
        let (hung, file) = (dir.path().join("hung"), dir.path().join("file"));
        // A read of a FIFO hangs until a writer opens it.
        assert!(std::process::Command::new("mkfifo").arg(&hung).status().unwrap().success());
        std::fs::write(&file, "password").unwrap();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().max_blocking_threads(2).build().unwrap();
        let read = runtime.block_on(async {
            for _ in 0..3 {
                let limit = Duration::from_millis(20);
                Provider::File(hung.clone()).credentials(limit).await.unwrap_err();
            }
            Provider::File(file).credentials(LIMIT).await
        });
        // Ends the read that hangs.
        std::fs::write(&hung, "password").unwrap();
        runtime.shutdown_background();
        assert_eq!(read, Ok(Credentials::new("password")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_function_that_fails_panics_or_hangs_is_the_reason() {
        let fails: ProviderFn = Arc::new(|node| Box::pin(async move { Err(node.as_ref().into()) }));
        let panics: ProviderFn = Arc::new(|_| panic!("of the test"));
        let hangs: ProviderFn = Arc::new(|_| Box::pin(std::future::pending()));
        for (function, words) in [
            (fails, "the provider failed: cache:6379"),
            (panics, "the provider failed: it panicked"),
            (hangs, "the provider failed: it did not return within 60s"),
        ] {
            let provider = Provider::Function(function, "cache:6379".into());
            assert_eq!(provider.credentials(LIMIT).await.unwrap_err(), words);
        }
    }
}
