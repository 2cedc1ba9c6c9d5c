//! The parameters of a locked function are dropped before the release of its lock. Dropping a parameter may end work,
//! such as a transaction.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{FromRef, FromRequestParts, State};
use axum::handler::Handler;
use axum::http::request::Parts;
use axum::routing::get as on_get;
use redlock_axum::{LockError, LockManager, LockRejection, MemoryNode, redis_lock};
use tokio::task::yield_now;

use crate::support::{get, memory};

/// The drops of one call, each with the number of locks that were held.
#[derive(Clone)]
struct Drops {
    locks: LockManager,
    node: MemoryNode,
    seen: Arc<Mutex<Vec<(String, usize)>>>,
}

impl Drops {
    async fn none() -> Self {
        let (locks, node) = memory().await;
        Self { locks, node, seen: Arc::default() }
    }

    fn part(&self, name: impl Into<String>) -> Part {
        Part { name: name.into(), drops: self.clone() }
    }

    fn pair<const NAME: char>(&self) -> Pair<NAME> {
        Pair(self.part(format!("{NAME}0")), self.part(format!("{NAME}1")))
    }

    /// Returns the names in the order of the drops. Panics unless this number of locks was held during each drop.
    fn under(&self, held: usize) -> Vec<String> {
        let seen = std::mem::take(&mut *self.seen.lock().unwrap());
        assert!(seen.iter().all(|(_, keys)| *keys == held), "not under {held} locks: {seen:?}");
        assert!(self.node.is_empty());
        seen.into_iter().map(|(name, _)| name).collect()
    }
}

impl FromRef<Drops> for LockManager {
    fn from_ref(drops: &Drops) -> Self {
        drops.locks.clone()
    }
}

struct Part {
    name: String,
    drops: Drops,
}

impl Part {
    fn is_used(&self) -> bool {
        !self.name.is_empty()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let seen = (self.name.clone(), self.drops.node.len());
        self.drops.seen.lock().unwrap().push(seen);
    }
}

/// A parameter whose pattern may bind one of its two fields. It has no `Drop` of its own, so that the fields can be
/// moved apart.
struct Pair<const NAME: char>(Part, #[expect(dead_code, reason = "it is dropped")] Part);

impl<const NAME: char> FromRequestParts<Drops> for Pair<NAME> {
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, drops: &Drops) -> Result<Self, Infallible> {
        Ok(drops.pair())
    }
}

/// Writes an `async fn` with parameters of all kinds. Its body uses one field of them. The attribute can use the two
/// names that the caller of the macro chooses.
macro_rules! work {
    ($(#[$attribute:meta])* async fn $name:ident, $first:ident, $drops:ident) => {
        $(#[$attribute])*
        async fn $name(
            _named: Pair<'n'>,
            _: Pair<'a'>,
            Pair($first, _): Pair<'b'>,
            _whole: Pair<'c'>,
            State($drops): State<Drops>,
        ) -> Result<(), LockRejection> {
            let local = $drops.part("local");
            yield_now().await;
            assert!(local.is_used() && $first.is_used());
            Ok(())
        }
    };
}

work!(async fn plain, first, drops);

work!(
    #[redis_lock(key = "work")]
    async fn handler, first, drops
);

work!(
    #[redis_lock(key = "work", on_lost = abort)]
    async fn abortable_handler, first, drops
);

work!(
    #[redis_lock(key("work:{}", first.name))]
    async fn handler_with_key, first, drops
);

work!(
    #[redis_lock(key = "work", manager = drops.locks)]
    async fn function, first, drops
);

work!(
    #[redis_lock(key = "work", manager = drops.locks, on_lost = abort)]
    async fn abortable_function, first, drops
);

/// Calls a function through axum, and returns the order of the drops.
async fn order<H: Handler<T, Drops>, T: 'static>(function: H, locks: usize) -> Vec<String> {
    let drops = Drops::none().await;
    let app = Router::new().route("/", on_get(function)).with_state(drops.clone());
    assert_eq!(get(&app, "/").await.status, 200);
    drops.under(locks)
}

#[tokio::test]
async fn parameters_are_dropped_under_the_lock_and_in_the_order_of_a_plain_function() {
    let expected = order(plain, 0).await;
    assert_eq!(expected.len(), 9, "{expected:?}");
    assert_eq!(order(handler, 1).await, expected, "handler");
    assert_eq!(order(abortable_handler, 1).await, expected, "handler with on_lost");
    assert_eq!(order(handler_with_key, 1).await, expected, "handler with a parameter in the key");
    assert_eq!(order(function, 1).await, expected, "function");
    assert_eq!(order(abortable_function, 1).await, expected, "function with on_lost");
}

/// `self` has no `Drop` of its own, and the body uses one of its fields. The other field is dropped under the lock, too.
#[tokio::test]
async fn self_is_dropped_under_the_lock_as_a_whole() {
    struct Work(Part, #[expect(dead_code, reason = "it is dropped")] Part, LockManager);

    impl Work {
        #[redis_lock(key = "work", manager = self.2)]
        async fn method(
            self,
            _: Pair<'a'>,
            Pair(first, _): Pair<'b'>,
            _whole: Pair<'c'>,
        ) -> Result<(), LockError> {
            yield_now().await;
            assert!(self.0.is_used() && first.is_used());
            Ok(())
        }

        #[redis_lock(key = "work", manager = self.2)]
        fn returned_future(
            self,
            _: Pair<'a'>,
            Pair(first, _): Pair<'b'>,
            _whole: Pair<'c'>,
        ) -> impl Future<Output = Result<(), LockError>> {
            let one = self.0;
            async move {
                yield_now().await;
                assert!(one.is_used() && first.is_used());
                Ok(())
            }
        }
    }

    let drops = Drops::none().await;
    let work = || Work(drops.part("s0"), drops.part("s1"), drops.locks.clone());
    let all = ["a0", "a1", "b0", "b1", "c0", "c1", "s0", "s1"];
    work().method(drops.pair(), drops.pair(), drops.pair()).await.unwrap();
    let mut method = drops.under(1);
    method.sort_unstable();
    assert_eq!(method, all);
    work().returned_future(drops.pair(), drops.pair(), drops.pair()).await.unwrap();
    let mut returned = drops.under(1);
    returned.sort_unstable();
    assert_eq!(returned, all);
}
