//! The response of a handler to a request whose lock was refused, or lost.
#![allow(
    clippy::needless_pass_by_value,
    reason = "functions for `on_reject` take the rejection by value"
)]

use std::future::pending;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::http::header::RETRY_AFTER;
use axum::http::{Method, StatusCode};
use axum::response::{ErrorResponse, IntoResponse, Response};
use axum::routing::get as on_get;
use redlock_axum::{
    FencedLock, HeldLock, LockError, LockRejection, RejectionKind, UnderLock, redis_lock,
};
use redlock_logs::Logs;

use crate::support::{Answer, app, get, hold, memory, send, until_logged};

/// An error with a conversion from `LockRejection`.
struct Rejected(LockRejection);

impl From<LockRejection> for Rejected {
    fn from(rejection: LockRejection) -> Self {
        Self(rejection)
    }
}

impl IntoResponse for Rejected {
    fn into_response(self) -> Response {
        (self.0.status(), format!("rejected: {}", self.0.detail())).into_response()
    }
}

/// An error with a conversion from `LockError`, which is for functions with `manager`.
struct OfLock(LockError);

impl From<LockError> for OfLock {
    fn from(error: LockError) -> Self {
        Self(error)
    }
}

impl IntoResponse for OfLock {
    fn into_response(self) -> Response {
        (StatusCode::IM_A_TEAPOT, format!("failed: {}", self.0)).into_response()
    }
}

type Alias<T> = Result<T, Rejected>;

#[redis_lock(key = "held")]
async fn by_rejection() -> Result<&'static str, Rejected> {
    Ok("done")
}

#[redis_lock(key = "held")]
async fn by_alias() -> Alias<&'static str> {
    Ok("done")
}

#[redis_lock(key = "held")]
async fn by_lock_error() -> Result<(), OfLock> {
    Ok(())
}

/// A type parameter's bounds select the conversion.
#[redis_lock(key = "held")]
async fn generic<E: From<LockRejection> + IntoResponse>() -> Result<(), E> {
    Ok(())
}

/// `ErrorResponse` is no `IntoResponse` itself.
#[redis_lock(key = "held")]
async fn by_axum() -> axum::response::Result<(), ErrorResponse> {
    Ok(())
}

#[redis_lock(key = "held")]
async fn without_conversion() -> Result<(), StatusCode> {
    Ok(())
}

#[redis_lock(key = "held")]
async fn opaque() -> impl IntoResponse {
    Ok::<_, Rejected>("done")
}

#[redis_lock(key = "held", on_reject = respond)]
async fn by_function() -> Result<(), Rejected> {
    Ok(())
}

fn respond(rejection: LockRejection) -> (StatusCode, &'static str) {
    (rejection.status(), "by function")
}

#[redis_lock(key = "held", on_reject = |rejection: LockRejection| (rejection.status(), "by closure"))]
async fn by_closure() -> &'static str {
    "done"
}

