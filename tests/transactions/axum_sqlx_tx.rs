//! The layer of axum-sqlx-tx, which begins a transaction at the first extraction, and commits it after the handler.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRef, Request, State};
use axum::http::StatusCode;
use axum::middleware::{FromFnLayer, Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use redlock_axum::{CommitUnderLock, LockLayer, LockManager, LockPolicy, UnderLock, redis_lock};
use redlock_tests::{TicketShop, eventually};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, Postgres};
use tokio::sync::Semaphore;

use crate::{buy, sold, start};

type Tx = axum_sqlx_tx::Tx<Postgres>;
type TxLayer = axum_sqlx_tx::Layer<Postgres, axum_sqlx_tx::Error>;

const SOON: Duration = Duration::from_secs(60);
/// The connections of the pool.
const CONNECTIONS: u32 = 10;

#[derive(Clone)]
struct App {
    shop: TicketShop,
    pool: PgPool,
    transactions: axum_sqlx_tx::State<Postgres>,
    layer: TxLayer,
    /// A slow handler waits for a permit after its writes.
    exits: Arc<Semaphore>,
}

impl FromRef<App> for LockManager {
    fn from_ref(app: &App) -> Self {
        app.shop.locks().clone()
    }
}

impl FromRef<App> for axum_sqlx_tx::State<Postgres> {
    fn from_ref(app: &App) -> Self {
        app.transactions.clone()
    }
}

impl App {
    async fn start() -> Option<Self> {
        let shop = start().await?;
        let pool =
            PgPoolOptions::new().max_connections(CONNECTIONS).connect(&shop.url()).await.unwrap();
        let (transactions, layer) = Tx::setup(pool.clone());
        Some(Self { shop, pool, transactions, layer, exits: Arc::new(Semaphore::new(0)) })
    }

    async fn sell(&self, tx: &mut Tx) -> StatusCode {
        let tickets: i32 = sqlx::query_scalar(TicketShop::READ).fetch_one(&mut *tx).await.unwrap();
        self.shop.has_read();
        if tickets == 0 {
            return StatusCode::GONE;
        }
        sqlx::query(TicketShop::WRITE).bind(tickets - 1).execute(&mut *tx).await.unwrap();
        sqlx::query(TicketShop::SELL).execute(&mut *tx).await.unwrap();
        StatusCode::OK
    }

    fn lock(&self) -> LockLayer {
        LockLayer::new(self.shop.locks(), LockPolicy::new("concert").wait_time(SOON)).unwrap()
    }

    /// The handler, and the barrier before the commit.
    fn routes(&self, handler: MethodRouter<Self>) -> Router {
        let barrier: FromFnLayer<_, _, (State<Self>, Request)> =
            from_fn_with_state(self.clone(), before_commit);
        Router::new().route("/", handler).layer(barrier).with_state(self.clone())
    }

    fn wrong(&self, handler: MethodRouter<Self>) -> Router {
        self.routes(handler).layer(self.layer.clone())
    }

    fn under_lock(&self, handler: MethodRouter<Self>) -> Router {
        self.routes(handler).layer(CommitUnderLock::new(self.layer.clone()))
    }

    /// Sends a request of a client that leaves after the handler has written.
    async fn sold_to_client_that_leaves(&self, app: Router) -> i64 {
        let before = self.shop.reads();
        let client = tokio::spawn(async move { buy(&app).await });
        eventually("the handler has read", SOON, async || {
            (self.shop.reads() > before).then_some(())
        })
        .await;
        client.abort();
        assert!(client.await.unwrap_err().is_cancelled());
        self.exits.add_permits(1);
        self.shop.until_free().await;
        self.shop.sold().await
    }
}

async fn before_commit(State(app): State<App>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    if response.status().is_success() {
        app.shop.before_commit().await;
    }
    response
}

async fn plain(State(app): State<App>, mut tx: Tx) -> StatusCode {
    app.sell(&mut tx).await
}

#[redis_lock(key = "concert", wait_time = "1m")]
async fn attribute(State(app): State<App>, mut tx: Tx) -> StatusCode {
    app.sell(&mut tx).await
}

#[redis_lock(key = "concert", wait_time = "1m")]
async fn begins_under_lock(State(app): State<App>, UnderLock(mut tx): UnderLock<Tx>) -> StatusCode {
    app.sell(&mut tx).await
}

#[redis_lock(key = "concert", wait_time = "1m", detached)]
async fn detached(State(app): State<App>, mut tx: Tx) -> StatusCode {
    app.sell(&mut tx).await
}

/// Commits in the handler.
#[redis_lock(key = "concert", wait_time = "1m")]
async fn commits(State(app): State<App>, mut tx: Tx) -> StatusCode {
    let sold = app.sell(&mut tx).await;
    if sold.is_success() {
        app.shop.before_commit().await;
        tx.commit().await.unwrap();
    }
    sold
}

