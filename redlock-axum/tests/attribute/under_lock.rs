//! `UnderLock` extracts parameters under the lock. Other parameters are extracted before.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::{FromRef, FromRequestParts, OptionalFromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::routing::{get as on_get, post as on_post};
use axum::{Json, RequestPartsExt, Router, debug_handler};
use http::Method;
use redlock_axum::test_util::TestLocks;
use redlock_axum::{
    HeldLock, LockManager, LockPolicy, LockRejection, MemoryNode, UnderLock, redis_lock,
};
use redlock_logs::Logs;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::front_ends::stage::Stage;
use crate::support::{eventually, get, layer, memory, post, post_json, send, until_logged};

/// A service with one order, which a bank charges while the stage keeps the handler inside.
#[derive(Clone, FromRef)]
struct Shop {
    locks: LockManager,
    #[from_ref(skip)]
    node: MemoryNode,
    #[from_ref(skip)]
    bank: Bank,
    #[from_ref(skip)]
    stage: Stage,
}

#[derive(Clone, Default)]
struct Bank {
    /// The requests whose first parameter was extracted.
    arrived: watch::Sender<usize>,
    loads: Arc<AtomicUsize>,
    charges: Arc<AtomicUsize>,
}

impl Shop {
    async fn new() -> Self {
        let (locks, node) = memory().await;
        Self { locks, node, bank: Bank::default(), stage: Stage::new() }
    }

    fn loads(&self) -> usize {
        self.bank.loads.load(Ordering::SeqCst)
    }

    fn charges(&self) -> usize {
        self.bank.charges.load(Ordering::SeqCst)
    }

    async fn charge(&self, order: &Order) -> &'static str {
        if order.paid {
            return "paid before";
        }
        self.stage.enter().await;
        self.bank.charges.fetch_add(1, Ordering::SeqCst);
        "paid"
    }

    /// Sends three requests for one order. The second and the third have come when the first is inside.
    async fn three_requests(&self, app: &Router) {
        let pay = || {
            let app = app.clone();
            tokio::spawn(async move { post(&app, "/7").await })
        };
        let first = pay();
        self.stage.until_inside(1).await;
        let others = [pay(), pay()];
        self.bank.arrived.subscribe().wait_for(|arrived| *arrived == 3).await.unwrap();
        self.stage.leave(3);
        for request in [first].into_iter().chain(others) {
            assert_eq!(request.await.unwrap(), 200);
        }
    }
}

/// Counts the requests.
struct Arrived;

impl FromRequestParts<Shop> for Arrived {
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, shop: &Shop) -> Result<Self, Infallible> {
        shop.bank.arrived.send_modify(|arrived| *arrived += 1);
        Ok(Self)
    }
}

/// The row of an order, which its extractor loads. There is one order: 7.
struct Order {
    id: u64,
    paid: bool,
    under_lock: bool,
}

impl FromRequestParts<Shop> for Order {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, shop: &Shop) -> Result<Self, Self::Rejection> {
        shop.bank.loads.fetch_add(1, Ordering::SeqCst);
        let Path(id) = parts.extract::<Path<u64>>().await.unwrap();
        if id != 7 {
            return Err((StatusCode::NOT_FOUND, "no such order"));
        }
        let under_lock = parts.extract::<HeldLock>().await.is_ok_and(|lock| lock.is_valid());
        Ok(Self { id, paid: shop.charges() > 0, under_lock })
    }
}

impl OptionalFromRequestParts<Shop> for Order {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        shop: &Shop,
    ) -> Result<Option<Self>, Infallible> {
        Ok(<Self as FromRequestParts<Shop>>::from_request_parts(parts, shop).await.ok())
    }
}

#[tokio::test]
async fn an_order_that_is_loaded_under_the_lock_is_charged_once() {
    #[redis_lock(key = "order:{id}", wait_time = "forever")]
    async fn pay(
        _arrived: Arrived,
        Path(id): Path<u64>,
        UnderLock(order): UnderLock<Order>,
        State(shop): State<Shop>,
    ) -> &'static str {
        assert!(order.under_lock && order.id == id);
        shop.charge(&order).await
    }

    let shop = Shop::new().await;
    let app = Router::new().route("/{id}", on_post(pay)).with_state(shop.clone());
    shop.three_requests(&app).await;
    assert_eq!((shop.loads(), shop.charges()), (3, 1));
    assert!(shop.node.is_empty());
}

/// The documentation warns of this: the orders were loaded before the first of them was paid.
#[tokio::test]
async fn an_order_that_is_loaded_before_the_lock_is_charged_by_every_request() {
    #[redis_lock(key("order:{}", order.id), wait_time = "forever")]
    async fn pay(order: Order, _arrived: Arrived, State(shop): State<Shop>) -> &'static str {
        assert!(!order.under_lock);
        shop.charge(&order).await
    }

    let shop = Shop::new().await;
    let app = Router::new().route("/{id}", on_post(pay)).with_state(shop.clone());
    shop.three_requests(&app).await;
    assert_eq!((shop.loads(), shop.charges()), (3, 3));
}

