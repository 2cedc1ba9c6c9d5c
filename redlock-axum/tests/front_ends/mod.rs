//! The behaviours that all front ends have in common: the attribute on a handler, `LockLayer`, whose key
//! is made from a template or by a function, and `LockPolicies`. Each behaviour is written once. The path of a test names the front end, as
//! in `lost::layer::a_handler_that_keeps_going_after_a_loss_sends_its_own_response`.

/// Generates a test of each behaviour for each front end, in a module with the name of the front
/// end.
macro_rules! on_each_front_end {
    ($($behaviour:ident,)+) => {
        on_each_front_end! { @one attribute: Attribute, $($behaviour)+ }
        on_each_front_end! { @one layer: Layer, $($behaviour)+ }
        on_each_front_end! { @one layer_from_fn: LayerFromFn, $($behaviour)+ }
        on_each_front_end! { @one policies: Policies, $($behaviour)+ }
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
/// twice: in the form of the attribute, and in the form of the layer and the policy.
macro_rules! app {
    (
        $front_end:expr, [$($options:tt)*], [$($calls:tt)*],
        async fn handler($($parameters:tt)*) $(-> $returned:ty)? $body:block
    ) => {{
        #[redlock_axum::redis_lock(key = "order:4711", $($options)*)]
        async fn attribute($($parameters)*) $(-> $returned)? $body

        async fn plain($($parameters)*) $(-> $returned)? $body

        let layer = match $front_end {
            crate::front_ends::FrontEnd::LayerFromFn => redlock_axum::LockLayer::from_fn(crate::front_ends::key),
            _ => redlock_axum::LockLayer::new(crate::front_ends::KEY),
        };
        let layer = layer$($calls)*;
        let policy = redlock_axum::LockPolicy::new("/", crate::front_ends::KEY)$($calls)*;
        let [attribute, plain] = [axum::routing::post(attribute), axum::routing::post(plain)];
        crate::front_ends::App::new($front_end, attribute, plain, layer, policy).await
    }};
}

mod detached;
mod fair;
mod fenced;
mod keeping;
mod lease;
mod locking;
mod lost;
mod reentrance;
mod release;
mod renewal;
mod shared;
mod shared_on;
pub(crate) mod stage;

use std::time::Duration;

use axum::body::Body;
use axum::routing::MethodRouter;
use axum::{Extension, Router};
use http::request::Parts;
use http::{HeaderValue, Method, Request};
use redlock_axum::{LockLayer, LockManager, LockPolicies, LockPolicy, LocksLayer, MemoryNode};

use crate::support::{Answer, answer, memory, request};

/// The key that the macro `app` locks.
const KEY: &str = "order:4711";

/// Returns `POST /` with the header from which [`key`] makes [`KEY`].
fn pay() -> Request<Body> {
    let mut request = request(Method::POST, "/");
    request.headers_mut().insert("x-order", HeaderValue::from_static("4711"));
    request
}

fn key(parts: &Parts) -> String {
    format!("order:{}", parts.headers["x-order"].to_str().unwrap())
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
    Policies,
}

/// An application with its own node, built by the macro `app`.
#[derive(Clone)]
struct App {
    router: Router<LockManager>,
    locks: LockManager,
    node: MemoryNode,
}

impl App {
    async fn new(
        front_end: FrontEnd,
        attribute: MethodRouter<LockManager>,
        plain: MethodRouter<LockManager>,
        layer: LockLayer,
        policy: LockPolicy,
    ) -> Self {
        let (locks, node) = memory().await;
        let router = match front_end {
            FrontEnd::Attribute => Router::new().route("/", attribute),
            FrontEnd::Layer | FrontEnd::LayerFromFn => Router::new().route("/", plain).layer(layer),
            FrontEnd::Policies => {
                Router::new().route("/", plain).layer(LockPolicies::new([policy]).unwrap())
            }
        };
        Self { router, locks, node }
    }

    /// Uses the node and the manager of another application.
    fn on(self, other: &Self) -> Self {
        Self { locks: other.locks.clone(), node: other.node.clone(), ..self }
    }

    /// Wraps the application that the front end has locked.
    fn around(self, outer: impl FnOnce(Router<LockManager>) -> Router<LockManager>) -> Self {
        Self { router: outer(self.router), ..self }
    }

    /// Adds an extension that the handler can extract, beside the [`MemoryNode`].
    fn with<T: Clone + Send + Sync + 'static>(self, extension: T) -> Self {
        self.around(|router| router.layer(Extension(extension)))
    }

    /// Returns the application with its manager.
    fn router(&self) -> Router {
        let router = self.router.clone().layer(Extension(self.node.clone()));
        router.layer(LocksLayer::new(&self.locks)).with_state(self.locks.clone())
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