#[tokio::test]
async fn a_lock_inside_of_the_layer_sells_a_ticket_twice() {
    let Some(app) = App::start().await else { return };
    for (form, handler) in [
        ("the attribute", post(attribute)),
        ("the attribute with `UnderLock<Tx>`", post(begins_under_lock)),
        ("the attribute with `detached`", post(detached)),
        ("a layer inside", post(plain).layer(app.lock())),
    ] {
        assert_eq!(sold(&app.shop, &app.wrong(handler)).await, 2, "{form}");
    }
}

#[tokio::test]
async fn a_lock_that_outlasts_the_layer_sells_a_ticket_once() {
    let Some(app) = App::start().await else { return };
    for (form, router) in [
        ("the attribute in `CommitUnderLock`", app.under_lock(post(attribute))),
        ("the same, with `UnderLock<Tx>`", app.under_lock(post(begins_under_lock))),
        ("the same, with `detached`", app.under_lock(post(detached))),
        ("a layer in `CommitUnderLock`", app.under_lock(post(plain).layer(app.lock()))),
        ("a layer outside", app.wrong(post(plain)).layer(app.lock())),
        ("a commit in the handler", app.wrong(post(commits))),
    ] {
        assert_eq!(sold(&app.shop, &router).await, 1, "{form}");
    }
}

#[redis_lock(key = "concert", detached)]
async fn slow(State(app): State<App>, mut tx: Tx) -> StatusCode {
    let sold = app.sell(&mut tx).await;
    // The other customer, for the commit.
    app.shop.has_read();
    app.exits.acquire().await.unwrap().forget();
    sold
}

#[tokio::test]
async fn the_writes_of_a_detached_handler_vanish_with_the_layer_of_its_client() {
    let Some(app) = App::start().await else { return };
    assert_eq!(app.sold_to_client_that_leaves(app.wrong(post(slow))).await, 0);
    assert_eq!(app.sold_to_client_that_leaves(app.under_lock(post(slow))).await, 1);
}

/// Sends as many requests for a held lock as the pool has connections, and then one without a lock, until all of them have come
/// as far as they can. Returns whether the pool has a connection for the last one.
async fn is_pool_free(app: &App, handler: MethodRouter<App>) -> bool {
    let guard = app.shop.locks().lock("concert").acquire().await.unwrap();
    let router = app.under_lock(handler);
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let router = router.clone();
            tokio::spawn(async move { buy(&router).await })
        })
        .collect();
    eventually("all wait for the lock", SOON, async || {
        let waiting = app.shop.locks().snapshot().waiting;
        (waiting.iter().map(|key| key.waiters).sum::<usize>() == clients.len()).then_some(())
    })
    .await;
    let is_free = app.pool.try_acquire().is_some() || app.pool.size() < CONNECTIONS;
    for client in clients {
        client.abort();
    }
    guard.release().await.unwrap();
    is_free
}

#[tokio::test]
async fn waiters_hold_a_connection_each_unless_they_begin_under_the_lock() {
    let Some(app) = App::start().await else { return };
    assert!(is_pool_free(&app, post(begins_under_lock)).await);
    assert!(!is_pool_free(&app, post(attribute)).await);
}

/// The layer finds no transaction to commit, and does not tell.
#[tokio::test]
async fn a_transaction_that_has_moved_is_rolled_back_with_200() {
    async fn into_task(State(app): State<App>, mut tx: Tx) -> StatusCode {
        tokio::spawn(async move {
            app.sell(&mut tx).await;
            app.exits.acquire().await.unwrap().forget();
        });
        StatusCode::OK
    }

    async fn into_body(State(app): State<App>, mut tx: Tx) -> Response {
        let sold = app.sell(&mut tx).await;
        // Stands for a stream of rows, which owns the transaction.
        let body = sqlx_stream(tx);
        (sold, body).into_response()
    }

    let Some(app) = App::start().await else { return };
    // The other customer, for the commit.
    app.shop.has_read();
    app.shop.has_read();
    assert_eq!(buy(&app.wrong(post(into_task))).await, 200);
    app.exits.add_permits(1);
    assert_eq!(buy(&app.wrong(post(into_body))).await, 200);
    eventually("no transaction is open", SOON, async || {
        let open = "select from pg_stat_activity where usename = 'app' and state like 'idle in%'";
        app.shop.server().admin().await.query(open, &[]).await.unwrap().is_empty().then_some(())
    })
    .await;
    assert_eq!(app.shop.sold().await, 0);
}

/// Returns a body that owns the transaction until it has been sent.
fn sqlx_stream(tx: Tx) -> Body {
    struct Rows(Option<Tx>);

    impl axum::body::HttpBody for Rows {
        type Data = axum::body::Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<Self::Data>, Self::Error>>> {
            self.0 = None;
            std::task::Poll::Ready(None)
        }
    }

    Body::new(Rows(Some(tx)))
}