/// Behind a layer, the same handler is right.
#[tokio::test]
async fn behind_a_layer_every_extractor_runs_under_the_lock() {
    async fn pay(order: Order, State(shop): State<Shop>) -> &'static str {
        assert!(order.under_lock);
        shop.charge(&order).await
    }

    let shop = Shop::new().await;
    let lock = layer(&shop.locks, LockPolicy::new("order:{id:u64}").wait_forever());
    let arrived = axum::middleware::from_extractor_with_state::<Arrived, _>(shop.clone());
    let route = on_post(pay).route_layer(lock).route_layer(arrived);
    let app = Router::new().route("/{id}", route).with_state(shop.clone());
    shop.three_requests(&app).await;
    assert_eq!((shop.loads(), shop.charges()), (3, 1));
}

#[tokio::test]
async fn a_rejection_releases_the_lock_and_is_the_response() {
    #[redis_lock(key = "order:{id}", hold_until = end_of_body, on_reject = |rejection| refused(&rejection))]
    async fn pay(Path(id): Path<u64>, first: UnderLock<Order>, second: UnderLock<Order>) {
        unreachable!("order {id}: {} {}", first.id, second.id);
    }

    fn refused(rejection: &LockRejection) -> StatusCode {
        unreachable!("{rejection:?}");
    }

    let shop = Shop::new().await;
    let app = Router::new().route("/{id}", on_post(pay)).with_state(shop.clone());
    for loads in 1..3 {
        let response = send(&app, Method::POST, "/8").await;
        // The body of the response does not hold the lock.
        assert!(shop.node.is_empty());
        assert_eq!(response.status(), 404);
        assert_eq!(crate::support::text(response).await, "no such order");
        // The second extraction does not begin.
        assert_eq!(shop.loads(), loads);
    }
}

#[tokio::test]
#[expect(
    clippy::unused_async,
    clippy::diverging_sub_expression,
    reason = "in the functions that debug_handler adds"
)]
async fn a_parameter_has_any_form_and_place() {
    #[redis_lock(key = "{id}", hold_until = end_of_body)]
    async fn forms(
        mut order: UnderLock<Order>,
        Path(id): Path<u64>,
        UnderLock(found): UnderLock<Option<Order>>,
        UnderLock(result): UnderLock<Result<Order, (StatusCode, &'static str)>>,
        UnderLock((Order { paid, .. }, State(shop))): redlock_axum::UnderLock<(Order, State<Shop>)>,
        lock: HeldLock,
        Json(count): Json<usize>,
    ) -> String {
        order.paid |= lock.is_valid();
        let all = [found.is_some(), result.is_ok(), !paid, order.0.paid, order.under_lock];
        assert_eq!(all, [true; 5]);
        format!("{id} {count} {}", shop.loads())
    }

    #[debug_handler(state = Shop)]
    #[redis_lock(key = "last")]
    async fn last(UnderLock(Path(id)): UnderLock<Path<u64>>) -> String {
        id.to_string()
    }

    #[redis_lock(key = "below")]
    #[debug_handler(state = Shop)]
    async fn below(State(_): State<Shop>, UnderLock(Path(id)): UnderLock<Path<u64>>) -> String {
        id.to_string()
    }

    let shop = Shop::new().await;
    let app =
        Router::new().route("/{id}", on_post(forms).get(last).put(below)).with_state(shop.clone());
    assert_eq!(post_json(&app, "/7", "3").await.body, "7 3 4");
    assert_eq!(get(&app, "/8").await.body, "8");
    assert_eq!(crate::support::text(send(&app, Method::PUT, "/9").await).await, "9");
    // The response to HEAD has no body that could hold the lock.
    assert_eq!(send(&app, Method::HEAD, "/8").await.status(), 200);
    assert!(shop.node.is_empty());
}

#[tokio::test]
async fn a_generic_handler_extracts_under_its_lock() {
    #[redis_lock(key = "a")]
    async fn name<T: ToString + Send + 'static>(
        UnderLock(Path(value)): UnderLock<Path<T>>,
    ) -> String
    where
        Path<T>: Send,
    {
        value.to_string()
    }

    let shop = Shop::new().await;
    let app = Router::new().route("/{id}", on_get(name::<u8>)).with_state(shop);
    assert_eq!(get(&app, "/7").await.body, "7");
    assert_eq!(get(&app, "/256").await.status, 400);
}

/// The names of the parameter may stand in the code of the key, where they mean something else.
#[tokio::test]
async fn the_key_may_use_the_name_for_a_value_of_its_own() {
    #[redis_lock(keys = [*id].iter().map(|order| format!("order:{order}")))]
    async fn pay(Path(id): Path<u64>, order: UnderLock<Order>, lock: HeldLock) -> String {
        assert_eq!(order.id, id);
        lock.keys()[0].to_string()
    }

    let shop = Shop::new().await;
    let app = Router::new().route("/{id}", on_get(pay)).with_state(shop);
    assert_eq!(get(&app, "/7").await.body, "order:7");
}

