//! The type of a handler's output: inference in its body, the conversion of a refusal, and imports.

use std::fmt::{Debug, Display};

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get as on_get;
use axum::{Json, Router};
use redlock_axum::{LockRejection, redis_lock};

use crate::support::{app, get, hold, memory};

/// Without the return type of the handler, the compiler could not infer the types in these bodies.
#[tokio::test]
async fn the_body_of_a_handler_knows_its_return_type() {
    #[redis_lock(key = "a")]
    async fn coerces(Path(text): Path<String>) -> Result<String, Box<dyn IntoBoxed>> {
        if text == "x" {
            return Err(Box::new(418));
        }
        let mut text = text;
        let text: &mut String = &mut text;
        Ok(text.split_off(0))
    }

    #[redis_lock(key = "a")]
    async fn into(Path(text): Path<String>) -> Result<Html<String>, Failure> {
        let number: u8 = text.parse()?;
        if number == 0 {
            Err("zero")?;
        }
        Ok(Html(number.to_string()))
    }

    #[redis_lock(key = "a")]
    async fn diverges(Path(text): Path<String>) -> Json<u8> {
        loop {
            if let Ok(number) = text.parse() {
                return Json(number);
            }
        }
    }

    #[redis_lock(key = "a")]
    async fn panics(Path(text): Path<String>) -> Result<String, StatusCode> {
        if text.is_empty() { unreachable!("a path has a text") } else { Ok(text) }
    }

    #[redis_lock(key = "a")]
    async fn nothing(Path(text): Path<String>) {
        if text == "7" {
            return;
        }
        unreachable!("{text}");
    }

    #[redis_lock(key = "a")]
    async fn tuple(Path(text): Path<String>) -> (StatusCode, impl IntoResponse) {
        if text == "x" {
            return (StatusCode::CREATED, Html("x".into()));
        }
        (StatusCode::ACCEPTED, Html(text))
    }

    #[redis_lock(key = "a")]
    async fn opaque(Path(text): Path<String>) -> impl IntoResponse {
        let number: u8 = text.parse().map_err(|_| StatusCode::IM_A_TEAPOT)?;
        Ok::<_, StatusCode>(number.to_string())
    }

    let (locks, node) = memory().await;
    let routes = Router::new()
        .route("/coerces/{text}", on_get(coerces))
        .route("/into/{text}", on_get(into))
        .route("/diverges/{text}", on_get(diverges))
        .route("/panics/{text}", on_get(panics))
        .route("/nothing/{text}", on_get(nothing))
        .route("/tuple/{text}", on_get(tuple))
        .route("/opaque/{text}", on_get(opaque));
    let app = app(routes, &locks);
    for (path, status, body) in [
        ("/coerces/7", 200, "7"),
        ("/coerces/x", 418, ""),
        ("/into/7", 200, "7"),
        ("/into/0", 400, "zero"),
        ("/into/x", 400, "invalid digit found in string"),
        ("/diverges/7", 200, "7"),
        ("/panics/7", 200, "7"),
        ("/nothing/7", 200, ""),
        ("/tuple/7", 202, "7"),
        ("/tuple/x", 201, "x"),
        ("/opaque/7", 200, "7"),
        ("/opaque/x", 418, ""),
    ] {
        let answer = get(&app, path).await;
        assert_eq!((answer.status.as_u16(), &*answer.body), (status, body), "{path}");
        assert!(node.is_empty(), "{path}");
    }
}

/// An error that a body reaches by an unsized coercion.
trait IntoBoxed: Send {
    fn status(&self) -> u16;
}

impl IntoBoxed for u16 {
    fn status(&self) -> u16 {
        *self
    }
}

impl IntoResponse for Box<dyn IntoBoxed> {
    fn into_response(self) -> Response {
        StatusCode::from_u16(self.status()).unwrap().into_response()
    }
}

/// An error with conversions from other errors.
struct Failure(String);

impl From<std::num::ParseIntError> for Failure {
    fn from(error: std::num::ParseIntError) -> Self {
        Self(error.to_string())
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (StatusCode::BAD_REQUEST, self.0).into_response()
    }
}

/// An error with a conversion from `LockRejection`.
struct Own(StatusCode);

impl From<LockRejection> for Own {
    fn from(rejection: LockRejection) -> Self {
        Self(rejection.status())
    }
}

impl IntoResponse for Own {
    fn into_response(self) -> Response {
        (self.0, "own").into_response()
    }
}

/// A response with a type parameter that has bounds.
struct Page<T: Debug + Display>(T);

impl<T: Debug + Display> IntoResponse for Page<T> {
    fn into_response(self) -> Response {
        self.0.to_string().into_response()
    }
}

