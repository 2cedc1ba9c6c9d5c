//! Credentials that change.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

/// The credentials of a user, from a function that gets them anew for each connection, see
/// [`LockManagerBuilder::credentials`](crate::LockManagerBuilder::credentials).
///
/// `Debug` shows neither the user nor the password.
#[derive(Clone, PartialEq, Eq)]
#[must_use = "credentials do nothing until a provider returns them"]
pub struct Credentials {
    pub(crate) username: Option<String>,
    pub(crate) password: String,
    pub(crate) expires_in: Option<Duration>,
}

impl Credentials {
    /// Creates credentials with a password or a token, for the user that the URL names, or else for the user `default`.
    pub fn new(password: impl Into<String>) -> Self {
        Self { username: None, password: password.into(), expires_in: None }
    }

    /// Sets the name of the user. Defaults to the user that the URL names.
    pub fn username(mut self, username: impl Into<String>) -> Self {
        self.username = Some(username.into());
        self
    }

    /// Sets how long the server accepts these credentials, counted from now. After about three quarters of this time,
    /// each connection asks for new credentials, and authenticates again. Defaults to none: a connection
    /// authenticates once. PostgreSQL ignores this time: its connections authenticate once, and stay when their credentials
    /// expire.
    pub fn expires_in(mut self, time: Duration) -> Self {
        self.expires_in = Some(time);
        self
    }
}

/// Shows no secret.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("expires_in", &self.expires_in).finish_non_exhaustive()
    }
}

/// An error of a provider.
pub(crate) type ProviderError = Box<dyn Error + Send + Sync>;
type Outcome = BoxFuture<'static, Result<Credentials, ProviderError>>;

/// A function that gets the credentials for a node.
pub(crate) type ProviderFn = Arc<dyn Fn(Arc<str>) -> Outcome + Send + Sync>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let credentials =
            Credentials::new("s3cret").username("s3cret").expires_in(Duration::from_secs(60));
        assert_eq!(format!("{credentials:?}"), "Credentials { expires_in: Some(60s), .. }");
    }
}
