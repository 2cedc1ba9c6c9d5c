//! A layer receives the bodies of requests before it requests the locks, so that slow clients hold none.

mod attribute;
mod buffered;
mod connections;
#[cfg(feature = "test-util")]
mod hostile_clients;
mod limits;
#[cfg(feature = "test-util")]
mod streamed;

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::routing::post as on_post;
use axum::{Extension, Router};
use http::{HeaderMap, Request};
use http_body::{Frame, SizeHint};
use redlock_axum::{LockManager, LockPolicy};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::front_ends::stage::Stage;
use crate::support::{Answer, answer, layer};

/// A lease that ends while a body arrives. Long enough for an acquisition on a busy machine.
#[cfg(feature = "test-util")]
const LEASE: Duration = Duration::from_millis(400);

type Piece = Result<Frame<Bytes>, &'static str>;

/// The client of one request, which sends the pieces of its body one by one.
pub(crate) struct Client {
    pieces: mpsc::UnboundedSender<Piece>,
    polls: watch::Receiver<usize>,
}

struct SlowBody {
    pieces: mpsc::UnboundedReceiver<Piece>,
    polls: watch::Sender<usize>,
    length: Option<u64>,
}

/// Returns a body and its client. With a `length`, the client has announced it.
pub(crate) fn slow_body(length: Option<u64>) -> (Client, Body) {
    let (pieces, receiver) = mpsc::unbounded_channel();
    let (sender, polls) = watch::channel(0);
    let body = SlowBody { pieces: receiver, polls: sender, length };
    (Client { pieces, polls }, Body::new(body))
}

impl HttpBody for SlowBody {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        let this = self.get_mut();
        this.polls.send_modify(|polls| *polls += 1);
        this.pieces.poll_recv(cx)
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Client {
    pub(crate) fn send(&self, piece: impl Into<Bytes>) {
        // The request may be answered already.
        let _ = self.pieces.send(Ok(Frame::data(piece.into())));
    }

    fn send_trailers(&self, trailers: HeaderMap) {
        let _ = self.pieces.send(Ok(Frame::trailers(trailers)));
    }

    /// Ends the body with an error.
    fn break_off(&self) {
        let _ = self.pieces.send(Err("the client has left"));
    }

    /// Waits until the body was asked for a piece this number of times, and has none.
    pub(crate) async fn until_polled(&mut self, polls: usize) {
        let polled = self.polls.wait_for(|count| *count >= polls);
        timeout(Duration::from_secs(10), polled).await.unwrap().unwrap();
    }

    fn was_polled(&self) -> bool {
        *self.polls.borrow() > 0
    }
}

fn upload(body: Body) -> Request<Body> {
    Request::post("/").body(body).unwrap()
}

/// Sends a request in a task of its own.
fn start(app: &Router, body: Body) -> JoinHandle<Answer> {
    let app = app.clone();
    tokio::spawn(async move { answer(&app, upload(body)).await })
}

/// Returns an application that locks `order` by this policy. Its handler enters the stage with the whole body, and answers
/// with the body's length.
fn counting(locks: &LockManager, stage: &Stage, policy: LockPolicy) -> Router {
    async fn count(Extension(stage): Extension<Stage>, body: Bytes) -> String {
        stage.enter().await;
        body.len().to_string()
    }

    let handler = on_post(count).route_layer(layer(locks, policy));
    Router::new().route("/", handler).layer(Extension(stage.clone()))
}

fn order() -> LockPolicy {
    LockPolicy::new("order")
}
