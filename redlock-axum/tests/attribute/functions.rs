//! Functions and methods with `manager = ..`.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get as on_get;
use axum::{Extension, Router};
use redlock_axum::{HeldLock, LockError, LockManager, LockRejection, MemoryNode, redis_lock};

use crate::front_ends::stage::Stage;
use crate::support::{app, eventually, get, held_by_another, installed, is_held_by_caller, memory};

#[derive(Debug)]
enum ShopError {
    Busy(LockError),
    SoldOut,
}

impl From<LockError> for ShopError {
    fn from(error: LockError) -> Self {
        Self::Busy(error)
    }
}

impl IntoResponse for ShopError {
    fn into_response(self) -> Response {
        match self {
            Self::Busy(_) => (StatusCode::LOCKED, "busy").into_response(),
            Self::SoldOut => StatusCode::GONE.into_response(),
        }
    }
}

struct Order {
    sku: String,
    count: u32,
}

struct Shop {
    locks: LockManager,
    node: MemoryNode,
    stock: u32,
}

impl Shop {
    async fn open(stock: u32) -> Self {
        let (locks, node) = memory().await;
        Self { locks, node, stock }
    }

    /// Takes from the stock.
    #[redis_lock(key("stock:{}", order.sku), manager = self.locks)]
    pub(crate) async fn reserve(&self, order: &Order) -> Result<u32, ShopError> {
        assert!(self.node.time_to_live("stock:shoe%3A42").is_some());
        let left = self.stock.checked_sub(order.count).ok_or(ShopError::SoldOut)?;
        Ok(left)
    }

    #[redis_lock(key = "stock", manager = self.locks)]
    async fn refill(&mut self, mut count: u32) -> Result<&u32, ShopError> {
        assert_eq!(self.node.len(), 1);
        count *= 2;
        self.stock += count;
        Ok(&self.stock)
    }

    #[redis_lock(key = "stock", manager = self.locks)]
    async fn close(mut self) -> Result<u32, LockError> {
        assert_eq!(self.node.len(), 1);
        self.stock += 1;
        Ok(self.stock)
    }

    #[redis_lock(key = "stock", manager = self.locks)]
    async fn shared(self: Arc<Self>) -> Result<usize, LockError> {
        Ok(self.node.len())
    }

    #[redis_lock(key = "stock", manager = locks)]
    async fn reopen(locks: &LockManager, node: &MemoryNode) -> Result<Self, LockError> {
        assert_eq!(node.len(), 1);
        Ok(Self { locks: locks.clone(), node: node.clone(), stock: 0 })
    }

    #[redis_lock(key = "longest", manager = self.locks)]
    async fn longest<'a, T>(&self, one: &'a [T], other: &'a [T]) -> Result<&'a [T], LockError>
    where
        T: Sync,
    {
        Ok(if one.len() < other.len() { other } else { one })
    }

    #[redis_lock(key = "depth:{depth}", manager = self.locks)]
    async fn dive(&self, depth: u32) -> Result<usize, LockError> {
        if depth == 0 {
            return Ok(self.node.len());
        }
        Box::pin(self.dive(depth - 1)).await
    }
}

fn order(count: u32) -> Order {
    Order { sku: "shoe:42".to_owned(), count }
}

#[tokio::test]
async fn a_method_returns_its_own_result() {
    let shop = Shop::open(5).await;
    assert_eq!(shop.reserve(&order(3)).await.unwrap(), 2);
    assert!(matches!(shop.reserve(&order(9)).await, Err(ShopError::SoldOut)));
    assert!(shop.node.is_empty());
}

#[tokio::test]
async fn a_refused_lock_becomes_the_error_type_of_the_function() {
    let shop = Shop::open(5).await;
    let _other = held_by_another(&shop.node, "stock:shoe%3A42").await;
    let error = shop.reserve(&order(3)).await.unwrap_err();
    assert!(matches!(error, ShopError::Busy(LockError::Contended { .. })), "{error:?}");
}

#[tokio::test]
async fn every_kind_of_self_works() {
    let mut shop = Shop::open(5).await;
    assert_eq!(*shop.refill(2).await.unwrap(), 9);
    assert_eq!(shop.longest(&[1], &[2, 3]).await.unwrap(), [2, 3]);
    let reopened = Shop::reopen(&shop.locks, &shop.node).await.unwrap();
    assert_eq!(Arc::new(reopened).shared().await.unwrap(), 1);
    assert_eq!(shop.close().await.unwrap(), 10);
}

/// A method that calls itself bypasses the proxy of an aspect, but not the attribute.
#[tokio::test]
async fn a_recursive_call_takes_its_lock_as_well() {
    let shop = Shop::open(0).await;
    assert_eq!(shop.dive(3).await.unwrap(), 4);

    #[redis_lock(key = "same", manager = locks)]
    async fn itself(locks: &LockManager, again: bool) -> Result<(), LockError> {
        if again { Box::pin(itself(locks, false)).await } else { Ok(()) }
    }

    itself(&shop.locks, false).await.unwrap();
    let error = itself(&shop.locks, true).await.unwrap_err();
    assert!(matches!(error, LockError::AlreadyHeld { .. }), "{error:?}");
}

