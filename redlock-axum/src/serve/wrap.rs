//! Bodies around other bodies.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body::{Frame, SizeHint};

pub(super) type BodyFrame = Result<Frame<Bytes>, axum::Error>;

/// Changes how a body is read, or follows its reading.
pub(super) trait Wrapper: Send + Unpin + 'static {
    fn poll_frame(&mut self, body: &mut Body, cx: &mut Context<'_>) -> Poll<Option<BodyFrame>> {
        Pin::new(body).poll_frame(cx)
    }

    fn is_end_stream(&self, body: &Body) -> bool {
        body.is_end_stream()
    }

    fn size_hint(&self, body: &Body) -> SizeHint {
        body.size_hint()
    }

    /// Called when the wrapped body is dropped.
    fn dropped(&mut self, _body: &mut Body) {}
}

/// Puts a wrapper around a body. The body is dropped before its wrapper.
pub(super) fn wrap(body: Body, wrapper: impl Wrapper) -> Body {
    Body::new(Wrapped { body, wrapper })
}

struct Wrapped<W: Wrapper> {
    body: Body,
    wrapper: W,
}

impl<W: Wrapper> HttpBody for Wrapped<W> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<BodyFrame>> {
        let Self { body, wrapper } = self.get_mut();
        wrapper.poll_frame(body, cx)
    }

    fn is_end_stream(&self) -> bool {
        self.wrapper.is_end_stream(&self.body)
    }

    fn size_hint(&self) -> SizeHint {
        self.wrapper.size_hint(&self.body)
    }
}

/// Lets the wrapper take the rest of the body: a request's unread part, or the rest of a refused upload.
impl<W: Wrapper> Drop for Wrapped<W> {
    fn drop(&mut self) {
        self.wrapper.dropped(&mut self.body);
    }
}
