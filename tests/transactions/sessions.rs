//! Sessions of tower-sessions, whose layer saves them after the handler.

use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::extract::{FromRef, State};
use axum::http::{Request, header};
use axum::routing::post;
use redlock_axum::{CommitUnderLock, LockLayer, LockManager, LockPolicy, redis_lock};
use redlock_tests::TicketShop;
use tower::ServiceExt;
use tower_sessions::session::{Id, Record};
use tower_sessions::{MemoryStore, Session, SessionManagerLayer, SessionStore, session_store};

use crate::start;

/// A store that saves as late as a transaction commits.
#[derive(Debug, Clone)]
struct LateStore {
    store: MemoryStore,
    shop: TicketShop,
}

#[async_trait]
impl SessionStore for LateStore {
    async fn create(&self, record: &mut Record) -> session_store::Result<()> {
        self.store.create(record).await
    }

    async fn save(&self, record: &Record) -> session_store::Result<()> {
        self.shop.before_commit().await;
        self.store.save(record).await
    }

    async fn load(&self, id: &Id) -> session_store::Result<Option<Record>> {
        self.store.load(id).await
    }

    async fn delete(&self, id: &Id) -> session_store::Result<()> {
        self.store.delete(id).await
    }
}

#[derive(Clone)]
struct App(TicketShop);

impl FromRef<App> for LockManager {
    fn from_ref(App(shop): &App) -> Self {
        shop.locks().clone()
    }
}

async fn count(shop: &TicketShop, session: &Session) {
    let count = session.get::<u32>("count").await.unwrap().unwrap_or_default();
    shop.has_read();
    session.insert("count", count + 1).await.unwrap();
}

async fn plain(State(App(shop)): State<App>, session: Session) {
    count(&shop, &session).await;
}

#[redis_lock(key = "session", wait_time = "1m")]
async fn attribute(State(App(shop)): State<App>, session: Session) {
    count(&shop, &session).await;
}

#[redis_lock(key = "session", wait_time = "1m")]
async fn saves(State(App(shop)): State<App>, session: Session) {
    count(&shop, &session).await;
    session.save().await.unwrap();
}

/// Returns what a session has counted after two requests at once.
async fn counted(
    shop: &TicketShop,
    form: impl Fn(SessionManagerLayer<LateStore>) -> Router,
) -> u32 {
    let store = LateStore { store: MemoryStore::default(), shop: shop.clone() };
    let layer = SessionManagerLayer::new(store).with_secure(false);
    let app = form(layer.clone()).merge(
        Router::new()
            .route(
                "/login",
                post(async |session: Session| session.insert("count", 0).await.unwrap()),
            )
            .route(
                "/count",
                post(async |session: Session| {
                    session.get::<u32>("count").await.unwrap().unwrap_or_default().to_string()
                }),
            )
            .layer(layer),
    );
    let send = async |path: &str, cookie: &str| {
        let request = Request::post(path).header(header::COOKIE, cookie).body(Body::empty());
        let response = app.clone().oneshot(request.unwrap()).await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response
    };
    // The session of the login need not wait for another request.
    shop.has_read();
    shop.has_read();
    let response = send("/login", "").await;
    let cookie = response.headers()[header::SET_COOKIE].to_str().unwrap();
    let cookie = cookie.split(';').next().unwrap();
    shop.restock().await;
    tokio::join!(send("/", cookie), send("/", cookie));
    let body = send("/count", cookie).await.into_body();
    let body = axum::body::to_bytes(body, 100).await.unwrap();
    std::str::from_utf8(&body).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_session_that_a_layer_saves_needs_a_lock_that_outlasts_the_layer() {
    let Some(shop) = start().await else { return };
    let routes = |handler| Router::new().route("/", handler).with_state(App(shop.clone()));
    let lock = || {
        let policy = LockPolicy::new("session").wait_time(Duration::from_secs(60));
        LockLayer::new(shop.locks(), policy).unwrap()
    };
    let wrong = [
        counted(&shop, |sessions| routes(post(attribute)).layer(sessions)).await,
        counted(&shop, |sessions| routes(post(plain)).layer(lock()).layer(sessions)).await,
    ];
    assert_eq!(wrong, [1, 1]);
    let right = [
        counted(&shop, |sessions| routes(post(attribute)).layer(CommitUnderLock::new(sessions)))
            .await,
        counted(&shop, |sessions| routes(post(plain)).layer(sessions).layer(lock())).await,
        counted(&shop, |sessions| routes(post(saves)).layer(sessions)).await,
    ];
    assert_eq!(right, [2, 2, 2]);
}
