//! Request bodies that are read before the lock is requested, so that no client decides how long a lock is held.

use std::error::Error;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::RequestExt;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, LengthLimitError};
use redlock_core::__private::{Acquisition, BufferSpace, Reserved};

use crate::rejection::{BodyFault, LockRejection};

/// Reads the whole body of a request into memory. Without a `limit`, axum's limit of the request counts
/// ([`DefaultBodyLimit`](axum::extract::DefaultBodyLimit)).
pub(crate) async fn read(
    request: Request,
    limit: Option<usize>,
    space: &Arc<BufferSpace>,
) -> Result<Request, BodyFault> {
    Ok(read_data(request, limit, space).await?.0)
}

/// As [`read`]. Returns the data of the body too, which shares the memory of the request.
pub(crate) async fn read_data(
    request: Request,
    limit: Option<usize>,
    space: &Arc<BufferSpace>,
) -> Result<(Request, Bytes), BodyFault> {
    let declared = request.body().size_hint();
    let (request, limit) = match limit {
        Some(limit) => (request, limit),
        None => with_axum_limit(request),
    };
    let limit = limit.min(space.limit());
    if declared.lower() > to_u64(limit) {
        return Err(BodyFault::TooLarge { limit });
    }
    // An announced length is only used to keep the buffer small: a client may announce much and send nothing.
    let longest = declared.upper().map_or(limit, |upper| to_usize(upper).min(limit));
    let mut buffer =
        Buffer { limit, longest, data: Data::Frame(Bytes::new()), space: Reserved::new(space) };
    let (parts, mut body) = request.into_parts();
    let mut trailers = None;
    while let Some(frame) = body.frame().await {
        match frame.map_err(|error| fault(&error, limit))?.into_data() {
            Ok(data) => buffer.push(data, body.is_end_stream())?,
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    let (body, data) = buffer.into_body(trailers);
    Ok((Request::from_parts(parts, body), data))
}

/// Awaits a body that is being read. A slow client does not delay the stop of the service.
pub(crate) async fn unless_drained<T>(
    mut read: Pin<&mut impl Future<Output = Result<T, BodyFault>>>,
    acquisition: &Acquisition,
) -> Result<T, LockRejection> {
    let mut refused = pin!(acquisition.refused_by_drain());
    poll_fn(|cx| match read.as_mut().poll(cx) {
        Poll::Ready(received) => Poll::Ready(received.map_err(LockRejection::from)),
        Poll::Pending => refused.as_mut().poll(cx).map(|refusal| Err(refusal.into())),
    })
    .await
}

/// Limits a body as axum's own extractors do. Returns the limit too; `usize::MAX` if the application has disabled it.
fn with_axum_limit(request: Request) -> (Request, usize) {
    // The only public way to read the limit: the limited body reports it as its greatest length.
    let request = request.with_limited_body();
    let limit = request.body().size_hint().upper().map_or(usize::MAX, to_usize);
    (request, limit)
}

fn to_usize(bytes: u64) -> usize {
    bytes.try_into().unwrap_or(usize::MAX)
}

fn to_u64(bytes: usize) -> u64 {
    bytes.try_into().unwrap_or(u64::MAX)
}

/// Returns the reason why a body cannot be read. A layer outside of the lock may limit it too.
pub(super) fn fault(error: &axum::Error, limit: usize) -> BodyFault {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return BodyFault::TooLarge { limit };
        }
        cause = error.source();
    }
    BodyFault::Unreadable(error.to_string())
}

/// The part of a body that has arrived.
struct Buffer {
    limit: usize,
    /// The greatest length that the body can have.
    longest: usize,
    data: Data,
    /// As large as the memory that the data uses.
    space: Reserved,
}

enum Data {
    /// The only frame of the body, which is not copied.
    Frame(Bytes),
    /// Copies of the frames. A frame of a few bytes may keep a whole read buffer of its connection alive.
    Copies(Vec<u8>),
}

impl Buffer {
    fn push(&mut self, frame: Bytes, is_last: bool) -> Result<(), BodyFault> {
        let before = match &self.data {
            Data::Frame(first) => first.len(),
            Data::Copies(copies) => copies.len(),
        };
        let length = before.saturating_add(frame.len());
        if length > self.limit {
            return Err(BodyFault::TooLarge { limit: self.limit });
        }
        if before == 0 && is_last {
            self.reserve(length)?;
            self.data = Data::Frame(frame);
            return Ok(());
        }
        let capacity = match &self.data {
            Data::Frame(_) => 0,
            Data::Copies(copies) => copies.capacity(),
        };
        let needed =
            if length > capacity { length.max((capacity * 2).min(self.longest)) } else { capacity };
        self.reserve(needed)?;
        if let Data::Frame(_) = self.data {
            self.data = Data::Copies(Vec::new());
        }
        if let Data::Copies(copies) = &mut self.data {
            copies.reserve_exact(needed - before);
            copies.extend_from_slice(&frame);
        }
        Ok(())
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), BodyFault> {
        let limit = self.space.space().limit();
        if self.space.grow_to(bytes) { Ok(()) } else { Err(BodyFault::NoSpace { limit }) }
    }

    fn into_body(self, trailers: Option<HeaderMap>) -> (Body, Bytes) {
        let data = match self.data {
            Data::Frame(frame) => frame,
            Data::Copies(copies) => copies.into(),
        };
        if data.is_empty() && trailers.is_none() {
            return (Body::empty(), data);
        }
        let body = BufferedBody { data: Some((data.clone(), self.space)), trailers };
        (Body::new(body), data)
    }
}

/// A body in memory. Its memory counts until the data is taken, or the body is dropped.
struct BufferedBody {
    data: Option<(Bytes, Reserved)>,
    trailers: Option<HeaderMap>,
}

impl HttpBody for BufferedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let data = this.data.take().map(|(data, _)| data).filter(|data| !data.is_empty());
        let frame = data.map(Frame::data);
        Poll::Ready(frame.or_else(|| this.trailers.take().map(Frame::trailers)).map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.as_ref().map_or(0, |(data, _)| to_u64(data.len())))
    }
}
