//! Methods, and functions that name `Self`: their code stays in place.

use std::fmt::Display;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get as on_get;
use redlock_axum::{LockError, LockManager, MemoryNode, RunError, redis_lock};

use crate::support::{get, held_by_another, installed, memory};

trait Stock<'t> {
    type Error;
    const FIRST: u32;

    async fn reserve(&self, sku: &str) -> Result<&'t str, Self::Error>;
    fn refill(&mut self, counts: (u32, u32))
    -> impl Future<Output = Result<u32, LockError>> + Send;
    async fn close<T: Display>(self, reason: T) -> Result<String, LockError>;
    async fn count(self: Arc<Self>) -> Result<usize, LockError>;
    async fn open(locks: LockManager, node: &'t MemoryNode) -> Result<Self, LockError>
    where
        Self: Sized;
}

struct Shelf<'t, const N: u32> {
    locks: LockManager,
    node: &'t MemoryNode,
    stock: u32,
}

impl<'t, const N: u32> Stock<'t> for Shelf<'t, N> {
    type Error = String;
    const FIRST: u32 = N;

    #[redis_lock(key = "stock:{sku}", manager = self.locks, error = describe)]
    async fn reserve(&self, sku: &str) -> Result<&'t str, Self::Error> {
        assert!(self.node.time_to_live(&format!("stock:{sku}")).is_some());
        let number: u32 = sku.parse().map_err(|_| "not a number")?;
        if number > self.stock {
            return Err("sold out".into());
        }
        Ok("reserved")
    }

    #[redis_lock(key = "{more}", manager = self.locks)]
    async fn refill(&mut self, (mut count, more): (u32, u32)) -> Result<u32, LockError> {
        assert_eq!(self.node.len(), 1);
        count += more;
        tokio::task::yield_now().await;
        self.stock += count;
        Ok(self.stock)
    }

    #[redis_lock(key("{}", self.stock), manager = self.locks)]
    async fn close<T: Display>(mut self, reason: T) -> Result<String, LockError> {
        assert_eq!(self.node.len(), 1);
        self.stock += Self::FIRST;
        Ok(format!("{} {reason}", self.stock))
    }

    #[redis_lock(key = "stock", manager = self.locks)]
    async fn count(self: Arc<Self>) -> Result<usize, LockError> {
        Ok(self.node.len())
    }

    #[redis_lock(key = "stock", manager = locks)]
    async fn open(locks: LockManager, node: &'t MemoryNode) -> Result<Self, LockError> {
        assert_eq!(node.len(), 1);
        Ok(Self { locks, node, stock: 0 })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the attribute passes a value")]
fn describe(error: LockError) -> String {
    error.to_string()
}

#[tokio::test]
async fn the_methods_of_a_trait_implementation_are_locked() {
    let (locks, node) = memory().await;
    let mut shelf: Shelf<'_, 7> = Shelf { locks: locks.clone(), node: &node, stock: 1 };
    assert_eq!(shelf.reserve("1").await.unwrap(), "reserved");
    assert_eq!(shelf.reserve("2").await.unwrap_err(), "sold out");
    assert_eq!(shelf.reserve("x").await.unwrap_err(), "not a number");
    assert_eq!(shelf.refill((2, 3)).await.unwrap(), 6);
    assert_eq!(shelf.close("now").await.unwrap(), "13 now");
    let shelf = Shelf::<'_, 7>::open(locks, &node).await.unwrap();
    assert_eq!(Arc::new(shelf).count().await.unwrap(), 1);
    assert!(node.is_empty());
}

#[tokio::test]
async fn a_method_of_a_trait_implementation_does_not_run_while_another_holder_has_the_lock() {
    struct Job(LockManager);

    trait Run {
        async fn run(&self) -> Result<(), LockError>;
        async fn skipped(&self, value: u8) -> Result<Option<u8>, LockError>;
    }

    impl Run for Job {
        #[redis_lock(key = "job", manager = self.0)]
        async fn run(&self) -> Result<(), LockError> {
            unreachable!("the body ran without the lock");
        }

        #[redis_lock(key = "job", manager = self.0, skip = Some(*value))]
        async fn skipped(&self, value: u8) -> Result<Option<u8>, LockError> {
            unreachable!("the body ran without the lock");
        }
    }

    let (locks, node) = memory().await;
    let _other = held_by_another(&node, "job").await;
    assert!(Job(locks.clone()).run().await.unwrap_err().is_contended());
    assert_eq!(Job(locks).skipped(7).await.unwrap(), Some(7));
}

#[tokio::test]
async fn a_method_of_a_trait_implementation_stops_when_its_lock_is_lost() {
    struct Job {
        locks: LockManager,
        _dropped: Arc<()>,
    }

    trait Run {
        async fn run(self) -> Result<(), RunError>;
    }

    impl Run for Job {
        #[redis_lock(key = "job", expire = "400ms", on_lost = abort, manager = self.locks)]
        async fn run(self) -> Result<(), RunError> {
            pending().await
        }
    }

    let (locks, node) = memory().await;
    let dropped = Arc::new(());
    let error = Job { locks, _dropped: Arc::clone(&dropped) }.run().await.unwrap_err();
    assert!(matches!(error, RunError::Lost(_)), "{error:?}");
    assert_eq!((Arc::strong_count(&dropped), node.len()), (1, 0));
}

/// Dropping a parameter may end work, such as a transaction.
#[tokio::test]
async fn the_parameters_of_a_method_are_dropped_under_the_lock() {
    struct Work<'a>(&'a MemoryNode, &'a AtomicUsize);

    impl Drop for Work<'_> {
        fn drop(&mut self) {
            self.1.fetch_add(self.0.len(), Ordering::Relaxed);
        }
    }

    impl<'a> Work<'a> {
        #[redis_lock(key = "work", manager = locks)]
        async fn run(
            self,
            _unused: Work<'a>,
            _: Work<'a>,
            (_one, _): (Work<'a>, Work<'a>),
            locks: &LockManager,
        ) -> Result<(), LockError> {
            Ok(())
        }
    }

    let (locks, node) = memory().await;
    let dropped_under_the_lock = AtomicUsize::new(0);
    let work = || Work(&node, &dropped_under_the_lock);
    work().run(work(), work(), (work(), work()), &locks).await.unwrap();
    assert_eq!(dropped_under_the_lock.into_inner(), 5);
}

