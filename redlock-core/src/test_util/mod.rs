//! Locks for the tests of an application: behind the feature `test-util`.
//!
//! With axum, read `redlock_axum::test_util`, which re-exports this module and has examples of handlers.
//!
//! [`TestLocks`] is a lock manager with its nodes and its clock. The test moves the [clock](TestClock),
//! and leases, waits and renewals follow. The test makes a [node](TestNode) fail, freeze, slow down or
//! forget its locks, and the application gets the same errors as from real servers. No server has to be
//! installed, and no test waits in real time.
//!
//! Enable the feature for tests only:
//!
//! ```toml
//! [dev-dependencies]
//! redlock-core = { version = "0.1", features = ["test-util"] }
//! ```
//!
//! # Examples
//!
//! A wait that succeeds when the lease of another holder runs out:
//!
//! ```
//! use std::time::Duration;
//!
//! use redlock_core::test_util::TestLocks;
//!
//! # /*
//! #[tokio::test]
//! # */
//! # #[tokio::main(flavor = "current_thread")]
//! async fn a_crashed_holder_blocks_no_longer_than_its_lease() {
//!     let test = TestLocks::new(1);
//!     let lease = Duration::from_secs(30);
//!     let crashed = test.manager().lock("order:42").expire(lease).acquire().await.unwrap();
//!     crashed.keep_until_expiry();
//!
//!     let request = test.manager().lock("order:42").wait_time(Duration::from_secs(60));
//!     let guard = request.acquire().await.unwrap();
//!     assert!(guard.is_valid());
//! }
//! # a_crashed_holder_blocks_no_longer_than_its_lease();
//! ```
//!
//! A lock that is lost, because a majority of the nodes forgets it:
//!
//! ```
//! use std::time::Duration;
//!
//! use redlock_core::test_util::TestLocks;
//!
//! # /*
//! #[tokio::test]
//! # */
//! # #[tokio::main(flavor = "current_thread")]
//! async fn a_lock_that_most_nodes_have_forgotten_is_lost() {
//!     let test = TestLocks::new(3);
//!     let request = test.manager().lock("report").expire(Duration::from_secs(30)).renew(true);
//!     let guard = request.acquire().await.unwrap();
//!
//!     test.nodes()[0].forget();
//!     test.clock().advance(Duration::from_secs(60)).await;
//!     assert!(guard.is_valid());
//!
//!     test.nodes()[1].forget();
//!     test.nodes()[2].forget();
//!     guard.lost().await; // at the next renewal
//!     assert!(!guard.is_valid());
//! }
//! # a_lock_that_most_nodes_have_forgotten_is_lost();
//! ```
//!
//! An outage, which [`LockManager::is_available`](crate::LockManager::is_available) and
//! [`wait_available`](crate::LockManager::wait_available) report too:
//!
//! ```
//! use redlock_core::LockError;
//! use redlock_core::test_util::TestLocks;
//!
//! # /*
//! #[tokio::test]
//! # */
//! # #[tokio::main(flavor = "current_thread")]
//! async fn without_a_majority_no_lock_is_acquired() {
//!     let test = TestLocks::new(3);
//!     let locks = test.manager();
//!     test.nodes()[0].fail();
//!     assert!(locks.is_available());
//!     test.nodes()[1].freeze();
//!     assert!(!locks.is_available());
//!     let error = locks.lock("report").acquire().await.unwrap_err();
//!     assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
//!
//!     test.nodes()[1].recover();
//!     let guard = locks.lock("report").acquire().await.unwrap();
//!     assert!(guard.is_valid());
//! }
//! # without_a_majority_no_lock_is_acquired();
//! ```

mod clock;
mod locks;
mod node;
pub mod node_tests;
#[cfg(test)]
mod tests;

pub use clock::TestClock;
pub use locks::TestLocks;
pub use node::TestNode;
