//! Errors for mistakes in the settings of a layer or a policy.

use http::Method;
use redlock_core::{InvalidOption, TemplateError};

/// Describes a mistake in the settings of a [`LockLayer`](crate::LockLayer) or a
/// [`LockPolicy`](crate::LockPolicy).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The key template cannot be parsed.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// An option of the lock is out of its range, or conflicts with another option.
    #[error(transparent)]
    Option(#[from] InvalidOption),
    /// `contended_status` is not an error status, so a refused request would look like a success.
    #[error("contended_status is {0}, but must be a client or server error such as 409 or 423")]
    ContendedStatus(u16),
    /// The list of methods is empty, so that nothing would be locked.
    #[error("methods is an empty list; leave it out to lock every method")]
    NoMethods,
    /// axum does not accept the pattern of the route.
    #[error("the route cannot be used: {0}")]
    Route(String),
    /// The key template names a placeholder that the route lacks.
    #[error("the key has the placeholder {{{name}}}, but the route has {}", list(.available))]
    #[non_exhaustive]
    UnknownPlaceholder {
        /// The placeholder's name.
        name: String,
        /// The names of the route's parameters.
        available: Vec<String>,
    },
    /// The key template has the placeholder `{ext(name)}`, but the layer or the table has no function with
    /// this name.
    #[error(
        "the key has the placeholder {{ext({name})}}, but no function is registered for it; add \
         `.ext(\"{name}\", |extension: &MyExtension| ..)` to the layer or the table of policies"
    )]
    #[non_exhaustive]
    UnregisteredExtension {
        /// The name of the function.
        name: String,
    },
    /// Another policy exists for the same route and method.
    #[error("policy {other} is for the same route{}", for_method(.method.as_ref()))]
    #[non_exhaustive]
    Duplicate {
        /// The position of the other policy in the table, counted from 1.
        other: usize,
        /// A method that both policies lock; `None` if one of them locks every method.
        method: Option<Method>,
    },
    /// The application has no such route.
    #[error("the application has no such route")]
    NoSuchRoute,
}

/// Describes which policy of a [`LockPolicies`](crate::LockPolicies) table is wrong, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("lock policy {position} ({route}): {reason}")]
pub struct PolicyError {
    pub(crate) position: usize,
    pub(crate) route: String,
    #[source]
    pub(crate) reason: SetupError,
}

impl PolicyError {
    /// Returns the position of the policy in the table, counted from 1.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns the route of the policy.
    pub fn route(&self) -> &str {
        &self.route
    }

    /// Returns the mistake in the policy.
    pub fn reason(&self) -> &SetupError {
        &self.reason
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.iter().map(|name| format!("{{{name}}}")).collect::<Vec<_>>().join(", ")
    }
}

fn for_method(method: Option<&Method>) -> String {
    method.map_or_else(String::new, |method| format!(" and {method}"))
}
