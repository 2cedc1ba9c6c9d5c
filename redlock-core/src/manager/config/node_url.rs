//! The URL of a node in a configuration.

use std::fmt;
use std::time::Duration;

use crate::store::STORES;
use crate::store::kit::description::{StoreDescription, StoreUrl};

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

impl NodeUrl {
    /// Parses the URL of one of `count` nodes. The error explains the mistake without repeating the URL.
    pub(in crate::manager) fn parse(&self, count: usize) -> Result<Box<dyn StoreUrl>, String> {
        let url = &*self.0;
        if url.is_empty() {
            let words = "it is empty; write a URL such as redis://127.0.0.1, and a comma only between two URLs";
            return Err(words.to_owned());
        }
        let scheme = url.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
        let scheme = scheme.as_deref().and_then(|scheme| scheme.split(['+', '-']).next());
        let known = |store: &&StoreDescription| {
            scheme.is_some_and(|scheme| store.schemes.contains(&scheme))
        };
        let Some(store) = STORES.iter().find(known) else {
            let words =
                if url.contains("://") { "its scheme is unknown" } else { "it has no scheme" };
            let built = STORES.iter().filter(|store| store.read.is_ok());
            let forms: Vec<_> = built.map(|store| store.forms).collect();
            return Err(format!("{words}; known are {}", forms.join(", ")));
        };
        if store.is_alone && count > 1 {
            let scheme = scheme.unwrap_or_default();
            return Err(format!("{scheme}: is allowed only as the one and only node"));
        }
        match store.read {
            Ok(read) => read(url),
            Err(feature) => {
                Err(format!("it needs the feature `{feature}` of redlock-core (or redlock-axum)"))
            }
        }
    }

    /// Returns the longest lease that the node grants, unless it grants every lease.
    pub(in crate::manager) fn longest_lease(&self) -> Option<Duration> {
        self.parse(1).ok()?.longest_lease()
    }
}

/// Shows the name of the node (secrets stay in).
impl fmt::Debug for NodeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parse(1) {
            Ok(url) => f.write_str(&url.name()),
            Err(_) => f.write_str("(invalid)"),
        }
    }
}