/// An extraction that waits until the lock is lost, or blocks its thread past the lease.
struct Slow;

const LEASE: Duration = Duration::from_millis(400);

impl<S: Sync> FromRequestParts<S> for Slow {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        if parts.uri.path() == "/blocks" {
            std::thread::sleep(LEASE * 2);
        } else {
            std::future::pending::<()>().await;
        }
        Ok(Self)
    }
}

#[tokio::test]
async fn a_handler_whose_lock_is_lost_during_an_extraction_does_not_begin() {
    #[redis_lock(key = "a", expire = "400ms")]
    async fn keeps_going(_slow: UnderLock<Slow>) {
        unreachable!("the handler has begun");
    }

    #[redis_lock(key = "a", expire = "400ms", on_lost = abort)]
    async fn aborts(_slow: UnderLock<Slow>) {
        unreachable!("the handler has begun");
    }

    let (locks, _node) = memory().await;
    for route in [on_get(keeps_going), on_get(aborts)] {
        for path in ["/waits", "/blocks"] {
            let app = Router::new().route("/{kind}", route.clone()).with_state(locks.clone());
            let answer = get(&app, path).await;
            assert_eq!(answer.status, 503, "{path}");
            assert_eq!(answer.headers["retry-after"], "1", "{path}");
        }
    }
}

/// Renewal goes on during the extraction, and finds that the node has forgotten the lock.
#[tokio::test]
async fn a_loss_that_a_renewal_finds_ends_the_extraction() {
    #[redis_lock(key = "a")]
    async fn handler(_slow: UnderLock<Slow>) {
        unreachable!("the handler has begun");
    }

    let test = TestLocks::new(1);
    let app = Router::new().route("/{kind}", on_get(handler)).with_state(test.manager());
    let request = tokio::spawn(async move { get(&app, "/waits").await.status });
    test.clock().advance(Duration::from_secs(1)).await;
    test.nodes()[0].forget();
    assert_eq!(request.await.unwrap(), 503);
}

/// An extraction that the stage keeps inside.
struct Staged;

impl FromRequestParts<Shop> for Staged {
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, shop: &Shop) -> Result<Self, Infallible> {
        shop.stage.enter().await;
        Ok(Self)
    }
}

#[redis_lock(key = "a")]
async fn attached(_staged: UnderLock<Staged>, State(shop): State<Shop>) {
    shop.bank.charges.fetch_add(1, Ordering::SeqCst);
}

#[redis_lock(key = "a", detached)]
async fn detached(_staged: UnderLock<Staged>, State(shop): State<Shop>) {
    shop.bank.charges.fetch_add(1, Ordering::SeqCst);
}

/// Sends a request, and drops it while its parameter is extracted.
async fn leave(shop: &Shop, path: &'static str) {
    let app =
        Router::new().route("/attached", on_get(attached)).route("/detached", on_get(detached));
    let app = app.with_state(shop.clone());
    let client: JoinHandle<_> = tokio::spawn(async move { get(&app, path).await });
    shop.stage.until_inside(1).await;
    client.abort();
    assert!(client.await.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn a_client_that_leaves_during_an_extraction_ends_it_and_releases_the_lock() {
    let shop = Shop::new().await;
    leave(&shop, "/attached").await;
    eventually("the lock is free", || shop.node.is_empty()).await;
    shop.stage.leave(1);
    shop.locks.shutdown().await;
    assert_eq!(shop.charges(), 0);
}

#[tokio::test]
async fn the_extraction_of_a_detached_handler_goes_on_when_its_client_leaves() {
    let shop = Shop::new().await;
    leave(&shop, "/detached").await;
    assert_eq!(shop.node.len(), 1);
    shop.stage.leave(1);
    eventually("the lock is free", || shop.node.is_empty()).await;
    assert_eq!(shop.charges(), 1);
}

/// Without the attribute there is no lock under which the value could be extracted.
#[tokio::test]
async fn without_the_attribute_the_request_is_answered_with_500() {
    type Hidden = UnderLock<Order>;

    async fn plain(_: UnderLock<Order>) {
        unreachable!("the handler has begun");
    }

    #[redis_lock(key = "a")]
    async fn alias(_hidden: Hidden) {
        unreachable!("the handler has begun");
    }

    let shop = Shop::new().await;
    let app = Router::new()
        .route("/plain/{id}", on_get(plain))
        .route("/layer/{id}", on_get(plain).layer(layer(&shop.locks, "b")))
        .route("/alias/{id}", on_get(alias))
        .with_state(shop.clone());
    let logs = Logs::collect();
    for path in ["/plain/7", "/layer/7", "/alias/7"] {
        assert_eq!(get(&app, path).await.status, 500, "{path}");
    }
    let remedy = "behind a lock layer, take the value without `UnderLock`";
    until_logged(&logs, "ERROR", remedy, async || drop(get(&app, "/plain/7").await)).await;
    assert_eq!(shop.loads(), 0);
}