#[tokio::test]
async fn the_first_conversion_of_the_documented_order_makes_the_response() {
    let (locks, _) = memory().await;
    let routes = Router::new()
        .route("/rejection", on_get(by_rejection))
        .route("/alias", on_get(by_alias))
        .route("/lock-error", on_get(by_lock_error))
        .route("/generic", on_get(generic::<Rejected>))
        .route("/axum", on_get(by_axum))
        .route("/none", on_get(without_conversion))
        .route("/opaque", on_get(opaque))
        .route("/function", on_get(by_function))
        .route("/closure", on_get(by_closure));
    let app = app(routes, &locks);
    let guard = hold(&locks, "held").await;
    let rejection =
        "rejected: another request is being processed for this resource; try again later";
    for (path, status, body) in [
        ("/rejection", 409, rejection),
        ("/alias", 409, rejection),
        ("/lock-error", 409, r#"{"type":"about:blank","title":"Conflict""#),
        ("/generic", 409, rejection),
        ("/axum", 409, r#"{"type":"about:blank","title":"Conflict""#),
        ("/none", 409, r#"{"type":"about:blank","title":"Conflict""#),
        ("/opaque", 409, r#"{"type":"about:blank","title":"Conflict""#),
        ("/function", 409, "by function"),
        ("/closure", 409, "by closure"),
    ] {
        let answer = get(&app, path).await;
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.body.starts_with(body), "{path}: {}", answer.body);
    }
    guard.release().await.unwrap();
    for path in ["/rejection", "/lock-error", "/opaque", "/closure"] {
        assert_eq!(get(&app, path).await.status, StatusCode::OK, "{path}");
    }
}

mod lost {
    use super::*;

    #[redis_lock(key = "{id}", expire = "400ms", on_lost = abort)]
    async fn by_rejection(Path(id): Path<u32>) -> Result<(), Rejected> {
        pending::<()>().await;
        Ok(())
    }

    #[redis_lock(key = "{id}", expire = "400ms", on_lost = abort)]
    async fn without_conversion(Path(id): Path<u32>) -> Result<(), OfLock> {
        pending::<()>().await;
        Ok(())
    }

    #[redis_lock(key = "{id}", expire = "400ms", on_lost = abort, on_reject = respond)]
    async fn by_function(Path(id): Path<u32>) -> &'static str {
        pending::<()>().await;
        "done"
    }

    #[tokio::test]
    async fn a_lost_lock_is_converted_as_a_refused_one_is() {
        let (locks, _) = memory().await;
        let routes = Router::new()
            .route("/rejection/{id}", on_get(by_rejection))
            .route("/none/{id}", on_get(without_conversion))
            .route("/function/{id}", on_get(by_function));
        let app = app(routes, &locks);
        let guard = hold(&locks, "0").await;
        let lost = "the request was stopped, because its lock for this resource was lost";
        for (path, refused, stopped) in [
            ("rejection", (409, "rejected: another"), (503, &*format!("rejected: {lost}"))),
            ("none", (409, "{\"type\""), (503, "{\"type\"")),
            ("function", (409, "by function"), (503, "by function")),
        ] {
            for (id, (status, body)) in [(0, refused), (1, stopped)] {
                let answer = get(&app, &format!("/{path}/{id}")).await;
                assert_eq!(answer.status, status, "{path} {id}");
                assert!(answer.body.starts_with(body), "{path} {id}: {}", answer.body);
            }
        }
        guard.release().await.unwrap();
    }
}

/// A value of a request in the key is a mistake of the client, also with an own error.
#[tokio::test]
async fn an_invalid_key_reaches_the_conversion() {
    #[redis_lock(key = "order:{id:u64}", on_reject = kind)]
    async fn pay(Path(id): Path<String>) -> String {
        id
    }

    fn kind(rejection: LockRejection) -> String {
        assert_eq!(rejection.kind(), RejectionKind::InvalidKey);
        rejection.detail()
    }

    let (locks, _) = memory().await;
    let app = app(Router::new().route("/{id}", on_get(pay)), &locks);
    let detail = "the parameter id is not a whole number from 0 to 18446744073709551615";
    assert_eq!(get(&app, "/x").await.body, detail);
    assert_eq!(get(&app, "/007").await.body, "007");
}

/// The response may hide the reason.
#[tokio::test]
async fn a_converted_rejection_is_logged() {
    let (locks, _) = memory().await;
    let app = app(
        Router::new()
            .route("/rejection", on_get(by_rejection))
            .route("/function", on_get(by_function)),
        &locks,
    );
    locks.shutdown().await;
    for path in ["/rejection", "/function"] {
        let logs = Logs::collect();
        until_logged(&logs, "WARN", "a request was rejected", async || {
            assert_ne!(get(&app, path).await.status, StatusCode::OK);
        })
        .await;
    }
}

#[tokio::test]
async fn the_error_about_a_handler_without_a_lock_has_its_route() {
    #[redis_lock(key = "k", installed)]
    async fn installed() {}

    let app = Router::new()
        .route("/held/{id}", on_get(async |_: HeldLock| ()))
        .route("/fenced/{id}", on_get(async |_: FencedLock| ()))
        .route("/under/{id}", on_get(async |_: UnderLock<Method>| ()))
        .route("/installed/{id}", on_get(installed));
    for name in ["held", "fenced", "under", "installed"] {
        let logs = Logs::collect();
        let answer = get(&app, &format!("/{name}/42")).await;
        assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR, "{name}");
        let route = format!("route=\"/{name}/{{id}}\"");
        assert_eq!(logs.count("ERROR", &route), 1, "{name}: {:?}", logs.lines());
    }
}

#[redis_lock(key = "held", contended_status = 423, retry_after_max = "2s")]
async fn literals() {}

#[redis_lock(
    key = "held",
    contended_status = StatusCode::TOO_MANY_REQUESTS,
    retry_after_max = 1,
    time_unit = "minutes"
)]
async fn constants() {}

