//! A response body that holds the request's lock until it ends.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::{Buf, Bytes};
use http::request::Parts;
use http::{Method, StatusCode, Version, header};
use http_body::SizeHint;
use redlock_core::__private::LossWatcher;
use redlock_core::{LockGuard, OnLost};

use super::wrap::{BodyFrame, Wrapper, wrap};

/// Holds the lock until the body has ended, has failed or is dropped. If there is a watcher, the body ends
/// with an error when the lock is lost.
///
/// The last frame is sent after the release. With that frame the client has its whole response, and
/// its next request must not meet its own lock. A frame is the last one too if it completes the announced length: hyper
/// then drops the body, and does not ask for its end.
enum LockedBody {
    Held {
        guard: LockGuard,
        watch: Option<LossWatcher>,
        /// The bytes that the announced length still has, if there is one.
        left: Option<u64>,
    },
    Releasing {
        release: Pin<Box<dyn Future<Output = ()> + Send>>,
        last: Option<BodyFrame>,
    },
    Released,
}

/// The properties of a request that decide how a server sends the body of its response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exchange {
    is_head: bool,
    is_connect: bool,
    is_http1: bool,
}

impl Exchange {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            is_head: parts.method == Method::HEAD,
            is_connect: parts.method == Method::CONNECT,
            is_http1: parts.version < Version::HTTP_2,
        }
    }

    /// Returns whether a server drops the body of the response without reading it.
    fn is_unread(self, response: &Response) -> bool {
        let status = response.status();
        let has_no_body = status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
            || (self.is_connect && status.is_success());
        self.is_head
            || (self.is_http1 && (has_no_body || self.announced_length(response) == Some(0)))
    }

    /// Returns the length after which a server does not read the body any further. HTTP/2 reads it to its end.
    fn announced_length(self, response: &Response) -> Option<u64> {
        let headers = response.headers();
        if !self.is_http1 || headers.contains_key(header::TRANSFER_ENCODING) {
            return None;
        }
        match headers.get(header::CONTENT_LENGTH) {
            Some(length) => length.to_str().ok()?.parse().ok(),
            None => response.body().size_hint().exact(),
        }
    }
}

/// Lets the body of a response hold the lock until it has ended. If `on_lost` stops the work, a loss of the lock
/// ends the body with an error. Returns the guard if the body has ended already, or is not sent.
pub(crate) fn hold(
    response: Response,
    guard: LockGuard,
    on_lost: OnLost,
    exchange: Exchange,
) -> (Response, Option<LockGuard>) {
    // Dropping a body may end its work, so it is dropped before the release.
    if response.body().is_end_stream() {
        return (response.map(|_| Body::empty()), Some(guard));
    }
    if exchange.is_unread(&response) {
        let head_only = |body: Body| wrap(Body::empty(), HeadOnly(body.size_hint()));
        return (response.map(head_only), Some(guard));
    }
    let left = exchange.announced_length(&response);
    let locked = LockedBody::Held { watch: LossWatcher::new(&guard, on_lost), guard, left };
    (response.map(|body| wrap(body, locked)), None)
}

impl Wrapper for LockedBody {
    fn poll_frame(&mut self, body: &mut Body, cx: &mut Context<'_>) -> Poll<Option<BodyFrame>> {
        loop {
            match std::mem::replace(self, Self::Released) {
                Self::Held { guard, mut watch, mut left } => {
                    if let Some(watch) = &mut watch
                        && let Poll::Ready(error) = watch.poll(cx)
                    {
                        *body = Body::empty();
                        return Poll::Ready(Some(Err(axum::Error::new(error))));
                    }
                    let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) else {
                        *self = Self::Held { guard, watch, left };
                        return Poll::Pending;
                    };
                    if let (Some(left), Some(Ok(frame))) = (&mut left, &frame) {
                        let length = frame.data_ref().map_or(0, Bytes::len);
                        *left = left.saturating_sub(length as u64);
                    }
                    let goes_on = left != Some(0) && !body.is_end_stream();
                    if matches!(frame, Some(Ok(_))) && goes_on {
                        *self = Self::Held { guard, watch, left };
                        return Poll::Ready(frame);
                    }
                    // Dropping the body may end its work, so it is dropped before the release.
                    *body = Body::empty();
                    let release = Box::pin(guard.release_or_log());
                    *self = Self::Releasing { release, last: frame };
                }
                Self::Releasing { mut release, last } => {
                    if release.as_mut().poll(cx).is_pending() {
                        *self = Self::Releasing { release, last };
                        return Poll::Pending;
                    }
                    return Poll::Ready(last);
                }
                Self::Released => return Pin::new(&mut *body).poll_frame(cx),
            }
        }
    }

    fn is_end_stream(&self, body: &Body) -> bool {
        match self {
            Self::Releasing { last: Some(_), .. } => false,
            _ => body.is_end_stream(),
        }
    }

    fn size_hint(&self, body: &Body) -> SizeHint {
        let mut hint = body.size_hint();
        if let Self::Releasing { last: Some(Ok(frame)), .. } = self
            && let Some(data) = frame.data_ref()
        {
            let waiting = data.remaining() as u64;
            if let Some(upper) = hint.upper() {
                hint.set_upper(upper.saturating_add(waiting));
            }
            hint.set_lower(hint.lower().saturating_add(waiting));
        }
        hint
    }
}

/// Stands for the body of a response whose head is sent alone. It keeps the length for the head.
struct HeadOnly(SizeHint);

impl Wrapper for HeadOnly {
    fn is_end_stream(&self, _: &Body) -> bool {
        false
    }

    #[expect(clippy::clone_on_copy, reason = "`SizeHint` is `Copy` since http-body 1.1")]
    fn size_hint(&self, _: &Body) -> SizeHint {
        self.0.clone()
    }
}
