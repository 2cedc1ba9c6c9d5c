//! A response body that holds the request's lock until it ends.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};
use redlock_core::LockGuard;

use crate::locked::release;

/// Holds the lock until the body has ended or failed, or is dropped.
///
/// The last frame waits for the release: with it the client has its whole answer, and its next
/// request must not meet its own lock.
pub(crate) struct LockedBody {
    body: Body,
    hold: Hold,
}

enum Hold {
    Held(LockGuard),
    Releasing { release: Pin<Box<dyn Future<Output = ()> + Send>>, last: Option<BodyFrame> },
    Released,
}

type BodyFrame = Result<Frame<Bytes>, axum::Error>;

impl LockedBody {
    pub(crate) fn new(body: Body, guard: LockGuard) -> Self {
        Self { body, hold: Hold::Held(guard) }
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
            match std::mem::replace(&mut this.hold, Hold::Released) {
                Hold::Held(guard) => {
                    let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
                        this.hold = Hold::Held(guard);
                        return Poll::Pending;
                    };
                    if matches!(frame, Some(Ok(_))) && !this.body.is_end_stream() {
                        this.hold = Hold::Held(guard);
                        return Poll::Ready(frame);
                    }
                    this.hold = Hold::Releasing { release: Box::pin(release(guard)), last: frame };
                }
                Hold::Releasing { mut release, last } => {
                    if release.as_mut().poll(cx).is_pending() {
                        this.hold = Hold::Releasing { release, last };
                        return Poll::Pending;
                    }
                    return Poll::Ready(last);
                }
                Hold::Released => return Pin::new(&mut this.body).poll_frame(cx),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.hold {
            Hold::Releasing { last: Some(_), .. } => false,
            _ => self.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        if let Hold::Releasing { last: Some(Ok(frame)), .. } = &self.hold
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
        let hold = match &self.hold {
            Hold::Held(_) => "held",
            Hold::Releasing { .. } => "releasing",
            Hold::Released => "released",
        };
        f.debug_struct("LockedBody").field("hold", &hold).finish_non_exhaustive()
    }
}
