//! Functions that return a future instead of being `async`, as under `#[async_trait]`.

use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use redlock_axum::{LockError, LockManager, MemoryNode, RunError, redis_lock};

use crate::support::{held_by_another, memory};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[derive(Clone)]
struct Shop {
    locks: LockManager,
    node: MemoryNode,
    stock: u32,
}

impl Shop {
    async fn open() -> Self {
        let (locks, node) = memory().await;
        Self { locks, node, stock: 5 }
    }
}

fn is_send<T: Send>(value: T) -> T {
    value
}

#[async_trait]
trait Reserve {
    async fn reserve(&self, id: u64, sku: &str) -> Result<u32, LockError>;
    async fn refill(&mut self, count: u32) -> Result<&u32, LockError>;
    async fn close(self: Box<Self>) -> Result<u32, LockError>;

    fn locks(&self) -> &LockManager;

    #[redis_lock(key = "provided:{_id}", manager = self.locks())]
    async fn provided(&self, _id: u64) -> Result<bool, LockError> {
        Ok(self.locks().lock("provided:7").try_acquire().await.is_err())
    }
}

#[async_trait]
impl Reserve for Shop {
    #[redis_lock(key = "order:{id}:{sku}", manager = self.locks)]
    async fn reserve(&self, id: u64, sku: &str) -> Result<u32, LockError> {
        assert!(self.node.time_to_live(&format!("order:{id}:{sku}")).is_some());
        if id == 0 {
            return Ok(0);
        }
        Ok(self.stock)
    }

    #[redis_lock(key = "stock", manager = self.locks)]
    async fn refill(&mut self, mut count: u32) -> Result<&u32, LockError> {
        assert_eq!(self.node.len(), 1);
        count *= 2;
        self.stock += count;
        Ok(&self.stock)
    }

    #[redis_lock(key = "stock", manager = self.locks)]
    async fn close(mut self: Box<Self>) -> Result<u32, LockError> {
        assert_eq!(self.node.len(), 1);
        self.stock += 1;
        Ok(self.stock)
    }

    fn locks(&self) -> &LockManager {
        &self.locks
    }
}

#[tokio::test]
async fn methods_under_async_trait_are_locked() {
    let mut shop = Shop::open().await;
    assert_eq!(is_send(shop.reserve(7, "shoe")).await.unwrap(), 5);
    assert_eq!(shop.reserve(0, "shoe").await.unwrap(), 0);
    assert!(shop.provided(7).await.unwrap());
    assert_eq!(*shop.refill(2).await.unwrap(), 9);
    assert!(shop.node.is_empty());
    let _other = held_by_another(&shop.node, "order:7:shoe").await;
    let dynamic: Arc<dyn Reserve + Send + Sync> = Arc::new(shop.clone());
    assert!(dynamic.reserve(7, "shoe").await.unwrap_err().is_contended());
    assert_eq!(Box::new(Shop::open().await).close().await.unwrap(), 6);
}

trait Futures {
    fn boxed(&mut self, early: bool) -> BoxFuture<'_, Result<u32, LockError>>;
    fn opaque(&self, id: u64) -> impl Future<Output = Result<usize, LockError>> + Send;
    fn aborted(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Result<usize, RunError>>>>;
}

impl Futures for Shop {
    #[redis_lock(key = "stock", manager = self.locks)]
    fn boxed(&mut self, early: bool) -> BoxFuture<'_, Result<u32, LockError>> {
        assert_eq!(self.node.len(), 1);
        if early {
            return Box::pin(async { Ok(0) });
        }
        self.stock += 1;
        Box::pin(async move {
            assert_eq!(self.node.len(), 1);
            self.stock += 1;
            Ok(self.stock)
        })
    }

    #[redis_lock(key = "order:{id}", manager = self.locks)]
    fn opaque(&self, id: u64) -> impl Future<Output = Result<usize, LockError>> + Send {
        let before = self.node.len();
        async move {
            tokio::task::yield_now().await;
            Ok(before + self.node.len())
        }
    }

    #[redis_lock(key = "stock", manager = self.locks, on_lost = abort)]
    fn aborted(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Result<usize, RunError>>>> {
        let before = self.node.len();
        Box::pin(async move { Ok(before + self.node.len()) })
    }
}

#[tokio::test]
async fn code_before_the_returned_future_runs_under_the_lock() {
    let mut shop = Shop::open().await;
    assert_eq!(is_send(shop.boxed(false)).await.unwrap(), 7);
    assert_eq!(shop.boxed(true).await.unwrap(), 0);
    assert_eq!(is_send(shop.opaque(7)).await.unwrap(), 2);
    assert_eq!(Arc::new(shop.clone()).aborted().await.unwrap(), 2);
    assert!(shop.node.is_empty());
}

#[tokio::test]
async fn no_code_of_the_function_runs_without_the_lock() {
    #[redis_lock(key = "stock", manager = locks)]
    fn boxed(locks: &LockManager) -> BoxFuture<'_, Result<(), LockError>> {
        let _ = locks;
        panic!("the body ran without the lock");
    }

    #[redis_lock(key = "stock", manager = locks)]
    fn opaque(locks: LockManager) -> impl Future<Output = Result<bool, LockError>> {
        let held = locks.lock("stock").try_acquire();
        async { Ok(held.await.is_err()) }
    }

    let (locks, node) = memory().await;
    assert!(opaque(locks.clone()).await.unwrap());
    let _other = held_by_another(&node, "stock").await;
    assert!(boxed(&locks).await.unwrap_err().is_contended());
    assert!(opaque(locks).await.unwrap_err().is_contended());
}
