//! The authentication of a connection, which is repeated before its credentials expire.

use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::{Cmd, RedisError};
use tokio::time::{sleep, timeout};

use crate::access::{Credentials, Provider};
use crate::error::NodeError;
use crate::jitter::jitter;
use crate::node::redis::error;
use crate::node::redis::link::Link;
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

impl ExpiringLogin {
    /// Authenticates again whenever the credentials are about to expire. Never completes.
    ///
    /// After a failure it tries again for as long as the connection lasts. The server decides what happens to a
    /// connection whose credentials have expired. A new connection gets new credentials.
    pub(crate) async fn renew(&self, link: &Link, node: &Arc<str>, limit: Duration) {
        let mut life = self.life;
        loop {
            sleep(life.mul_f64(jitter(RENEWED_AFTER)).max(SHORTEST_LIFE)).await;
            let mut pause = FIRST_PAUSE;
            let expires_in = loop {
                match self.authenticate(link, limit).await {
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
        link: &Link,
        limit: Duration,
    ) -> Result<Option<Duration>, NodeError> {
        let credentials = self.provider.credentials(limit).await?;
        let mut command = Cmd::new();
        command.arg("AUTH");
        if let Some(username) = credentials.username.as_deref().or(self.username.as_deref()) {
            command.arg(username);
        }
        command.arg(&credentials.password);
        let reply: Result<_, RedisError> =
            timeout(limit, link.send(&command)).await.map_err(|_| NodeError::NoReply(limit))?;
        reply.map_err(|error| error::not_connected(&error))?;
        Ok(credentials.expires_in)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::node::redis::server::played_server::{played_connection, serve};

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn credentials_are_renewed_after_about_three_quarters_of_their_life() {
        let (connection, mut server) = played_connection();
        let provider = Provider::Function(
            Arc::new(|_| Box::pin(async { Ok(Credentials::new("next").expires_in(2 * HOUR)) })),
            "cache:6379".into(),
        );
        let login = ExpiringLogin { provider, username: Some("app".to_owned()), life: HOUR };
        let node = "cache:6379".into();
        let mut authentication = Box::pin(login.renew(&connection.link, &node, HOUR));
        for life in [HOUR, 2 * HOUR] {
            let begun = Instant::now();
            let command = "AUTH\r\n$3\r\napp\r\n$4\r\nnext\r\n";
            tokio::select! {
                biased;
                () = &mut authentication => unreachable!(),
                () = serve(&mut server, command, "+OK\r\n", || {}) => {}
            }
            let elapsed = begun.elapsed();
            assert!(
                life * 7 / 10 <= elapsed && elapsed <= life * 8 / 10 + FIRST_PAUSE,
                "{elapsed:?}"
            );
        }
    }

    /// Each attempt asks for new credentials, and the pauses grow.
    #[tokio::test(start_paused = true)]
    async fn credentials_that_the_server_refuses_are_asked_for_again_after_growing_pauses() {
        let (connection, mut server) = played_connection();
        let calls = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let times = Arc::clone(&calls);
        let provider = Provider::Function(
            Arc::new(move |_| {
                times.lock().push(Instant::now());
                Box::pin(async { Ok(Credentials::new("wrong")) })
            }),
            "cache:6379".into(),
        );
        let login = ExpiringLogin { provider, username: None, life: HOUR };
        let node = "cache:6379".into();
        let mut authentication = Box::pin(login.renew(&connection.link, &node, HOUR));
        for _ in 0..9 {
            tokio::select! {
                biased;
                () = &mut authentication => unreachable!(),
                () = serve(&mut server, "wrong", "-WRONGPASS no\r\n", || {}) => {}
            }
        }
        let calls = calls.lock();
        let pauses: Vec<_> = calls.windows(2).map(|pair| pair[1] - pair[0]).collect();
        for (pause, expected) in pauses.iter().zip([1, 2, 4, 8, 16, 30, 30, 30]) {
            let expected = Duration::from_secs(expected);
            assert!(expected * 3 / 4 <= *pause && *pause <= expected * 5 / 4 + FIRST_PAUSE / 10);
        }
        assert_eq!(pauses.len(), 8);
        assert!(connection.is_alive());
    }
}
