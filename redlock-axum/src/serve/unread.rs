//! The part of a request's body that no handler reads.
//!
//! hyper closes a connection of HTTP/1 whose request was not read to its end, and looks only at a request that is read
//! for the end of its connection. HTTP/2 needs none of this.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::Version;
use http_body_util::BodyExt;
use pin_project_lite::pin_project;
use redlock_core::LockManager;
use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use super::buffered::fault;
use super::wrap::{BodyFrame, Wrapper, wrap};
use crate::rejection::{BodyFault, LockRejection};

/// The most bytes of a body that are read beside the work of its request: axum's default limit of a body.
const READ_BESIDE_WORK: u64 = 2 << 20;

/// The longest pause of a client that sends the rest of a refused upload.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The longest time for the rest of a refused upload, unless the manager drains.
const LONGEST_REST: Duration = Duration::from_secs(30);

/// The part of a body that nobody has read, once its readers have left. Empty for a request without a body, and over HTTP/2.
#[derive(Debug, Clone)]
pub struct Unread(Option<Arc<Mutex<Option<Body>>>>);

impl Unread {
    /// Observes the body of a request, so that the part that is not read is found here when the body is dropped.
    pub(crate) fn of(request: &mut Request) -> Self {
        if request.version() >= Version::HTTP_2 || request.body().is_end_stream() {
            return Self(None);
        }
        let leftover = Arc::default();
        let body = std::mem::take(request.body_mut());
        *request.body_mut() =
            wrap(body, Lent { leftover: Arc::clone(&leftover), has_ended: false });
        Self(Some(leftover))
    }

    /// Reads the rest of the body after the response, which refuses the request. A connection that is closed before would
    /// lose the response of a client that is still sending.
    pub(crate) fn read_after(&self, response: Response, locks: &LockManager) -> Response {
        let Some(leftover) = &self.0 else { return response };
        let upload = RefusedUpload { leftover: Arc::clone(leftover), locks: locks.clone() };
        response.map(|body| wrap(body, Refusal { upload: Some(upload) }))
    }
}

fn lock(leftover: &Mutex<Option<Body>>) -> MutexGuard<'_, Option<Body>> {
    leftover.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A body that puts what was not read into `leftover` when it is dropped.
struct Lent {
    leftover: Arc<Mutex<Option<Body>>>,
    /// The body has ended or failed.
    has_ended: bool,
}

impl Wrapper for Lent {
    fn poll_frame(&mut self, body: &mut Body, cx: &mut Context<'_>) -> Poll<Option<BodyFrame>> {
        let frame = ready!(Pin::new(body).poll_frame(cx));
        self.has_ended |= !matches!(frame, Some(Ok(_)));
        Poll::Ready(frame)
    }

    fn dropped(&mut self, body: &mut Body) {
        if !self.has_ended && !body.is_end_stream() {
            *lock(&self.leftover) = Some(std::mem::take(body));
        }
    }
}

/// The body of a refusal. Its first poll shows that the head has been written: before it, hyper would ask a client that
/// expects `100 Continue` for the body.
struct Refusal {
    upload: Option<RefusedUpload>,
}

impl Wrapper for Refusal {
    fn poll_frame(&mut self, body: &mut Body, cx: &mut Context<'_>) -> Poll<Option<BodyFrame>> {
        self.read_upload();
        Pin::new(body).poll_frame(cx)
    }

    fn dropped(&mut self, _: &mut Body) {
        self.read_upload();
    }
}

impl Refusal {
    fn read_upload(&mut self) {
        if let Some(upload) = self.upload.take()
            && let Some(rest) = lock(&upload.leftover).take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(read(rest, upload.locks));
        }
    }
}

struct RefusedUpload {
    leftover: Arc<Mutex<Option<Body>>>,
    locks: LockManager,
}

/// Reads a body, and forgets what it reads.
async fn read(mut body: Body, locks: LockManager) {
    let begun = Instant::now();
    // A slow client does not delay the stop of the service.
    let longest = || if locks.is_draining() { LONGEST_PAUSE } else { LONGEST_REST };
    while begun.elapsed() < longest()
        && let Ok(Some(Ok(_))) = timeout(LONGEST_PAUSE, body.frame()).await
    {
        // A body that is always ready does not keep the thread.
        yield_now().await;
    }
}

pin_project! {
    /// Reads what nobody else reads of a request's body, beside the work of the request. Only then does the server
    /// notice that the client leaves.
    pub(crate) struct ReadBeside<F> {
        reading: Option<UnreadReader>,
        #[pin]
        work: F,
    }
}

struct UnreadReader {
    leftover: Arc<Mutex<Option<Body>>>,
    /// The bytes that may still be read.
    left: u64,
}

impl<F: Future<Output = Result<Response, Infallible>>> ReadBeside<F> {
    pub(crate) fn new(unread: Unread, work: F) -> Self {
        let reading = unread.0.map(|leftover| UnreadReader { leftover, left: READ_BESIDE_WORK });
        Self { reading, work }
    }
}

impl<F: Future<Output = Result<Response, Infallible>>> Future for ReadBeside<F> {
    type Output = Response;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        let this = self.project();
        // First, because a client that expects `100 Continue` and is refused at once keeps its body.
        if let Poll::Ready(Ok(response)) = this.work.poll(cx) {
            return Poll::Ready(response);
        }
        let Some(reading) = this.reading else { return Poll::Pending };
        let end = ready!(reading.poll(cx));
        *this.reading = None;
        match end {
            Ok(()) => Poll::Pending,
            // The client has left. Its work is dropped, as that of a client that leaves after its body.
            Err(fault) => Poll::Ready(LockRejection::from(fault).into_response()),
        }
    }
}

impl UnreadReader {
    /// Resolves when nothing is left to read, or the rest is too long. Fails if the client has left.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyFault>> {
        let mut leftover = lock(&self.leftover);
        while let Some(body) = &mut *leftover {
            // A client that expects `100 Continue` keeps a long body.
            if self.left == 0 || body.size_hint().lower() > self.left {
                return Poll::Ready(Ok(()));
            }
            match ready!(Pin::new(body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    let length = frame.data_ref().map_or(1, Bytes::len).max(1);
                    self.left = self.left.saturating_sub(length as u64);
                }
                Some(Err(error)) => {
                    *leftover = None;
                    return Poll::Ready(match fault(&error, usize::MAX) {
                        // The application limits the bodies that its handlers read.
                        BodyFault::TooLarge { .. } => Ok(()),
                        gone => Err(gone),
                    });
                }
                None => *leftover = None,
            }
        }
        Poll::Ready(Ok(()))
    }
}
