//! The behaviours that all front ends have in common: the attribute on a handler, and `LockLayer`, whose policy has a
//! template or a function, or is a row of a table. Each behaviour is written once. The path of a test names the front end, as
//! in `lost::layer::a_handler_that_keeps_going_after_a_loss_sends_its_own_response`.

/// Generates a test of each behaviour for each front end, in a module with the name of the front
/// end.
macro_rules! on_each_front_end {
    ($($behaviour:ident,)+) => {
        on_each_front_end! { @one attribute: Attribute, $($behaviour)+ }
        on_each_front_end! { @one layer: Layer, $($behaviour)+ }
        on_each_front_end! { @one layer_from_fn: LayerFromFn, $($behaviour)+ }
        on_each_front_end! { @one table: Table, $($behaviour)+ }
    };
    (@one $module:ident: $front_end:ident, $($behaviour:ident)+) => {
        mod $module {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour(crate::front_ends::FrontEnd::$front_end).await;
            })+
        }
    };
}

/// Builds an application whose handler for `POST /` is locked by [`KEY`]. The options are written
/// twice: in the form of the attribute, and in the form of the policy.
macro_rules! app {
    (
        $front_end:expr, [$($options:tt)*], [$($calls:tt)*],
        async fn handler($($parameters:tt)*) $(-> $returned:ty)? $body:block
    ) => {{
        #[redlock_axum::redis_lock(key = "order:4711", $($options)*)]
        async fn attribute($($parameters)*) $(-> $returned)? $body

        async fn plain($($parameters)*) $(-> $returned)? $body

        let policy = crate::front_ends::policy($front_end)$($calls)*;
        let [attribute, plain] = [axum::routing::post(attribute), axum::routing::post(plain)];
        crate::front_ends::App::new($front_end, attribute, plain, policy).await
    }};
}

mod detached;
#[cfg(feature = "test-util")]
mod draining;
mod fair;
mod fenced;
mod keeping;
#[cfg(feature = "test-util")]
mod lease;
mod locking;
#[cfg(feature = "test-util")]
mod lost;
mod reentrance;
mod release;
mod renewal;
mod shared;
mod shared_on;
pub(crate) mod stage;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::routing::MethodRouter;
use axum::{Extension, Router};
use http::request::Parts;
use http::{HeaderValue, Method, Request};
use redlock_axum::{KeyError, LockKey, LockManager, LockPolicy, MemoryNode, ScopeLayer};

use crate::support::{Answer, answer, layer, memory, request, table};

/// The key that the macro `app` locks.
const KEY: &str = "order:4711";

/// Returns `POST /` with the header from which [`key`] makes [`KEY`].
fn pay() -> Request<Body> {
    let mut request = request(Method::POST, "/");
    request.headers_mut().insert("x-order", HeaderValue::from_static("4711"));
    request
}

fn key(parts: &Parts) -> Result<LockKey, KeyError> {
    LockKey::new(format!("order:{}", parts.headers["x-order"].to_str().unwrap()))
}

/// Returns a policy that locks [`KEY`].
fn policy(front_end: FrontEnd) -> LockPolicy {
    match front_end {
        FrontEnd::LayerFromFn => LockPolicy::from_fn(key),
        _ => LockPolicy::new(KEY),
    }
}

const SHORT: Duration = Duration::from_millis(100);
/// A lease that ends while its handler runs. Long enough for an acquisition on a busy machine.
const LEASE: Duration = Duration::from_millis(400);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrontEnd {
    Attribute,
    Layer,
    LayerFromFn,
    Table,
}

/// Makes an application whose locks have this manager.
type Build = dyn Fn(&LockManager) -> Router<LockManager> + Send + Sync;

/// An application with its own node, built by the macro `app`.
#[derive(Clone)]
struct App {
    build: Arc<Build>,
    locks: LockManager,
    node: MemoryNode,
}

impl App {
    async fn new(
        front_end: FrontEnd,
        attribute: MethodRouter<LockManager>,
        plain: MethodRouter<LockManager>,
        policy: LockPolicy,
    ) -> Self {
        let (locks, node) = memory().await;
        let build = move |locks: &LockManager| {
            let (plain, policy) = (Router::new().route("/", plain.clone()), policy.clone());
            match front_end {
                FrontEnd::Attribute => Router::new().route("/", attribute.clone()),
                FrontEnd::Layer | FrontEnd::LayerFromFn => plain.layer(layer(locks, policy)),
                FrontEnd::Table => plain.layer(table(locks, [policy.route("/")])),
            }
        };
        Self { build: Arc::new(build), locks, node }
    }

    /// Uses the node and the manager of another application.
    fn on(self, other: &Self) -> Self {
        Self { locks: other.locks.clone(), node: other.node.clone(), ..self }
    }

    /// Wraps the application that the front end has locked.
    fn around<F>(self, outer: F) -> Self
    where
        F: Fn(Router<LockManager>, &LockManager) -> Router<LockManager> + Send + Sync + 'static,
    {
        let inner = self.build;
        Self { build: Arc::new(move |locks| outer(inner(locks), locks)), ..self }
    }

    /// Adds an extension that the handler can extract, beside the [`MemoryNode`].
    fn with<T: Clone + Send + Sync + 'static>(self, extension: T) -> Self {
        self.around(move |router, _| router.layer(Extension(extension.clone())))
    }

    /// Returns the application with its manager.
    fn router(&self) -> Router {
        let router = (self.build)(&self.locks).layer(Extension(self.node.clone()));
        router.layer(ScopeLayer::new(&self.locks)).with_state(self.locks.clone())
    }

    /// Sends `POST /`. Panics if the response takes more than ten seconds.
    async fn post(&self) -> Answer {
        answer(&self.router(), pay()).await
    }

    /// Returns the rest of the lease, on the node.
    fn time_to_live(&self) -> Option<Duration> {
        self.node.time_to_live(KEY)
    }
}
