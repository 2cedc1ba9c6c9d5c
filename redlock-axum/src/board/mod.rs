//! A page for operators: the holders of a lock, and the suspects of this process.
//!
//! * [`access`]: the checks of a request, and the headers of each answer.
//! * [`answer`]: the suspects as JSON.
//! * `page.html`: the page.

mod access;
mod answer;
#[cfg(test)]
#[cfg(feature = "test-util")]
mod tests;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::{FromRequest, Request, State};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{Route, get, post};
use axum::{Json, Router, middleware};
use http::request::Parts;
use http::{StatusCode, Uri};
use percent_encoding::percent_decode_str;
use redlock_core::{BreakError, HolderId, KeyState, LockManager, LockStatus, StatusError};
use serde::Deserialize;
use serde_json::{Value, json};
use tower_layer::Layer;
use tower_service::Service;

use crate::rejection::response::problem;

/// The whole page: neither its style nor its script is a file of its own.
const PAGE: &str = include_str!("page.html");

/// Makes a page for operators, which shows **this process**, and the holders of one lock at a time.
///
/// Operators ask "Who holds `order:42`?" and get the [status](LockManager::status) of the lock: the holder with its label, since
/// when, the rest of its lease, the answer of each node, and the waiters. Below stand the nodes and the suspects of this process:
/// locks that it has held for longer than their lease, callers that have waited for more than a second, and locks that it has lost
/// in the last hour. The only action [breaks](LockManager::break_lock) a holder. By default [nobody may](Board::may_break) do it.
///
/// The page shows keys, the names of servers and the labels of processes: it is for operators alone. A [`Board`] is no router until
/// the application has decided who reaches it:
///
/// | | who reaches the page |
/// |---|---|
/// | [`behind(layer)`](Board::behind) | the clients that the layer lets pass, such as a layer that checks the login of operators |
/// | [`local_only()`](Board::local_only) | browsers on this machine |
/// | [`unprotected()`](Board::unprotected) | everybody who reaches the port |
///
/// Nest the router at any path by [`Router::nest_service`], which serves the path with and without a slash at its end.
/// [`Router::nest`] serves it without the slash. A proxy may remove a prefix of the path, because the page asks below its own
/// address.
///
/// # Security
///
/// * The page loads nothing from elsewhere, and no other site may frame it. Its content security policy allows its own script and
///   style by their hashes, and forbids the script to make HTML of texts.
/// * Pages of other sites get no data. Browsers and proxies do not store it.
/// * A break needs a body of JSON, and a header that browsers send for a page of the same origin: `Sec-Fetch-Site` or `Origin`.
///   Without HTTPS, a proxy has to pass on `Host`.
/// * A look-up is a `GET` whose query has the key: the log of a proxy may contain it. The address of the page has the key behind
///   `#`, which browsers do not send.
/// * No answer has a token, a password, or a value of another program.
///
/// # Examples
///
/// ```
/// use axum::extract::Request;
/// use axum::http::StatusCode;
/// use axum::middleware::{Next, from_fn};
/// use axum::response::Response;
/// use axum::Router;
/// use redlock_axum::{LockManager, board};
///
/// #[derive(Clone)]
/// struct Operator {
///     is_on_call: bool,
/// }
///
/// async fn login(mut request: Request, next: Next) -> Result<Response, StatusCode> {
///     let operator: Option<Operator> = None; // from the session of the request
///     request.extensions_mut().insert(operator.ok_or(StatusCode::UNAUTHORIZED)?);
///     Ok(next.run(request).await)
/// }
///
/// # fn app(locks: &LockManager) -> Router {
/// let on_call = |operator: &Operator| operator.is_on_call;
/// let board = board(locks)
///     .may_break(move |parts| parts.extensions.get().is_some_and(on_call))
///     .behind(from_fn(login));
/// Router::new().nest_service("/ops/locks", board)
/// # }
/// # let _ = app(&LockManager::in_memory());
/// ```
pub fn board(locks: &LockManager) -> Board {
    Board { locks: locks.clone(), may_break: Arc::new(|_| false) }
}

