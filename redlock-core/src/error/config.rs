//! The errors of options, of a configuration in environment variables, and of creating a manager.

use std::sync::Arc;

use super::Votes;
use crate::key::LockKey;

/// The error of an option that is out of its range, or cannot be combined with another option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidOption {
    option: &'static str,
    message: String,
    /// The key of the lock that was requested.
    key: Option<LockKey>,
}

impl InvalidOption {
    /// Creates the error of an option that is out of its range, for tests of code that handles it. The
    /// message is `{option} is {value}, but must be {allowed}`.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock_core::{InvalidOption, LockError};
    ///
    /// let error = LockError::from(InvalidOption::new("expire", "5ms", "from 10 ms to 7 days"));
    /// assert_eq!(error.to_string(), "expire is 5ms, but must be from 10 ms to 7 days");
    /// ```
    pub fn new(
        option: &'static str,
        value: impl std::fmt::Display,
        allowed: impl std::fmt::Display,
    ) -> Self {
        Self::conflict(option, format!("{option} is {value}, but must be {allowed}"))
    }

    /// Makes the error of an option that cannot be combined with another one. `message` names both.
    pub(crate) fn conflict(option: &'static str, message: impl Into<String>) -> Self {
        Self { option, message: message.into(), key: None }
    }

    /// Adds the key of the lock that was requested.
    pub(crate) fn of_lock(self, key: &LockKey) -> Self {
        Self { key: Some(key.clone()), ..self }
    }

    pub(super) fn key(&self) -> Option<&LockKey> {
        self.key.as_ref()
    }

    /// Returns the name of the option.
    pub fn option(&self) -> &str {
        self.option
    }
}

/// The error of [`LockManagerConfig::from_env`](crate::LockManagerConfig::from_env). It names the environment
/// variable. It never contains a URL, because a URL may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The prefix of the environment variables is empty, so that every variable would be a setting.
    #[error("the prefix of the environment variables is empty")]
    EmptyPrefix,
    /// An environment variable begins with the prefix, but is no setting.
    #[error("the environment variable {variable} is unknown; known are {}; if the service has settings with this prefix, give its locks a longer one", .known.join(", "))]
    #[non_exhaustive]
    UnknownVariable {
        /// The name of the variable.
        variable: String,
        /// All variables that are settings.
        known: Vec<String>,
    },
    /// The value of an environment variable is not Unicode.
    #[error("the value of the environment variable {variable} is not Unicode")]
    #[non_exhaustive]
    NotUnicode {
        /// The name of the variable.
        variable: String,
    },
    /// The value of an environment variable has the wrong form, or is out of its range.
    #[error("the environment variable {variable} is invalid: {reason}")]
    #[non_exhaustive]
    InvalidValue {
        /// The name of the variable.
        variable: String,
        /// The value, and the allowed values.
        reason: InvalidOption,
    },
    /// A URL is invalid.
    #[error("URL {position} in the environment variable {variable} is invalid: {reason}")]
    #[non_exhaustive]
    InvalidUrl {
        /// The name of the variable.
        variable: String,
        /// The position of the URL in the value, counted from 1.
        position: usize,
        /// The mistake in the URL, and the allowed form.
        reason: String,
    },
}

/// The error of creating a [`LockManager`](crate::LockManager).
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No node was configured.
    #[cfg_attr(
        feature = "redis",
        error(
            "no node is configured; give at least one URL, such as redis://127.0.0.1:6379, or set the environment variable that ends in _URLS"
        )
    )]
    #[cfg_attr(not(feature = "redis"), error("no node is configured"))]
    NoNodes,
    /// A URL is invalid. The message does not repeat the URL, because it may contain a password.
    #[error("the URL of node {position} is invalid: {reason}")]
    #[non_exhaustive]
    InvalidUrl {
        /// The position of the URL among the nodes, counted from 1.
        position: usize,
        /// The mistake in the URL, and the allowed form.
        reason: String,
    },
    /// Two of the configured nodes are the same server, so its vote would count twice.
    #[error("{first} and {second} are the same server; each node must be an independent server")]
    #[non_exhaustive]
    SameServer {
        /// The name of the earlier node.
        first: Arc<str>,
        /// The name of the later node.
        second: Arc<str>,
    },
    /// Fewer nodes than a quorum could be connected to. The message has the reason of each node, and the question.
    #[error("connected to only {connected} of {} nodes, {quorum} are needed; {votes}{}", .votes.len(), end(.question.as_deref()))]
    #[non_exhaustive]
    Unavailable {
        /// The number of nodes with a connection.
        connected: usize,
        /// The number of nodes in a quorum.
        quorum: usize,
        /// The failure of each node. A connected node has the vote [`Agreed`](crate::Vote::Agreed).
        votes: Votes,
        /// Asks whether the stores run that were not reached, such as "is Redis running at 10.0.0.1:6379?". `None` if all
        /// were reached, or if their nodes name no [product](crate::node::Remote::product).
        question: Option<String>,
    },
    /// An option is out of its range.
    #[error(transparent)]
    InvalidOption(#[from] InvalidOption),
}

impl ConnectError {
    /// Creates an [`InvalidUrl`](Self::InvalidUrl) error, for tests of code that handles a `ConnectError`.
    pub fn invalid_url(position: usize, reason: impl Into<String>) -> Self {
        Self::InvalidUrl { position, reason: reason.into() }
    }

    /// Creates a [`SameServer`](Self::SameServer) error, for tests of code that handles a `ConnectError`.
    pub fn same_server(first: impl Into<Arc<str>>, second: impl Into<Arc<str>>) -> Self {
        Self::SameServer { first: first.into(), second: second.into() }
    }

    /// Creates an [`Unavailable`](Self::Unavailable) error without a question, for tests of code that handles a
    /// `ConnectError`.
    pub fn unavailable(connected: usize, quorum: usize, votes: Votes) -> Self {
        Self::Unavailable { connected, quorum, votes, question: None }
    }
}

/// Returns the end of a message, with the question if there is one.
fn end(question: Option<&str>) -> String {
    question.map(|question| format!("; {question}")).unwrap_or_default()
}
