//! Distributed locks for axum.

mod body;
mod error;
mod future;
mod layer;
mod locked;
mod locks;
mod methods;
mod options;
mod policy;
mod rejection;
mod route_key;
mod setup;
mod terms;

pub use error::{PolicyError, SetupError};
pub use future::ResponseFuture;
pub use layer::{LockLayer, LockService};
pub use options::HoldUntil;
pub use policy::{LockPolicies, LockPolicy, PolicyService};
#[doc(inline)]
pub use redlock_core::*;
pub use rejection::{LockRejection, RejectionKind};