/// A `Result` that contains an `impl Trait` has an error type that the attribute can name. Replacing the `impl Trait`
/// by a type without its bounds must neither fail to compile nor lose the conversion.
#[tokio::test]
async fn the_error_of_a_result_converts_the_refusal_whatever_the_value_is() {
    #[redis_lock(key = "held")]
    async fn opaque_part() -> Result<impl IntoResponse, Own> {
        Ok("done")
    }

    #[redis_lock(key = "held")]
    async fn opaque_argument() -> Result<Page<impl Debug + Display>, Own> {
        Ok(Page("done"))
    }

    #[redis_lock(key = "held")]
    async fn generic<E: From<LockRejection> + IntoResponse>() -> Result<&'static str, E> {
        Ok("done")
    }

    #[redis_lock(key = "held")]
    async fn opaque_in_tuple() -> Result<(StatusCode, impl IntoResponse), Own> {
        Ok((StatusCode::OK, "done"))
    }

    let (locks, _) = memory().await;
    let routes = Router::new()
        .route("/part", on_get(opaque_part))
        .route("/argument", on_get(opaque_argument))
        .route("/generic", on_get(generic::<Own>))
        .route("/tuple", on_get(opaque_in_tuple));
    let app = app(routes, &locks);
    let paths = ["/part", "/argument", "/generic", "/tuple"];
    for path in paths {
        assert_eq!(get(&app, path).await.body, "done", "{path}");
    }
    let _guard = hold(&locks, "held").await;
    for path in paths {
        let answer = get(&app, path).await;
        assert_eq!((answer.status.as_u16(), &*answer.body), (409, "own"), "{path}");
    }
}

/// The generated signature must not be the only place of an imported name, because the import would be unused.
#[tokio::test]
async fn an_import_that_only_a_return_type_names_is_used() {
    mod strict {
        #![forbid(unused)]

        use axum::extract::Path;
        use axum::response::IntoResponse;
        use redlock_axum::redis_lock;

        #[redis_lock(key = "a:{id}")]
        pub(super) async fn opaque(Path(id): Path<u8>) -> impl IntoResponse {
            id.to_string()
        }
    }

    mod part {
        #![forbid(unused)]

        use axum::http::StatusCode;
        use axum::response::IntoResponse;
        use redlock_axum::redis_lock;

        #[redis_lock(key = "a")]
        pub(super) async fn part() -> Result<impl IntoResponse, StatusCode> {
            Ok("part")
        }

        #[redis_lock(key = "a")]
        pub(super) async fn captures() -> Result<impl IntoResponse + use<>, StatusCode> {
            Ok("captures")
        }
    }

    let (locks, _) = memory().await;
    let routes = Router::new()
        .route("/opaque/{id}", on_get(strict::opaque))
        .route("/part", on_get(part::part))
        .route("/captures", on_get(part::captures));
    let app = app(routes, &locks);
    assert_eq!(get(&app, "/opaque/7").await.body, "7");
    assert_eq!(get(&app, "/part").await.body, "part");
    assert_eq!(get(&app, "/captures").await.body, "captures");
}

/// Only the types `impl ..` are mentioned in a function of their own, which has no `Self` and no parameters of the `impl`.
#[tokio::test]
async fn an_output_may_name_the_type_around_the_handler() {
    struct Refused<const CODE: u16>;

    impl<const CODE: u16> From<LockRejection> for Refused<CODE> {
        fn from(_: LockRejection) -> Self {
            Self
        }
    }

    impl<const CODE: u16> IntoResponse for Refused<CODE> {
        fn into_response(self) -> Response {
            StatusCode::from_u16(CODE).unwrap().into_response()
        }
    }

    impl<const CODE: u16> Refused<CODE> {
        #[redis_lock(key = "a")]
        async fn own() -> Result<impl IntoResponse, Self> {
            Ok("own")
        }

        #[redis_lock(key = "a")]
        async fn generic() -> Result<impl IntoResponse, Refused<CODE>> {
            Ok("generic")
        }

        #[redis_lock(key = "a")]
        async fn inside() -> Result<Json<impl serde::Serialize + PartialEq<Self>>, Self> {
            Ok(Json(7))
        }
    }

    impl<const CODE: u16> PartialEq<Refused<CODE>> for i32 {
        fn eq(&self, _: &Refused<CODE>) -> bool {
            false
        }
    }

    type Teapot = Refused<418>;
    let (locks, _) = memory().await;
    let app = Router::new()
        .route("/own", on_get(Teapot::own))
        .route("/generic", on_get(Teapot::generic))
        .route("/inside", on_get(Teapot::inside))
        .with_state(locks.clone());
    assert_eq!(get(&app, "/own").await.body, "own");
    let _held = hold(&locks, "a").await;
    for path in ["/own", "/generic", "/inside"] {
        assert_eq!(get(&app, path).await.status, 418, "{path}");
    }
}
