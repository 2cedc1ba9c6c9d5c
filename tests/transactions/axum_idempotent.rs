//! A layer that stores responses stores the refusal of a lock, too.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::routing::post;
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use redlock_axum::{LockLayer, LockManager, LockPolicy};
use ruts::store::Ttl;
use ruts::store::moka::MokaStore;
use ruts::{CookieOptions, Session, SessionLayer};
use tower::ServiceExt;
use tower_cookies::CookieManagerLayer;

async fn pay(app: &Router, cookie: &str, key: &str) -> StatusCode {
    let request =
        Request::post("/pay").header(header::COOKIE, cookie).header("idempotency-key", key);
    app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status()
}

/// Returns the statuses of a payment that is refused, and of its repetition after the lock is free.
async fn refused_and_repeated(
    locks: &LockManager,
    options: IdempotentOptions,
    stored: fn(Router, IdempotentLayer<MokaStore>, LockLayer) -> Router,
) -> [u16; 2] {
    async fn login(session: Session<MokaStore>) {
        session.set("user", &1, Ttl::new(300).unwrap(), None).await.unwrap();
    }

    let store = Arc::new(MokaStore::builder().build());
    let options = options.use_idempotency_key_header(Some("idempotency-key"), true);
    let layer = LockLayer::new(locks, LockPolicy::new("payment")).unwrap();
    let paid = Router::new().route("/pay", post(async || "paid"));
    let app = stored(paid, IdempotentLayer::new(options), layer)
        .route("/login", post(login))
        .layer(SessionLayer::new(store).with_cookie_options(CookieOptions::build().name("id")))
        .layer(CookieManagerLayer::new());
    let request = Request::post("/login").body(Body::empty()).unwrap();
    let response = app.clone().oneshot(request).await.unwrap();
    let cookie = response.headers()[header::SET_COOKIE].to_str().unwrap();
    let cookie = cookie.split(';').next().unwrap();

    let guard = locks.lock("payment").acquire().await.unwrap();
    let refused = pay(&app, cookie, "first").await;
    guard.release().await.unwrap();
    [refused.as_u16(), pay(&app, cookie, "first").await.as_u16()]
}

fn stored_outside(paid: Router, idempotent: IdempotentLayer<MokaStore>, lock: LockLayer) -> Router {
    paid.layer(lock).layer(idempotent)
}

fn stored_inside(paid: Router, idempotent: IdempotentLayer<MokaStore>, lock: LockLayer) -> Router {
    paid.layer(idempotent).layer(lock)
}

#[tokio::test]
async fn a_stored_refusal_is_repeated_although_the_lock_is_free() {
    let locks = LockManager::in_memory();
    let options = IdempotentOptions::default;
    assert_eq!(refused_and_repeated(&locks, options(), stored_outside).await, [409, 409]);
    assert_eq!(refused_and_repeated(&locks, options(), stored_inside).await, [409, 200]);
    let options = options().ignore_response_status_code(StatusCode::CONFLICT);
    assert_eq!(refused_and_repeated(&locks, options, stored_outside).await, [409, 200]);
}
