//! Locks around transactions: which forms of a lock end after the commit, and which do not. Each claim of the page
//! `transactions` about the order, with a middleware that commits after the handler.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, FromRef, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use axum::{Router, body::Body};
use redlock_axum::{
    CommitUnderLock, FencedLock, FencingToken, LockError, LockLayer, LockManager, LockPolicy,
    redis_lock,
};
use redlock_tests::{TicketShop, eventually, skip};
use tokio::sync::Semaphore;
use tokio_postgres::{Client, NoTls};
use tower::ServiceExt;

use crate::SOON;

const MINUTE: Duration = Duration::from_secs(60);
/// Long enough for an acquisition on a busy machine.
const SHORT: Duration = Duration::from_secs(2);

#[derive(Clone)]
struct App {
    shop: TicketShop,
    /// A slow handler waits for a permit after its writes.
    exits: Arc<Semaphore>,
}

impl FromRef<App> for LockManager {
    fn from_ref(app: &App) -> Self {
        app.shop.locks().clone()
    }
}

/// The connection of a request, in a transaction.
#[derive(Clone)]
struct Transaction(Arc<Client>);

impl App {
    /// Skips the test if there is no PostgreSQL.
    async fn start() -> Option<Self> {
        let shop = TicketShop::start().await.inspect_err(|why| skip(why)).ok()?;
        Some(Self { shop, exits: Arc::new(Semaphore::new(0)) })
    }