/// Without the return type of the function, the compiler could not infer the types in these bodies.
#[tokio::test]
async fn the_body_of_a_method_knows_its_return_type() {
    struct Types(LockManager);

    impl Types {
        #[redis_lock(key = "a", manager = self.0)]
        async fn coerces(&self) -> Result<Box<dyn Display + Send>, LockError> {
            if self.0.lock("a").try_acquire().await.is_ok() {
                return Ok(Box::new("free"));
            }
            Ok(Box::new(1))
        }

        #[redis_lock(key = "a", manager = self.0)]
        async fn opaque(
            &self,
        ) -> Result<impl Display + use<>, Box<dyn std::error::Error + Send + Sync>> {
            let number: u8 = "7".parse()?;
            Ok(number)
        }

        #[redis_lock(key = "a", manager = self.0)]
        async fn diverges(&self) -> Result<u8, LockError> {
            loop {
                if let Ok(number) = "7".parse() {
                    return Ok(number);
                }
            }
        }
    }

    let (locks, _) = memory().await;
    let types = Types(locks);
    assert_eq!(types.coerces().await.unwrap().to_string(), "1");
    assert_eq!(types.opaque().await.unwrap().to_string(), "7");
    assert_eq!(types.diverges().await.unwrap(), 7);
}

#[tokio::test]
async fn a_handler_may_be_an_associated_function() {
    struct Orders;

    impl Orders {
        const NAME: &'static str = "order";

        #[redis_lock(key = "order:{id}", installed)]
        async fn pay(Path(mut id): Path<u64>, State(node): State<MemoryNode>) -> String {
            assert!(node.time_to_live("order:7").is_some());
            id += 1;
            format!("{} {id}", Self::NAME)
        }

        #[redis_lock(key = Self::NAME, installed)]
        async fn none() -> &'static str {
            "none"
        }
    }

    let (locks, node) = memory().await;
    let router = Router::new()
        .route("/pay/{id}", on_get(Orders::pay))
        .route("/none", on_get(Orders::none))
        .with_state(node);
    let app = installed(router, &locks);
    assert_eq!(get(&app, "/pay/7").await.body, "order 8");
    assert_eq!(get(&app, "/none").await.body, "none");
}
