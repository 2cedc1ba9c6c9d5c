//! Methods with several attributes: each contains the ones below it.

use axum::extract::{Path, State};
use axum::routing::get as on_get;
use axum::{Extension, Router};
use redlock_axum::{HeldLock, LockError, LockManager, LockRejection, MemoryNode, redis_lock};
use redlock_logs::Logs;

use crate::support::{get, held_by_another, installed, memory};

struct Shop {
    locks: LockManager,
    node: MemoryNode,
}

trait Move {
    async fn transfer(&self, from: &str, pair: (&str, u8)) -> Result<u8, LockError>;
    async fn count(&self) -> Result<(), LockError>;
}

/// Logs the number of held locks, and returns the key.
fn logged<'a>(node: &MemoryNode, key: &'a str) -> &'a str {
    tracing::info!(key, held = node.len(), "acquiring");
    key
}

impl Move for Shop {
    #[redis_lock(key = "stock:{from}", manager = self.locks)]
    #[redis_lock(key = "stock:{to}", manager = self.locks)]
    #[redis_lock(key = "count:{count}", manager = self.locks)]
    async fn transfer(&self, from: &str, (to, mut count): (&str, u8)) -> Result<u8, LockError> {
        for key in [format!("stock:{from}"), format!("stock:{to}"), format!("count:{count}")] {
            assert!(self.node.time_to_live(&key).is_some(), "{key}");
        }
        count += 1;
        Ok(count)
    }

    #[redis_lock(key = logged(&self.node, "outer"), manager = self.locks)]
    #[tracing::instrument(skip(self))]
    #[redis_lock(key = logged(&self.node, "inner"), manager = self.locks)]
    async fn count(&self) -> Result<(), LockError> {
        tracing::info!(held = self.node.len(), "counting");
        Ok(())
    }
}

#[tokio::test]
async fn the_locks_of_a_method_are_acquired_from_top_to_bottom() {
    let (locks, node) = memory().await;
    let shop = Shop { locks, node: node.clone() };
    assert_eq!(shop.transfer("a", ("b", 1)).await.unwrap(), 2);
    assert!(node.is_empty());

    let keys = ["stock:a", "stock:b", "count:1"];
    let mut others = Vec::new();
    for key in keys {
        others.push(held_by_another(&node, key).await);
    }
    for (key, other) in keys.into_iter().zip(others) {
        match shop.transfer("a", ("b", 1)).await {
            Err(LockError::Contended { key: refused, .. }) => assert_eq!(refused.as_str(), key),
            other => panic!("{key}: {other:?}"),
        }
        other.release().await.unwrap();
    }
    assert_eq!(shop.transfer("a", ("b", 1)).await.unwrap(), 2);
}

/// `#[instrument]` below one lock and above another: its span contains the second acquisition, but not
/// the first.
#[tokio::test]
async fn the_span_of_a_method_contains_what_is_below_it() {
    let logs = Logs::collect();
    let (locks, node) = memory().await;
    let shop = Shop { locks, node: node.clone() };
    shop.count().await.unwrap();
    let lines = logs.lines();
    let text = lines.join("\n");
    let in_span = |text: &str| {
        let line =
            lines.iter().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{lines:?}"));
        line.contains("count: ")
    };
    assert!(!in_span(r#"acquiring key="outer" held=0"#), "{text}");
    assert!(in_span(r#"acquiring key="inner" held=1"#), "{text}");
    assert!(in_span("counting held=2"), "{text}");
}

#[tokio::test]
async fn the_attributes_of_a_method_under_async_trait_have_the_same_order() {
    #[async_trait::async_trait]
    trait Audit {
        async fn audit(&self, id: u8) -> Result<usize, LockError>;
    }

    #[async_trait::async_trait]
    impl Audit for Shop {
        #[redis_lock(key = logged(&self.node, "first audit"), manager = self.locks)]
        #[tracing::instrument(skip(self))]
        #[redis_lock(key("second audit:{id}"), manager = self.locks)]
        async fn audit(&self, id: u8) -> Result<usize, LockError> {
            tracing::info!(id, held = self.node.len(), "auditing");
            Ok(self.node.len())
        }
    }

    let logs = Logs::collect();
    let (locks, node) = memory().await;
    assert_eq!(Shop { locks, node }.audit(7).await.unwrap(), 2);
    let lines = logs.lines();
    let line = |text: &str| lines.iter().find(|line| line.contains(text)).unwrap();
    assert!(!line(r#"acquiring key="first audit" held=0"#).contains("audit{"), "{lines:?}");
    assert!(line("auditing id=7 held=2").contains("audit{id=7}: "), "{lines:?}");
}

/// A handler that names `Self`: the first lock is the handler's, and its code stays in place.
#[tokio::test]
async fn a_handler_in_an_impl_may_take_two_locks() {
    struct Orders;

    impl Orders {
        const NAME: &'static str = "order";

        #[redis_lock(key = "outer:{id}", installed)]
        #[redis_lock(key = "inner:{id}", manager = locks)]
        async fn pay(
            Path(id): Path<u64>,
            State(node): State<MemoryNode>,
            Extension(locks): Extension<LockManager>,
            lock: HeldLock,
        ) -> Result<String, LockRejection> {
            assert!(node.time_to_live(&format!("inner:{id}")).is_some());
            Ok(format!("{} {} {}", Self::NAME, lock.keys()[0], node.len()))
        }
    }

    let (locks, node) = memory().await;
    let router = Router::new().route("/{id}", on_get(Orders::pay)).with_state(node.clone());
    assert_eq!(get(&installed(router, &locks), "/7").await.body, "order outer:7 2");
    assert!(node.is_empty());
}
