//! Locks for the tests of an application. Requires the feature `test-util`.
//!
//! [`TestLocks`] contains a lock manager, its nodes and its clock. A test advances the
//! [clock](TestClock), and leases, waits and renewals follow the clock. A test can also make a
//! [node](TestNode) fail, freeze, answer slowly or forget its locks. The application then responds as it
//! would with such servers: with 409, with 503, or as after the loss of a lock. The tests need no server
//! and no real time.
//!
//! Enable the feature for tests only. The [guide](crate::guide::testing) has the lines for `Cargo.toml`, and
//! a table of situations. The examples use `tower` to call the router without a socket.
//!
//! # Examples
//!
//! Another copy of the service holds the lock. The request is answered with 409, and with 200 after the
//! lock is released:
//!
//! ```
//! use axum::body::Body;
//! use axum::extract::Path;
//! use axum::routing::post;
//! use axum::Router;
//! use http::Request;
//! use redlock_axum::test_util::TestLocks;
//! use redlock_axum::{LockManager, redis_lock};
//! use tower::ServiceExt;
//!
//! #[redis_lock(key = "order:{id}", expire = 5)]
//! async fn pay(Path(id): Path<u64>) -> String {
//!     format!("order {id} is paid")
//! }
//!
//! fn app(locks: LockManager) -> Router {
//!     Router::new().route("/orders/{id}/pay", post(pay)).with_state(locks)
//! }
//!
//! fn payment() -> Request<Body> {
//!     Request::post("/orders/42/pay").body(Body::empty()).unwrap()
//! }
//!
//! # /*
//! #[tokio::test]
//! # */
//! # #[tokio::main(flavor = "current_thread")]
//! async fn a_payment_is_refused_while_another_copy_processes_the_order() {
//!     let test = TestLocks::new(1);
//!     let app = app(test.manager());
//!
//!     let other_copy = test.builder().connect().await.unwrap();
//!     let guard = other_copy.lock("order:42").acquire().await.unwrap();
//!     let response = app.clone().oneshot(payment()).await.unwrap();
//!     assert_eq!(response.status(), 409);
//!
//!     guard.release().await.unwrap();
//!     let response = app.oneshot(payment()).await.unwrap();
//!     assert_eq!(response.status(), 200);
//! }
//! # a_payment_is_refused_while_another_copy_processes_the_order();
//! ```
//!
//! Two of three nodes are down. The handler does not run, and the request is answered with 503:
//!
//! ```
//! use axum::body::Body;
//! use axum::routing::post;
//! use axum::Router;
//! use http::Request;
//! use redlock_axum::LockLayer;
//! use redlock_axum::test_util::TestLocks;
//! use tower::ServiceExt;
//!
//! # /*
//! #[tokio::test]
//! # */
//! # #[tokio::main(flavor = "current_thread")]
//! async fn no_order_is_paid_while_most_nodes_are_gone() {
//!     let test = TestLocks::new(3);
//!     let app: Router = Router::new()
//!         .route("/orders/{id}/pay", post(|| async {}))
//!         .route_layer(LockLayer::new(&test.manager(), "order:{id:u64}").unwrap());
//!     let pay = || Request::post("/orders/42/pay").body(Body::empty()).unwrap();
//!
//!     test.nodes()[0].fail(); // refuses every operation
//!     assert_eq!(app.clone().oneshot(pay()).await.unwrap().status(), 200);
//!
//!     test.nodes()[1].freeze(); // never answers
//!     let response = app.clone().oneshot(pay()).await.unwrap();
//!     assert_eq!(response.status(), 503);
//!     assert_eq!(response.headers()["retry-after"], "1");
//!
//!     test.nodes()[0].recover();
//!     assert_eq!(app.oneshot(pay()).await.unwrap().status(), 200);
//! }
//! # no_order_is_paid_while_most_nodes_are_gone();
//! ```
//!
//! The lock is lost while the handler runs. The handler is stopped, and the request is answered with 503:
//!
//! ```
//! use std::time::Duration;
//!
//! use axum::body::Body;
//! use axum::routing::post;
//! use axum::Router;
//! use http::Request;
//! use redlock_axum::redis_lock;
//! use redlock_axum::test_util::TestLocks;
//! use tower::ServiceExt;
//!
//! #[redis_lock(key = "report", expire = 30, renew, on_lost = abort)]
//! async fn report() -> &'static str {
//!     tokio::time::sleep(Duration::from_secs(600)).await; // long work
//!     "done"
//! }
//!
//! # /*
//! #[tokio::test]
//! # */
//! # #[tokio::main(flavor = "current_thread")]
//! async fn a_report_is_stopped_when_its_lock_is_lost() {
//!     let test = TestLocks::new(1);
//!     let app: Router =
//!         Router::new().route("/report", post(report)).with_state(test.manager());
//!
//!     let request = Request::post("/report").body(Body::empty()).unwrap();
//!     let response = tokio::spawn(app.oneshot(request));
//!     test.clock().advance(Duration::from_secs(300)).await; // half of the work is done
//!     test.nodes()[0].forget();
//!     assert_eq!(response.await.unwrap().unwrap().status(), 503);
//! }
//! # a_report_is_stopped_when_its_lock_is_lost();
//! ```

#[cfg(feature = "idempotency")]
#[doc(inline)]
pub use crate::idempotency::contract as answers_tests;
#[doc(inline)]
pub use redlock_core::test_util::{TestClock, TestLocks, TestNode};
