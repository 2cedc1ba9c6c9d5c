//! The error of a layer whose policies cannot be used.

use std::error::Error;

/// The mistake in a policy, for [`SetupError`].
pub(crate) type PolicyMistake = Box<dyn Error + Send + Sync>;

/// The error of a [`LockLayer`](crate::LockLayer) one of whose policies is wrong, contradicts another policy, or does
/// not fit the manager.
///
/// The message names the policy, the value and the allowed values, such as `lock policy 2 (/stock/{sku}): expire is 5ms,
/// but must be from 10 ms to 7 days`.
#[derive(Debug, thiserror::Error)]
#[error("lock policy {position} ({policy}): {mistake}")]
pub struct SetupError {
    pub(crate) position: usize,
    pub(crate) policy: String,
    pub(crate) mistake: PolicyMistake,
}

impl SetupError {
    /// Returns the position of the policy in the table, counted from 1.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns the route of the policy or, if it has none, its key template.
    pub fn policy(&self) -> &str {
        &self.policy
    }
}