    async fn connect(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.shop.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    async fn begin(&self) -> Transaction {
        let client = self.connect().await;
        client.batch_execute("begin").await.unwrap();
        Transaction(Arc::new(client))
    }

    /// Reads the number of tickets, and sells one if there is one.
    async fn sell(&self, transaction: &Transaction) -> StatusCode {
        let client = &transaction.0;
        let tickets: i32 = client.query_one(TicketShop::READ, &[]).await.unwrap().get(0);
        self.shop.has_read();
        if tickets == 0 {
            return StatusCode::GONE;
        }
        client.execute(TicketShop::WRITE, &[&(tickets - 1)]).await.unwrap();
        client.execute(TicketShop::SELL, &[]).await.unwrap();
        StatusCode::OK
    }

    /// Commits a sale.
    async fn commit(&self, transaction: &Transaction, sold: StatusCode) -> Response {
        if !sold.is_success() {
            return sold.into_response();
        }
        self.shop.before_commit().await;
        match transaction.0.batch_execute("commit").await {
            Ok(()) => sold.into_response(),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }

    fn lock(&self) -> LockLayer {
        let policy = LockPolicy::new("concert").wait_time(MINUTE);
        LockLayer::new(self.shop.locks(), policy).unwrap()
    }

    /// The handler in the layer with the transaction.
    fn wrong(&self, handler: MethodRouter<Self>) -> Router {
        let layer = from_fn_with_state(self.clone(), transaction);
        Router::new().route("/", handler).layer(layer).with_state(self.clone())
    }

    /// The handler in the layer with the transaction, under the lock.
    fn under_lock(&self, handler: MethodRouter<Self>) -> Router {
        let layer = CommitUnderLock::new(from_fn_with_state(self.clone(), transaction));
        Router::new().route("/", handler).layer(layer).with_state(self.clone())
    }

    async fn sold(&self, app: &Router) -> i64 {
        self.shop.sold_to_two(|| buy(app)).await
    }

    /// Sends a request of a client that leaves after the handler has written. Returns how many tickets were sold when the
    /// locks are free.
    async fn sold_to_client_that_leaves(&self, app: Router) -> i64 {
        self.shop.restock().await;
        let client = tokio::spawn(async move { buy(&app).await });
        eventually("the handler has read", SOON, async || (self.shop.reads() > 0).then_some(()))
            .await;
        client.abort();
        assert!(client.await.unwrap_err().is_cancelled());
        self.exits.add_permits(1);
        self.shop.until_free().await;
        self.shop.sold().await
    }
}

async fn buy(app: &Router) -> StatusCode {
    app.clone().oneshot(Request::post("/").body(Body::empty()).unwrap()).await.unwrap().status()
}

/// Begins a transaction for each request, and commits it after the handler.
async fn transaction(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let transaction = app.begin().await;
    request.extensions_mut().insert(transaction.clone());
    let response = next.run(request).await;
    if !response.status().is_success() {
        return response;
    }
    let committed = app.commit(&transaction, response.status()).await;
    if committed.status().is_success() { response } else { committed }
}

async fn plain(
    State(app): State<App>,
    Extension(transaction): Extension<Transaction>,
) -> StatusCode {
    app.sell(&transaction).await
}

#[redis_lock(key = "concert", wait_time = "1m")]
async fn attribute(state: State<App>, transaction: Extension<Transaction>) -> StatusCode {
    plain(state, transaction).await
}

#[redis_lock(key = "concert", wait_time = "1m", hold_until = end_of_body)]
async fn empty_body(state: State<App>, transaction: Extension<Transaction>) -> StatusCode {
    plain(state, transaction).await
}

#[redis_lock(key = "concert", wait_time = "1m", detached)]
async fn detached(state: State<App>, transaction: Extension<Transaction>) -> StatusCode {
    plain(state, transaction).await
}

/// Locks in the handler, for the closure.
async fn by_run(
    State(app): State<App>,
    Extension(transaction): Extension<Transaction>,
) -> StatusCode {
    let request = app.shop.locks().lock("concert").wait_time(MINUTE);
    request.run(async |_lock| app.sell(&transaction).await).await.unwrap()
}

/// Calls a function with the transaction of its caller.
async fn by_function(
    State(app): State<App>,
    Extension(transaction): Extension<Transaction>,
) -> StatusCode {
    #[redis_lock(key = "concert", wait_time = "1m", manager = app.shop.locks())]
    async fn sell(app: &App, transaction: &Transaction) -> Result<StatusCode, LockError> {
        Ok(app.sell(transaction).await)
    }

    sell(&app, &transaction).await.unwrap()
}

/// Commits in the handler.
#[redis_lock(key = "concert", wait_time = "1m")]
async fn commits(State(app): State<App>) -> Response {
    let transaction = app.begin().await;
    let sold = app.sell(&transaction).await;
    app.commit(&transaction, sold).await
}

/// Commits in the closure.
async fn commits_in_run(State(app): State<App>) -> Response {
    let request = app.shop.locks().lock("concert").wait_time(MINUTE);
    let run = request.run(async |_lock| {
        let transaction = app.begin().await;
        let sold = app.sell(&transaction).await;
        app.commit(&transaction, sold).await
    });
    run.await.unwrap()
}

#[tokio::test]
async fn a_lock_that_ends_before_the_commit_sells_a_ticket_twice() {
    let Some(app) = App::start().await else { return };
    for (form, handler) in [
        ("the attribute", post(attribute)),
        ("the attribute until the end of an empty body", post(empty_body)),
        ("the attribute with `detached`", post(detached)),
        ("`run`", post(by_run)),
        ("a function with the attribute", post(by_function)),
        ("a layer inside", post(plain).layer(app.lock())),
    ] {
        assert_eq!(app.sold(&app.wrong(handler)).await, 2, "{form}");
    }
}

#[tokio::test]
async fn a_lock_that_ends_after_the_commit_sells_a_ticket_once() {
    let Some(app) = App::start().await else { return };
    let own = |handler| Router::new().route("/", handler).with_state(app.clone());
    for (form, router) in [
        ("the attribute in `CommitUnderLock`", app.under_lock(post(attribute))),
        ("the same, until the end of an empty body", app.under_lock(post(empty_body))),
        ("the same, with `detached`", app.under_lock(post(detached))),
        ("a layer in `CommitUnderLock`", app.under_lock(post(plain).layer(app.lock()))),
        ("a layer outside", app.wrong(post(plain)).layer(app.lock())),
        ("a commit in the handler", own(post(commits))),
        ("a commit in the closure of `run`", own(post(commits_in_run))),
    ] {
        assert_eq!(app.sold(&router).await, 1, "{form}");
    }
}

#[redis_lock(key = "concert", detached)]
async fn slow(
    State(app): State<App>,
    Extension(transaction): Extension<Transaction>,
) -> StatusCode {
    let sold = app.sell(&transaction).await;
    // The other customer, for the commit.
    app.shop.has_read();
    app.exits.acquire().await.unwrap().forget();
    sold
}

async fn slow_without_lock(
    State(app): State<App>,
    Extension(transaction): Extension<Transaction>,
) -> StatusCode {
    let sold = app.sell(&transaction).await;
    app.shop.has_read();
    app.exits.acquire().await.unwrap().forget();
    sold
}

/// The handler runs to its end in all cases. With the layer outside, its writes are committed.
#[tokio::test]
async fn the_writes_of_a_detached_handler_vanish_with_the_transaction_of_its_client() {
    let Some(app) = App::start().await else { return };
    let policy = || LockPolicy::new("concert").detached(true);
    let lock = || LockLayer::new(app.shop.locks(), policy()).unwrap();
    assert_eq!(app.sold_to_client_that_leaves(app.wrong(post(slow))).await, 0);
    let inside = app.wrong(post(slow_without_lock).layer(lock()));
    assert_eq!(app.sold_to_client_that_leaves(inside).await, 0);
    assert_eq!(app.sold_to_client_that_leaves(app.under_lock(post(slow))).await, 1);
    let outside = app.wrong(post(slow_without_lock)).layer(lock());
    assert_eq!(app.sold_to_client_that_leaves(outside).await, 1);
}

#[tokio::test]
async fn a_commit_that_fails_is_an_error_and_ends_the_lock() {
    async fn fails(state: State<App>, transaction: Extension<Transaction>) -> StatusCode {
        let fails = transaction.0.0.batch_execute(TicketShop::FAIL_AT_COMMIT).await;
        fails.unwrap();
        state.shop.has_read();
        plain(state, transaction).await
    }

    let Some(app) = App::start().await else { return };
    let router = app.under_lock(post(fails).layer(app.lock()));
    assert_eq!(buy(&router).await, 500);
    assert_eq!(app.shop.sold().await, 0);
    assert!(app.shop.locks().snapshot().held.is_empty());
}

/// PostgreSQL answers `ROLLBACK` to the commit, and the client reports no error.
#[tokio::test]
async fn a_commit_after_a_failed_statement_succeeds_without_a_row() {
    async fn swallows(
        State(app): State<App>,
        Extension(transaction): Extension<Transaction>,
    ) -> StatusCode {
        let sold = app.sell(&transaction).await;
        let _ = transaction.0.batch_execute("select 1 / 0").await;
        app.shop.has_read();
        sold
    }

    let Some(app) = App::start().await else { return };
    assert_eq!(buy(&app.under_lock(post(swallows).layer(app.lock()))).await, 200);
    assert_eq!(app.shop.sold().await, 0);
}

/// Stores the fencing token. It changes no row if a later holder was here, and otherwise locks the row until the commit.
const FENCE: &str = "
    insert into fence as f values ('concert', $1, $2)
    on conflict (key) do update set number = excluded.number, holder = excluded.holder
    where (f.number, f.holder) <= (excluded.number, excluded.holder)";

impl App {
    /// As [`sell`](Self::sell), with the fencing token in the first statement.
    async fn sell_fenced(&self, transaction: &Transaction, token: FencingToken) -> StatusCode {
        let (number, holder) = (token.number(), token.holder());
        let rows = transaction.0.execute(FENCE, &[&number, &holder]).await.unwrap();
        if rows == 0 { StatusCode::CONFLICT } else { self.sell(transaction).await }
    }
}

#[redis_lock(key = "concert", wait_time = "1m", expire = SHORT)]
async fn short(state: State<App>, transaction: Extension<Transaction>) -> StatusCode {
    plain(state, transaction).await
}

#[redis_lock(key = "concert", wait_time = "1m", expire = SHORT, on_lost = abort)]
async fn abortable(state: State<App>, transaction: Extension<Transaction>) -> StatusCode {
    plain(state, transaction).await
}

#[redis_lock(key = "concert", wait_time = "1m", expire = SHORT, fenced)]
async fn fenced(
    State(app): State<App>,
    Extension(transaction): Extension<Transaction>,
    lock: FencedLock,
) -> StatusCode {
    app.sell_fenced(&transaction, lock.fencing_token()).await
}

/// The commit of the first customer waits until the lease of its lock has ended.
#[tokio::test]
async fn a_lock_that_is_lost_before_the_commit_needs_abort_or_a_fencing_token() {
    let Some(app) = App::start().await else { return };
    let admin = app.shop.server().admin().await;
    let table = "create table fence (key text primary key, number bigint, holder bigint);
        grant all on fence to app";
    admin.batch_execute(table).await.unwrap();
    app.shop.outlast_lease();
    assert_eq!(app.sold(&app.under_lock(post(short))).await, 2, "goes on");
    assert_eq!(app.sold(&app.under_lock(post(abortable))).await, 1, "abort");
    assert_eq!(app.sold(&app.under_lock(post(fenced))).await, 1, "a fencing token");
    // The row of the token orders the transactions, also if the lock ends before the commit.
    assert_eq!(app.sold(&app.wrong(post(fenced))).await, 1, "a fencing token without the layer");
}
