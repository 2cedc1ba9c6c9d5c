//! The authentication of a connection, which is repeated before its credentials expire.

use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::{Cmd, RedisError};
use tokio::time::{sleep, timeout};

use super::Connection;
use crate::access::{Credentials, Provider};
use crate::error::NodeError;
use crate::jitter::jitter;
use crate::node::redis::error;
use crate::node::redis::url::Login;
use crate::telemetry;

/// The part of the life of credentials after which a connection authenticates again.
const RENEWED_AFTER: std::ops::Range<f64> = 0.7..0.8;
/// The shortest pause before a connection authenticates again.
const SHORTEST_LIFE: Duration = Duration::from_millis(500);
/// The first pause after a failure. The pause doubles after each failure, and is jittered by a quarter.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The login of a connection whose credentials expire.
#[derive(Debug, Clone)]
pub(crate) struct ExpiringLogin {
    pub(crate) provider: Provider,
    /// The user that the URL names.
    pub(crate) username: Option<String>,
    /// The time from the authentication until the credentials expire.
    pub(crate) life: Duration,
}

impl Login {
    /// Returns the credentials for a new connection: the user and the password, and the login to repeat.
    pub(crate) async fn resolve(
        &self,
        limit: Duration,
    ) -> Result<(Self, Option<ExpiringLogin>), NodeError> {
        let Some(provider) = &self.provider else {
            return Ok((self.clone(), None));
        };
        let Credentials { username, password, expires_in } = provider.credentials(limit).await?;
        let expiring = expires_in.map(|life| ExpiringLogin {
            provider: provider.clone(),
            username: self.username.clone(),
            life,
        });
        let username = username.or_else(|| self.username.clone());
        Ok((Self { username, password: Some(password), provider: None }, expiring))
    }
}

impl Connection {
    /// Authenticates again whenever the credentials are about to expire. Never completes.
    ///
    /// After a failure it tries again for as long as the connection lasts. The server decides what happens to a
    /// connection whose credentials have expired. A new connection gets new credentials.
    pub(crate) async fn keep_authenticated(&self, node: &Arc<str>, limit: Duration) {
        let Some(ExpiringLogin { provider, username, mut life }) = self.expiring_login.clone()
        else {
            return std::future::pending().await;
        };
        loop {
            sleep(life.mul_f64(jitter(RENEWED_AFTER)).max(SHORTEST_LIFE)).await;
            let mut pause = FIRST_PAUSE;
            let expires_in = loop {
                match self.authenticate(&provider, username.as_deref(), limit).await {
                    Ok(expires_in) => break expires_in,
                    Err(error) => {
                        telemetry::authenticated_again(node, "failed");
                        let error = error::escape_control_characters(&error.to_string());
                        tracing::warn!(%node, error, "cannot renew the credentials of a connection");
                        sleep(pause.mul_f64(jitter(0.75..1.25))).await;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                }
            };
            telemetry::authenticated_again(node, "renewed");
            tracing::debug!(%node, ?expires_in, "the credentials of a connection were renewed");
            match expires_in {
                Some(next) => life = next,
                None => return std::future::pending().await,
            }
        }
    }

    /// Authenticates with new credentials, in order with the other commands. Returns how long they last.
    ///
    /// A server that refuses them leaves the connection as it was.
    async fn authenticate(
        &self,
        provider: &Provider,
        username: Option<&str>,
        limit: Duration,
    ) -> Result<Option<Duration>, NodeError> {
        let credentials = provider.credentials(limit).await?;
        let mut command = Cmd::new();
        command.arg("AUTH");
        if let Some(username) = credentials.username.as_deref().or(username) {
            command.arg(username);
        }
        command.arg(&credentials.password);
        let reply: Result<_, RedisError> = timeout(limit, self.send_boxed(&command))
            .await
            .map_err(|_| NodeError::NoReply(limit))?;
        reply.map_err(|error| error::not_connected(&error))?;
        Ok(credentials.expires_in)
    }
}