#[tokio::test]
async fn a_provided_method_of_a_trait_works() {
    trait Counter: Sync {
        fn locks(&self) -> &LockManager;

        #[redis_lock(key("counter:{}", start), manager = self.locks())]
        async fn count(&self, start: usize) -> Result<usize, LockError> {
            Ok(start + 1)
        }
    }

    impl Counter for Shop {
        fn locks(&self) -> &LockManager {
            &self.locks
        }
    }

    assert_eq!(Shop::open(0).await.count(1).await.unwrap(), 2);
}

#[tokio::test]
async fn the_error_is_mapped_by_a_path() {
    #[redis_lock(key = "a", manager = locks, error = ShopError::Busy)]
    async fn by_variant(locks: &LockManager) -> Result<(), ShopError> {
        Ok(())
    }

    #[expect(clippy::needless_pass_by_value, reason = "the attribute passes a value")]
    fn to_text(error: LockError) -> String {
        format!("refused: {}", error.is_contended())
    }

    #[redis_lock(key = "a", manager = locks, error = to_text)]
    async fn by_function(locks: Arc<LockManager>) -> Result<(), String> {
        Ok(())
    }

    let (locks, node) = memory().await;
    let _other = held_by_another(&node, "a").await;
    assert!(matches!(by_variant(&locks).await, Err(ShopError::Busy(_))));
    assert_eq!(by_function(Arc::new(locks)).await.unwrap_err(), "refused: true");
}

/// The application's own error type becomes the response to a refused lock.
#[tokio::test]
async fn a_handler_with_a_manager_answers_with_its_own_error() {
    #[redis_lock(key = "order:{id}", manager = locks)]
    async fn pay(
        Path(id): Path<u64>,
        Extension(locks): Extension<LockManager>,
    ) -> Result<impl IntoResponse, ShopError> {
        Ok(format!("{id} {:?}", locks.lock("order:7").try_acquire().await.is_err()))
    }

    #[redis_lock(key = "order:{id}", manager = shop.locks)]
    async fn sell(
        State(shop): State<Arc<Shop>>,
        Path(id): Path<u64>,
    ) -> Result<&'static str, ShopError> {
        assert_eq!(shop.node.len(), 1);
        Err(ShopError::SoldOut)
    }

    let shop = Shop::open(0).await;
    let (locks, node) = (shop.locks.clone(), shop.node.clone());
    let router = Router::new()
        .route("/pay/{id}", on_get(pay))
        .route("/sell/{id}", on_get(sell))
        .with_state(Arc::new(shop));
    let app = installed(router, &locks);
    assert_eq!(get(&app, "/pay/7").await.body, "7 true");
    assert_eq!(get(&app, "/sell/7").await.status, StatusCode::GONE);
    let _other = held_by_another(&node, "order:7").await;
    let answer = get(&app, "/pay/7").await;
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::LOCKED, "busy"));
}

#[tokio::test]
async fn a_type_in_the_body_may_use_self() {
    #[redis_lock(key = "a", manager = locks)]
    async fn nodes<T>(locks: &LockManager, value: T) -> Result<u8, LockError> {
        assert!(is_held_by_caller(locks, "a").await);
        let nodes = {
            struct List {
                next: Option<Box<Self>>,
            }
            struct Pair(Option<Box<Self>>);
            enum Tree<T> {
                Leaf,
                Node(Box<Self>, T),
            }
            let list = List { next: Some(Box::new(List { next: None })) };
            let pair = Pair(None);
            let tree = Tree::Node(Box::new(Tree::Leaf), value);
            [
                list.next.is_some_and(|next| next.next.is_none()),
                pair.0.is_none(),
                matches!(tree, Tree::Node(leaf, _) if matches!(*leaf, Tree::Leaf)),
            ]
        };
        Ok(nodes.map(u8::from).iter().sum())
    }

    let (locks, _) = memory().await;
    assert_eq!(nodes(&locks, "value").await.unwrap(), 3);
}

/// The parameter is no extractor.
#[tokio::test]
async fn a_function_may_have_the_lock_of_its_caller_as_parameter() {
    #[redis_lock(key = "inner", manager = locks)]
    async fn borrows(locks: &LockManager, lock: &HeldLock) -> Result<String, LockError> {
        assert!(is_held_by_caller(locks, "inner").await);
        Ok(lock.keys()[0].to_string())
    }

    #[redis_lock(key = "outer")]
    async fn handler(
        State(locks): State<LockManager>,
        lock: HeldLock,
    ) -> Result<String, LockRejection> {
        Ok(borrows(&locks, &lock).await?)
    }

    let (locks, _) = memory().await;
    let router = app(Router::new().route("/", on_get(handler)), &locks);
    assert_eq!(get(&router, "/").await.body, "outer");
}

#[tokio::test]
async fn a_detached_function_goes_on_when_its_caller_leaves() {
    #[redis_lock(key = "job", manager = locks, detached, skip)]
    async fn job(locks: LockManager, stage: Stage) -> Result<Option<u32>, LockError> {
        assert!(is_held_by_caller(&locks, "job").await);
        stage.enter().await;
        Ok(Some(7))
    }

    let ((locks, node), stage) = (memory().await, Stage::new());
    let caller = tokio::spawn(job(locks.clone(), stage.clone()));
    stage.until_inside(1).await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    assert_eq!(job(locks.clone(), stage.clone()).await.unwrap(), None);
    stage.leave(1);
    eventually("the lock is free", || node.is_empty()).await;
    stage.until_inside(0).await;

    stage.leave(1);
    assert_eq!(job(locks.clone(), stage).await.unwrap(), Some(7));
    assert!(node.is_empty());
}