/// A page for operators that nobody reaches yet. Made by [`board`], which describes it.
#[must_use = "a board serves nothing until `behind`, `local_only` or `unprotected` is called"]
#[derive(Clone)]
pub struct Board {
    locks: LockManager,
    may_break: Arc<dyn Fn(&Parts) -> bool + Send + Sync>,
}

impl Board {
    /// Sets who may break a lock. Defaults to nobody.
    ///
    /// The function gets the head of the request, with the extensions that the layer of [`behind`](Self::behind) has added. The
    /// board calls it for each break. It also calls it for each look at the process, so that the page shows a button only to a
    /// client that may use it.
    pub fn may_break(self, allowed: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        Self { may_break: Arc::new(allowed), ..self }
    }

    /// Returns the routes behind a layer that lets only operators pass, as by [`Router::layer`].
    ///
    /// A login by a cookie has to protect the page and its data alike. If it redirects, the page asks its reader to sign in again.
    pub fn behind<L, S>(self, layer: L) -> Router<S>
    where
        L: Layer<Route> + Clone + Send + Sync + 'static,
        L::Service: Service<Request> + Clone + Send + Sync + 'static,
        <L::Service as Service<Request>>::Response: IntoResponse + 'static,
        <L::Service as Service<Request>>::Error: Into<Infallible> + 'static,
        <L::Service as Service<Request>>::Future: Send + 'static,
        S: Clone + Send + Sync + 'static,
    {
        self.routes().layer(middleware::from_fn(access::with_headers)).layer(layer)
    }

    /// Returns the routes for browsers on this machine, also through `ssh -L` or `kubectl port-forward`.
    ///
    /// A request is refused with 403, unless
    ///
    /// * the service knows that the address of the client is a loopback address. It does if it is served with
    ///   [`into_make_service_with_connect_info::<SocketAddr>()`](Router::into_make_service_with_connect_info), and not by default;
    /// * its `Host` is `localhost` or a loopback address. Otherwise a page of another site, whose name is made to lead to this
    ///   machine (DNS rebinding), would read the answers;
    /// * no proxy has passed it on, as far as the request shows it: by `Forwarded`, `X-Forwarded-..`, `X-Real-IP` or `Via`, or by
    ///   HTTP/1.0.
    ///
    /// **A proxy on this machine that adds no such header is not noticed**: its clients are local then. Serve the board on a port of
    /// its own, which no proxy knows, or [behind](Self::behind) a login. Every user and every program of this machine reaches the
    /// page.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::net::SocketAddr;
    ///
    /// use redlock_axum::{LockManager, board};
    ///
    /// # async fn serve(locks: &LockManager) -> std::io::Result<()> {
    /// let board = board(locks).may_break(|_| true).local_only();
    /// let listener = tokio::net::TcpListener::bind("127.0.0.1:9090").await?;
    /// axum::serve(listener, board.into_make_service_with_connect_info::<SocketAddr>()).await
    /// # }
    /// ```
    pub fn local_only<S: Clone + Send + Sync + 'static>(self) -> Router<S> {
        let local = self.routes().layer(middleware::from_fn(access::local_only));
        local.layer(middleware::from_fn(access::with_headers))
    }

    /// Returns the routes for everybody who reaches the port, such as an internal one behind a network policy.
    ///
    /// The browser of an operator reaches that port, too. A page of another site whose name is made to lead to it (DNS
    /// rebinding) can read the answers, and break locks if [everybody may](Self::may_break).
    pub fn unprotected<S: Clone + Send + Sync + 'static>(self) -> Router<S> {
        self.routes().layer(middleware::from_fn(access::with_headers))
    }

    fn routes<S>(self) -> Router<S> {
        let data = Router::new()
            .route("/status", get(status))
            .route("/process", get(process))
            .route("/break", post(break_holder).layer(access::same_origin()))
            .layer(middleware::from_fn(access::refuse_other_sites));
        Router::new().route("/", get(Html(PAGE))).merge(data).with_state(self)
    }
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board").field("locks", &self.locks).finish_non_exhaustive()
    }
}

/// A refused request, with the reason for the operator.
#[derive(Debug)]
struct Refused {
    status: StatusCode,
    reason: String,
}

