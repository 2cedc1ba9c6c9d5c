//! A response body that holds the request's lock until it ends.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};
use redlock_core::__private::LossWatcher;
use redlock_core::{LockGuard, OnLost};

/// Holds the lock until the body has ended, has failed or is dropped. If there is a watcher, the body ends
/// with an error when the lock is lost.
///
/// The last frame is sent after the release. With that frame the client has its whole response, and
/// its next request must not meet its own lock.
struct LockedBody {
    /// Declared before the lock, so that the body is dropped first.
    body: Body,
    phase: Phase,
}

enum Phase {
    Held { guard: LockGuard, watch: Option<LossWatcher> },
    Releasing { release: Pin<Box<dyn Future<Output = ()> + Send>>, last: Option<BodyFrame> },
    Released,
}

type BodyFrame = Result<Frame<Bytes>, axum::Error>;

/// A response whose lock was to be held until the end of its body.
pub(crate) enum HeldResponse {
    /// The body holds the lock.
    UntilEnd(Response),
    /// The body has ended already.
    Ended(Response, LockGuard),
}

/// Lets the body of a response hold the lock until it has ended. If `on_lost` stops the work, a loss of the lock
/// ends the body with an error.
pub(crate) fn hold(response: Response, guard: LockGuard, on_lost: OnLost) -> HeldResponse {
    if response.body().is_end_stream() {
        // Dropping the body may end its work, so it is dropped before the release.
        return HeldResponse::Ended(response.map(|_| Body::empty()), guard);
    }
    let watch = LossWatcher::new(&guard, on_lost);
    HeldResponse::UntilEnd(response.map(|body| Body::new(LockedBody::new(body, guard, watch))))
}

impl LockedBody {
    fn new(body: Body, guard: LockGuard, watch: Option<LossWatcher>) -> Self {
        Self { body, phase: Phase::Held { guard, watch } }
    }
}

impl HttpBody for LockedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        loop {
            match std::mem::replace(&mut this.phase, Phase::Released) {
                Phase::Held { guard, mut watch } => {
                    if let Some(watch) = &mut watch
                        && let Poll::Ready(error) = watch.poll(cx)
                    {
                        this.body = Body::empty();
                        return Poll::Ready(Some(Err(axum::Error::new(error))));
                    }
                    let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
                        this.phase = Phase::Held { guard, watch };
                        return Poll::Pending;
                    };
                    if matches!(frame, Some(Ok(_))) && !this.body.is_end_stream() {
                        this.phase = Phase::Held { guard, watch };
                        return Poll::Ready(frame);
                    }
                    // Dropping the body may end its work, so it is dropped before the release.
                    this.body = Body::empty();
                    let release = Box::pin(guard.release_or_log());
                    this.phase = Phase::Releasing { release, last: frame };
                }
                Phase::Releasing { mut release, last } => {
                    if release.as_mut().poll(cx).is_pending() {
                        this.phase = Phase::Releasing { release, last };
                        return Poll::Pending;
                    }
                    return Poll::Ready(last);
                }
                Phase::Released => return Pin::new(&mut this.body).poll_frame(cx),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.phase {
            Phase::Releasing { last: Some(_), .. } => false,
            _ => self.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        if let Phase::Releasing { last: Some(Ok(frame)), .. } = &self.phase
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

impl fmt::Debug for LockedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match &self.phase {
            Phase::Held { .. } => "held",
            Phase::Releasing { .. } => "releasing",
            Phase::Released => "released",
        };
        f.debug_struct("LockedBody").field("phase", &phase).finish_non_exhaustive()
    }
}
