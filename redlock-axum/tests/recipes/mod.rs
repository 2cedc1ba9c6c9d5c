//! The recipes of the guide. A file begins with the code of the recipe, and then tests it.

mod at_most_n_holders;
mod cached_catalogue;
mod demanded_lock;
mod idempotent_payment;
mod job;
mod leader;
mod middleware;
mod readiness;
mod several_locks;
mod transaction;
mod two_managers;
