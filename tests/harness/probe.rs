//! A look at a server that does not go through the library under test.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisResult};

/// A test that looks at a frozen server is a wrong test; it shall fail, not hang.
const ANSWER: Duration = Duration::from_secs(10);

/// A connection of the test's own.
#[derive(Clone)]
pub struct Probe(MultiplexedConnection);

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Probe")
    }
}

impl Probe {
    /// Connects to the server at `url`.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, or refuses the password.
    pub async fn connect(url: &str) -> RedisResult<Self> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER))
            .set_response_timeout(Some(ANSWER));
        let client = Client::open(url)?;
        client.get_multiplexed_async_connection_with_config(&config).await.map(Self)
    }

    /// Sends any command, such as `["SET", "a", "1"]`.
    ///
    /// # Errors
    ///
    /// The server's, or the connection's.
    pub async fn try_command<T: FromRedisValue>(
        &mut self,
        words: impl AsRef<[&str]>,
    ) -> RedisResult<T> {
        let mut command = Cmd::new();
        for word in words.as_ref() {
            command.arg(word);
        }
        command.query_async(&mut self.0).await
    }

    /// Sends any command that has to succeed.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub async fn command<T: FromRedisValue>(&mut self, words: impl AsRef<[&str]>) -> T {
        let words = words.as_ref();
        match self.try_command(words).await {
            Ok(answer) => answer,
            Err(error) => panic!("{words:?}: {error}"),
        }
    }

    /// The value of a string key.
    pub async fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        self.command(["GET", key]).await
    }

    /// What is left of a key's life; `None` if it is not there.
    ///
    /// # Panics
    ///
    /// When the key lives for ever.
    pub async fn time_to_live(&mut self, key: &str) -> Option<Duration> {
        match self.command(["PTTL", key]).await {
            -2_i64 => None,
            left => {
                let left = u64::try_from(left).expect("a key with a time to live");
                Some(Duration::from_millis(left))
            }
        }
    }

    /// All keys, in no order.
    pub async fn keys(&mut self) -> Vec<String> {
        self.command(["KEYS", "*"]).await
    }

    /// How often each command was called since the start or [`reset_calls`](Self::reset_calls), by
    /// its name in lower case.
    pub async fn calls(&mut self) -> HashMap<String, u64> {
        let info: String = self.command(["INFO", "commandstats"]).await;
        info.lines()
            .filter_map(|line| {
                let (name, statistics) = line.strip_prefix("cmdstat_")?.split_once(':')?;
                let calls = statistics.strip_prefix("calls=")?.split(',').next()?;
                Some((name.to_owned(), calls.parse().ok()?))
            })
            .collect()
    }

    /// Sets the counts of [`calls`](Self::calls) back to zero.
    pub async fn reset_calls(&mut self) {
        self.command::<()>(["CONFIG", "RESETSTAT"]).await;
    }

    /// Closes every connection but this one.
    pub async fn disconnect_others(&mut self) {
        for kind in ["normal", "pubsub"] {
            self.command::<i64>(["CLIENT", "KILL", "TYPE", kind]).await;
        }
    }

    /// The server's process id.
    pub(crate) async fn process_id(&mut self) -> RedisResult<i32> {
        let info: String = self.try_command(["INFO", "server"]).await?;
        let id = info.lines().find_map(|line| line.strip_prefix("process_id:")?.parse().ok());
        Ok(id.unwrap_or_default())
    }
}

/// Everything that a server is told, in the order in which it executes it (`MONITOR`).
pub struct Monitor(redis::aio::Monitor);

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Monitor")
    }
}

impl Monitor {
    /// Starts to listen to the server at `url`; what it executes from now on is seen.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, or does not permit it.
    pub async fn connect(url: &str) -> RedisResult<Self> {
        Client::open(url)?.get_async_monitor().await.map(Self)
    }

    /// The lines up to the first that `last` accepts, that one included.
    ///
    /// # Panics
    ///
    /// When there is none for ten seconds.
    pub async fn until(&mut self, mut last: impl FnMut(&str) -> bool) -> Vec<String> {
        let mut lines = Vec::new();
        let mut stream = self.0.on_message::<String>();
        loop {
            let line = tokio::time::timeout(ANSWER, stream.next()).await;
            let line = line.expect("a line in time").expect("an open connection");
            let end = last(&line);
            lines.push(line);
            if end {
                return lines;
            }
        }
    }
}