const STATUS: u16 = 503;
const LONGEST: Duration = Duration::from_secs(3);

#[redis_lock(key = "held", contended_status = STATUS, retry_after_max = LONGEST)]
async fn own_constants() {}

struct Settings;

impl Settings {
    const STATUS: StatusCode = StatusCode::LOCKED;

    #[redis_lock(key = "held", contended_status = Self::STATUS, on_reject = describe)]
    async fn associated() -> &'static str {
        let _ = Self::STATUS;
        "done"
    }
}

fn describe(rejection: LockRejection) -> (StatusCode, String) {
    (rejection.status(), format!("{:?}", rejection.retry_after()))
}

#[redis_lock(key = "held", retry_after_max = "9s", on_reject = describe)]
async fn response_of_the_application() {}

#[tokio::test]
async fn the_status_and_the_longest_retry_after_are_arguments() {
    let (locks, _) = memory().await;
    let routes = Router::new()
        .route("/literals", on_get(literals))
        .route("/constants", on_get(constants))
        .route("/own", on_get(own_constants))
        .route("/associated", on_get(Settings::associated))
        .route("/response", on_get(response_of_the_application));
    let app = app(routes, &locks);
    let _guard = hold(&locks, "held").await;
    let retry_after = |answer: &Answer| answer.headers[RETRY_AFTER].to_str().unwrap().to_owned();
    for (path, status, longest) in
        [("/literals", 423, "2"), ("/constants", 429, "60"), ("/own", 503, "3")]
    {
        let answer = get(&app, path).await;
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(retry_after(&answer), longest, "{path}");
    }
    let answer = get(&app, "/associated").await;
    assert_eq!((answer.status, &*answer.body), (StatusCode::LOCKED, "Some(5s)"));
    let answer = get(&app, "/response").await;
    assert_eq!((answer.status, &*answer.body), (StatusCode::CONFLICT, "Some(9s)"));
}

/// Handlers whose code stays in place, because it names `Self`.
mod in_place {
    use super::*;

    struct Shop;

    impl Shop {
        const BODY: &str = "done";

        #[redis_lock(key = "held")]
        async fn by_rejection() -> Result<&'static str, Rejected> {
            if Self::BODY.is_empty() {
                return Err(LockRejection::from(LockError::ShutDown).into());
            }
            Ok(Self::BODY)
        }

        #[redis_lock(key = "held")]
        async fn with_opaque_part() -> Result<impl IntoResponse, Rejected> {
            Ok(Self::BODY)
        }

        #[redis_lock(key = "held")]
        async fn opaque() -> impl IntoResponse {
            Self::BODY
        }
    }

    #[tokio::test]
    async fn a_handler_that_names_its_type_has_the_same_conversions() {
        let (locks, _) = memory().await;
        let routes = Router::new()
            .route("/rejection", on_get(Shop::by_rejection))
            .route("/part", on_get(Shop::with_opaque_part))
            .route("/opaque", on_get(Shop::opaque));
        let app = app(routes, &locks);
        let guard = hold(&locks, "held").await;
        for (path, status, body) in [
            ("/rejection", 409, "rejected: another"),
            ("/part", 409, "rejected: another"),
            ("/opaque", 409, r#"{"type""#),
        ] {
            let answer = get(&app, path).await;
            assert_eq!(answer.status, status, "{path}");
            assert!(answer.body.starts_with(body), "{path}: {}", answer.body);
        }
        guard.release().await.unwrap();
        for path in ["/rejection", "/part", "/opaque"] {
            assert_eq!(get(&app, path).await.body, "done", "{path}");
        }
    }
}

/// A middleware can count the refused requests.
#[tokio::test]
async fn a_response_of_the_application_has_the_rejection_as_an_extension() {
    let (locks, _) = memory().await;
    let routes = Router::new()
        .route("/none", on_get(without_conversion))
        .route("/rejection", on_get(by_rejection))
        .route("/lock-error", on_get(by_lock_error))
        .route("/function", on_get(by_function));
    let app = app(routes, &locks);
    let _guard = hold(&locks, "held").await;
    for path in ["/none", "/rejection", "/lock-error", "/function"] {
        let response = send(&app, Method::GET, path).await;
        let rejection = response.extensions().get::<LockRejection>();
        assert_eq!(rejection.map(LockRejection::kind), Some(RejectionKind::Contended), "{path}");
        assert_eq!(rejection.unwrap().headers()[RETRY_AFTER], "5", "{path}");
    }
}
