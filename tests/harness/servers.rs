//! Several Redis servers.

use std::ops::{Deref, DerefMut};

use futures_util::future::join_all;

use crate::redis_server::{RedisOptions, RedisServer};

/// Independent servers, the nodes of one lock manager.
#[derive(Debug)]
pub struct Servers(Vec<RedisServer>);

impl Servers {
    /// Starts `count` servers concurrently.
    ///
    /// # Panics
    ///
    /// If a server cannot be started.
    pub async fn start(count: usize) -> Self {
        Self::start_with(&RedisServer::options(), count).await
    }

    /// Starts `count` servers with the same options concurrently.
    ///
    /// # Panics
    ///
    /// If a server cannot be started.
    pub async fn start_with(options: &RedisOptions, count: usize) -> Self {
        Self(join_all((0..count).map(|_| options.clone().start())).await)
    }

    /// Returns the URLs of the servers, in order.
    pub fn urls(&self) -> Vec<String> {
        self.0.iter().map(RedisServer::url).collect()
    }

    /// Returns all keys of all servers that are up, as `port/key`.
    ///
    /// # Panics
    ///
    /// If one of these servers does not answer.
    pub async fn keys(&self) -> Vec<String> {
        let up = self.0.iter().filter(|server| server.is_up());
        let keys = join_all(up.map(async |server| {
            let keys = server.probe().await.keys().await.into_iter();
            keys.map(|key| format!("{}/{key}", server.port())).collect::<Vec<_>>()
        }));
        keys.await.concat()
    }
}

impl Deref for Servers {
    type Target = [RedisServer];

    fn deref(&self) -> &[RedisServer] {
        &self.0
    }
}

impl DerefMut for Servers {
    fn deref_mut(&mut self) -> &mut [RedisServer] {
        &mut self.0
    }
}

impl IntoIterator for Servers {
    type Item = RedisServer;
    type IntoIter = std::vec::IntoIter<RedisServer>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl From<Vec<RedisServer>> for Servers {
    fn from(servers: Vec<RedisServer>) -> Self {
        Self(servers)
    }
}
