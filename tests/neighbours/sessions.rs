//! One request at a time for each session of tower-sessions, whose layer saves after the handler.

use axum::Router;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Request, header};
use axum::routing::post;
use redlock_axum::{KeyError, KeyPart, LockKey, LockLayer, LockManager, LockPolicy, SetupError};
use sha2::{Digest, Sha256};
use tower::ServiceExt;
use tower_sessions::{MemoryStore, Session, SessionManagerLayer};

/// Returns the key of a session: a digest of its cookie, because the key stands in logs and on the servers.
fn session_key(parts: &Parts) -> Result<LockKey, KeyError> {
    let cookies =
        parts.headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let cookies = cookies.flat_map(|line| line.split(';')).map(str::trim);
    let mut sessions = cookies.filter_map(|cookie| cookie.strip_prefix("id="));
    // Of two cookies, the session may be that of either.
    let session = sessions.next().filter(|_| sessions.next().is_none());
    let digest: Option<String> =
        session.map(|id| Sha256::digest(id).iter().map(|byte| format!("{byte:02x}")).collect());
    LockKey::new(format!("session:{}", KeyPart(&digest.unwrap_or_default())))
}

fn one_at_a_time(locks: &LockManager) -> Result<LockLayer, SetupError> {
    LockLayer::new(locks, LockPolicy::from_fn(session_key).named("sessions").wait_forever())
}

async fn count(session: Session) -> String {
    let count = session.get::<u32>("count").await.unwrap().unwrap_or_default();
    tokio::task::yield_now().await; // the other request reads now, unless it waits
    session.insert("count", count + 1).await.unwrap();
    (count + 1).to_string()
}

async fn send(app: &Router, cookie: Option<&str>) -> axum::response::Response {
    let mut request = Request::post("/");
    if let Some(cookie) = cookie {
        request = request.header(header::COOKIE, format!("theme=dark; {cookie}"));
    }
    app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
}

/// Returns the greatest count after a login and ten requests at once.
async fn counted(route: impl Fn(Router) -> Router) -> u32 {
    let sessions = SessionManagerLayer::new(MemoryStore::default()).with_secure(false);
    let open = Router::new().route("/", post(count)).layer(sessions.clone());
    let login = send(&open, None).await;
    let cookie = login.headers()[header::SET_COOKIE].to_str().unwrap();
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let app = route(Router::new().route("/", post(count)).layer(sessions));
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let (app, cookie) = (app.clone(), cookie.clone());
        requests.spawn(async move {
            let body = send(&app, Some(&cookie)).await.into_body();
            let body = axum::body::to_bytes(body, 100).await.unwrap();
            String::from_utf8(body.to_vec()).unwrap().parse::<u32>().unwrap()
        });
    }
    requests.join_all().await.into_iter().max().unwrap()
}

#[tokio::test]
async fn requests_of_a_session_lose_no_update_behind_the_layer() {
    let locks = LockManager::in_memory();
    assert_eq!(counted(|app| app.layer(one_at_a_time(&locks).unwrap())).await, 11);
    assert!(counted(|app| app).await < 11, "without the lock, updates are lost");
}

#[tokio::test]
async fn a_request_without_a_session_or_with_two_is_refused() {
    let locks = LockManager::in_memory();
    let app = Router::new().route("/", post(count)).layer(one_at_a_time(&locks).unwrap());
    assert_eq!(send(&app, None).await.status(), 400);
    assert_eq!(send(&app, Some("id=a; id=b")).await.status(), 400);
}
