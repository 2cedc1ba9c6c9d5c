//! The URL of a node in a configuration.

use std::fmt;

#[cfg(feature = "redis")]
use crate::node::redis::RedisUrl;

/// The URL of a node, as [`LockManagerBuilder::url`](crate::LockManagerBuilder::url) takes it. It is made from a text
/// by `From`, and is not checked before it is used.
///
/// A URL may contain a password. `Debug` shows the name of the node instead: host and port, or the path of the socket.
///
/// # Examples
///
/// ```
/// use redlock_core::NodeUrl;
///
/// # #[cfg(feature = "redis")] {
/// let url = NodeUrl::from("redis://:s3cret@10.0.0.1");
/// assert_eq!(format!("{url:?}"), "10.0.0.1:6379");
/// assert_eq!(url.as_ref(), "redis://:s3cret@10.0.0.1");
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct NodeUrl(String);

impl<T: Into<String>> From<T> for NodeUrl {
    fn from(url: T) -> Self {
        Self(url.into())
    }
}

impl AsRef<str> for NodeUrl {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// The node that a URL describes.
pub(in crate::manager) enum ParsedUrl {
    /// A node in the memory of this process.
    Memory,
    #[cfg(feature = "redis")]
    Redis(Box<RedisUrl>),
}

impl NodeUrl {
    /// Parses the URL of one of `count` nodes. The error explains the mistake without repeating the URL.
    pub(in crate::manager) fn parse(&self, count: usize) -> Result<ParsedUrl, String> {
        match &*self.0 {
            "" => {
                Err("it is empty; write a URL such as redis://127.0.0.1, and a comma only between \
                       two URLs"
                    .to_owned())
            }
            "memory:" if count == 1 => Ok(ParsedUrl::Memory),
            // Several of these nodes could be a quorum, which other processes do not see.
            "memory:" => Err("memory: is allowed only as the one and only node".to_owned()),
            #[cfg(feature = "redis")]
            url => RedisUrl::parse(url).map(Box::new).map(ParsedUrl::Redis),
            #[cfg(not(feature = "redis"))]
            _ => Err("URLs of servers need the feature `redis` of redlock-core (or redlock-axum)"
                .to_owned()),
        }
    }
}

/// Shows the name of the node (secrets stay in).
impl fmt::Debug for NodeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self.parse(1) {
            Ok(ParsedUrl::Memory) => "memory:".to_owned(),
            #[cfg(feature = "redis")]
            Ok(ParsedUrl::Redis(url)) => url.name(),
            Err(_) => "(invalid)".to_owned(),
        })
    }
}
