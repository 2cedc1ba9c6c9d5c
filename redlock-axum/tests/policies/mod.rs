//! `LockPolicies`: the choice of the policy for a request, and the detection of mistakes.

#[cfg(feature = "serde")]
mod configuration;
mod mistakes;
mod options;
mod request_values;
mod routes;
mod shared_mistakes;

use redlock_axum::{LockPolicies, LockPolicy};

fn policies(policies: impl IntoIterator<Item = LockPolicy>) -> LockPolicies {
    LockPolicies::new(policies).unwrap()
}

fn orders() -> LockPolicy {
    LockPolicy::new("/orders/{id}", "order:{id:u64}")
}

async fn ok() {}
