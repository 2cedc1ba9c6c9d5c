//! Runs a handler under its lock, from the request's body to the end of the response.
//!
//! # Invariants
//!
//! **No work without the lock.** The work of a refused caller does not run: neither if the lock is contended, nor if it
//! is unavailable, misconfigured, or lost before the work begins. The client never decides how long a lock is held.
//!
//! Tests that fail without it, among others: `a_contended_request_is_refused_without_running_its_handler`,
//! `without_a_quorum_of_nodes_it_is_a_503_and_the_handler_does_not_run`,
//! `a_request_that_fits_a_policy_but_matched_another_route_is_refused`,
//! `a_detached_handler_does_not_begin_without_its_lock`, `a_slow_upload_holds_no_lock`,
//! `a_handler_does_not_begin_if_its_lock_is_lost_during_its_upload`,
//! `an_upload_has_one_lease_although_its_lock_is_renewed`,
//! `a_service_is_not_called_if_the_lock_is_lost_before_it_is_ready`.

pub(crate) mod body;
pub(crate) mod buffered;
pub(crate) mod end;
pub(crate) mod extraction;
mod future;
pub(crate) mod locked;
pub(crate) mod streamed;
pub(crate) mod unread;
mod wrap;

pub(crate) use future::BoxedResponse;
pub use future::ResponseFuture;
