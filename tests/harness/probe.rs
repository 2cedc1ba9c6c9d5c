//! Reads the state of a server without the library under test.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisResult};

/// The longest time for a reply. A test that probes a frozen server is wrong, and has to fail instead of
/// hanging.
const ANSWER: Duration = Duration::from_secs(60);

/// The test's own connection to a server.
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
    /// The server replies with an error, or the connection fails.
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

    /// Sends any command, and expects it to succeed.
    ///
    /// # Panics
    ///
    /// If the command fails.
    pub async fn command<T: FromRedisValue>(&mut self, words: impl AsRef<[&str]>) -> T {
        let words = words.as_ref();
        match self.try_command(words).await {
            Ok(answer) => answer,
            Err(error) => panic!("{words:?}: {error}"),
        }
    }

    /// Returns the value of a string key.
    pub async fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        self.command(["GET", key]).await
    }

    /// Returns the remaining time to live of a key; `None` if the key does not exist.
    ///
    /// # Panics
    ///
    /// If the key has no time to live.
    pub async fn time_to_live(&mut self, key: &str) -> Option<Duration> {
        match self.command(["PTTL", key]).await {
            -2_i64 => None,
            left => {
                let left = u64::try_from(left).expect("a key with a time to live");
                Some(Duration::from_millis(left))
            }
        }
    }

    /// Returns all keys, in no particular order.
    pub async fn keys(&mut self) -> Vec<String> {
        self.command(["KEYS", "*"]).await
    }

    /// Returns whether the server has a command.
    pub async fn has_command(&mut self, name: &str) -> bool {
        let info: Vec<redis::Value> = self.command(["COMMAND", "INFO", name]).await;
        info.iter().any(|info| *info != redis::Value::Nil)
    }

    /// Returns how often each command was called since the server's start or
    /// [`reset_calls`](Self::reset_calls). The command names are in lower case.
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

    /// Resets the counts of [`calls`](Self::calls) to zero.
    pub async fn reset_calls(&mut self) {
        self.command::<()>(["CONFIG", "RESETSTAT"]).await;
    }

    /// Returns how often the server has read requests from its clients, this question included. A client that sends several
    /// commands at once is read once.
    ///
    /// # Panics
    ///
    /// If the server does not count its reads.
    pub async fn reads(&mut self) -> u64 {
        let info: String = self.command(["INFO", "stats"]).await;
        let count = |line: &str| line.strip_prefix("total_reads_processed:")?.parse().ok();
        info.lines().find_map(count).expect("the number of reads")
    }

    /// Closes every connection but this one.
    pub async fn disconnect_others(&mut self) {
        for kind in ["normal", "pubsub"] {
            self.command::<i64>(["CLIENT", "KILL", "TYPE", kind]).await;
        }
    }

    /// Returns the server's process id.
    pub(crate) async fn process_id(&mut self) -> RedisResult<i32> {
        let info: String = self.try_command(["INFO", "server"]).await?;
        let id = info.lines().find_map(|line| line.strip_prefix("process_id:")?.parse().ok());
        Ok(id.unwrap_or_default())
    }
}

/// Receives every command that a server executes, in order (`MONITOR`).
pub struct Monitor(redis::aio::Monitor);

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Monitor")
    }
}

impl Monitor {
    /// Connects to the server at `url`, and receives all commands that it executes from now on.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, or denies `MONITOR`.
    pub async fn connect(url: &str) -> RedisResult<Self> {
        Client::open(url)?.get_async_monitor().await.map(Self)
    }

    /// Returns the next lines, up to and including the first line that `last` accepts.
    ///
    /// # Panics
    ///
    /// If no line arrives for ten seconds.
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