impl Refused {
    fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into() }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        problem(self.status, "refused", &self.reason, None)
    }
}

impl From<StatusError> for Refused {
    fn from(error: StatusError) -> Self {
        let status = match error {
            StatusError::InvalidKey(_) => StatusCode::BAD_REQUEST,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.diagnostics().to_string())
    }
}

impl From<BreakError> for Refused {
    fn from(error: BreakError) -> Self {
        let status = match error {
            BreakError::InvalidOption(_) => StatusCode::BAD_REQUEST,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.diagnostics().to_string())
    }
}

/// `GET /status?key=order:42`: the holders of a lock.
async fn status(State(board): State<Board>, uri: Uri) -> Result<Json<Value>, Refused> {
    let mut pairs = uri.query().unwrap_or_default().split('&');
    let key = pairs.find_map(|pair| pair.strip_prefix("key=")).unwrap_or_default();
    let key = percent_decode_str(key).decode_utf8();
    let key = key.map_err(|_| Refused::new(StatusCode::BAD_REQUEST, "the key is not UTF-8"))?;
    let mut answer = json!(board.locks.status(key).await?);
    answer["process"] = json!({ "label": board.locks.owner_label().map(ToString::to_string) });
    answer["at"] = answer::seconds(SystemTime::now()).into();
    Ok(Json(answer))
}

/// `GET /process`: the nodes and the suspects of this process.
async fn process(State(board): State<Board>, request: Request) -> Json<Value> {
    let may_break = (board.may_break)(&request.into_parts().0);
    Json(answer::process(&board.locks.snapshot(), may_break))
}

/// `POST /break`: removes the holder that the page has shown, and no other.
async fn break_holder(
    State(board): State<Board>,
    request: Request,
) -> Result<Json<Value>, Refused> {
    let (parts, body) = request.into_parts();
    access::check_origin(&parts)?;
    if !(board.may_break)(&parts) {
        return Err(Refused::new(StatusCode::FORBIDDEN, "you may not break locks on this page"));
    }
    let order = Json::<Order>::from_request(Request::from_parts(parts, body), &()).await;
    let Json(order) =
        order.map_err(|refusal| Refused::new(refusal.status(), refusal.body_text()))?;
    // In a task of its own: a client that leaves must not leave the holder on a part of the nodes.
    let ended = tokio::spawn(async move { order.execute(&board.locks).await }).await;
    ended.unwrap_or_else(|error| {
        Err(Refused::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the break: {error}")))
    })
}

/// A break that an operator has confirmed.
#[derive(Deserialize)]
struct Order {
    key: String,
    holder: String,
    reason: String,
}

impl Order {
    async fn execute(self, locks: &LockManager) -> Result<Json<Value>, Refused> {
        let Self { key, holder, reason } = &self;
        let id: Result<HolderId, _> = holder.parse();
        let id = id.map_err(|error| Refused::new(StatusCode::BAD_REQUEST, error.to_string()))?;
        let status = locks.status(key).await?;
        let found = status.holders().iter().find(|holder| holder.id() == id);
        let found = found.ok_or_else(|| self.gone(&status))?;
        match locks.break_lock(key, found).reason(reason.trim()).await {
            Ok(broken) => {
                let mut answer = json!(broken);
                answer["key"] = json!(status.key().as_str());
                answer["broken"] = json!(found);
                Ok(Json(answer))
            }
            Err(BreakError::NotHeld { .. }) => Err(self.gone(&status)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the refusal for a holder that does not have the lock, with the present ones.
    fn gone(&self, status: &LockStatus) -> Refused {
        let Self { key, holder, .. } = self;
        let others = status.holders().iter().map(|other| other.id().to_string());
        let present = match &*others.filter(|other| other != holder).collect::<Vec<_>>() {
            [] if status.state() == KeyState::Foreign => "its value is no lock".to_owned(),
            [] => "no other holder was seen".to_owned(),
            ids => format!("its holder is {}", ids.join(", ")),
        };
        let reason = format!(
            "the holder {holder} does not have the lock {key}, or no longer; {present}. Nothing was changed"
        );
        Refused::new(StatusCode::CONFLICT, reason)
    }
}
