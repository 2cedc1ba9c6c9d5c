//! Request bodies that arrive while the lock is held.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use redlock_core::__private::LossWatcher;
use redlock_core::{LockError, LockHandle, LockState, OnLost};
use tokio::time::{Instant, Sleep, sleep_until};

use super::wrap::{BodyFrame, Wrapper, wrap};
use crate::rejection::{BodyFault, LockRejection};

/// A request body whose client has one lease, from the grant of the lock, to send it. After that, and when the lock is
/// lost, the body ends with an error. A body that outlives its lock is not limited any more.
struct StreamedBody {
    /// `None` when the body has ended, or the lock is released.
    watch: Option<UploadWatch>,
}

struct UploadWatch {
    handle: LockHandle,
    loss: Option<LossWatcher>,
    /// The end of the lease with which the lock was granted.
    until: Instant,
    timer: Option<Pin<Box<Sleep>>>,
    cut: Cut,
}

/// The reason why a body was cut, if it was.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cut(Arc<OnceLock<CutCause>>);

#[derive(Debug, Clone, Copy)]
enum CutCause {
    Lost,
    TooSlow,
}

/// Limits the body of a request whose lock was just granted.
pub(crate) fn limit(body: Body, handle: LockHandle) -> (Body, Cut) {
    let cut = Cut::default();
    let watch = UploadWatch {
        loss: LossWatcher::new(&handle, OnLost::Abort),
        until: Instant::now() + handle.remaining(),
        timer: None,
        cut: cut.clone(),
        handle,
    };
    (wrap(body, StreamedBody { watch: Some(watch) }), cut)
}

impl Cut {
    /// Returns the rejection of a request whose body was cut.
    pub(crate) fn rejection(&self, handle: &LockHandle) -> Option<LockRejection> {
        Some(match self.0.get()? {
            CutCause::Lost => LockError::Lost(handle.loss()).into(),
            CutCause::TooSlow => BodyFault::TooSlow.into(),
        })
    }
}

enum Verdict {
    Limited,
    Unlimited,
    Cut(CutCause),
}

impl UploadWatch {
    fn verdict(&mut self, cx: &mut Context<'_>) -> Verdict {
        if let Some(loss) = &mut self.loss
            && loss.poll(cx).is_ready()
        {
            return match self.handle.state() {
                LockState::Released => Verdict::Unlimited,
                _ => Verdict::Cut(CutCause::Lost),
            };
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(self.until)));
        match timer.as_mut().poll(cx) {
            Poll::Ready(()) => Verdict::Cut(CutCause::TooSlow),
            Poll::Pending => Verdict::Limited,
        }
    }
}

impl Wrapper for StreamedBody {
    fn poll_frame(&mut self, body: &mut Body, cx: &mut Context<'_>) -> Poll<Option<BodyFrame>> {
        match self.watch.as_mut().map(|watch| watch.verdict(cx)) {
            None | Some(Verdict::Limited) => {}
            Some(Verdict::Unlimited) => self.watch = None,
            Some(Verdict::Cut(cause)) => {
                if let Some(watch) = self.watch.take() {
                    let _ = watch.cut.0.set(cause);
                }
                *body = Body::empty();
                let text = "the lock of the request ended before its body had arrived";
                return Poll::Ready(Some(Err(axum::Error::new(text))));
            }
        }
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) || body.is_end_stream() {
            self.watch = None;
        }
        Poll::Ready(frame)
    }
}
