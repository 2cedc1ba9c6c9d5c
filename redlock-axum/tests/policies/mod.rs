//! `LockLayer::table`: the choice of the policy for a request, and the detection of mistakes.

#[cfg(feature = "serde")]
mod configuration;
mod manager;
mod mistakes;
mod options;
mod request_values;
mod routes;
mod shared_mistakes;

use redlock_axum::LockPolicy;

fn orders() -> LockPolicy {
    LockPolicy::new("order:{id:u64}").route("/orders/{id}")
}

async fn ok() {}
