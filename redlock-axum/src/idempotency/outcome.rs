//! Which responses are stored, and how a response becomes bytes.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::response::{IntoResponse, Response};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use super::rejection::IdempotencyRejection;
use crate::rejection::LockRejection;

/// The headers of an answer that are stored in any case.
pub(super) const STORED_HEADERS: [HeaderName; 4] =
    [header::CONTENT_TYPE, header::LOCATION, header::ETAG, header::CONTENT_ENCODING];

/// The headers of an answer that are never stored: those of one connection or one moment, and cookies.
const NEVER_STORED: [HeaderName; 9] = [
    header::SET_COOKIE,
    header::DATE,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::PROXY_AUTHENTICATE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The longest time in which a body ends that is stored.
const LONGEST_BODY: Duration = Duration::from_secs(10);

/// Begins the bytes of an answer, and of the record of an answer that was not kept.
const KEPT: u8 = 1;
const NOT_KEPT: u8 = 0;

/// Returns whether a header is never stored.
pub(super) fn is_never_stored(name: &HeaderName) -> bool {
    let text = name.as_str();
    NEVER_STORED.contains(name) || text == "keep-alive" || text.starts_with("proxy-")
}

/// Returns whether a response is stored, unless the application decides. The client of the others may try again.
pub(super) fn is_stored_by_default(parts: &Parts) -> bool {
    let is_rejection = parts.extensions.get::<LockRejection>().is_some()
        || parts.extensions.get::<IdempotencyRejection>().is_some();
    let is_temporary = matches!(parts.status.as_u16(), 401 | 403 | 408 | 409 | 425 | 429);
    let retries = parts.headers.contains_key(header::RETRY_AFTER);
    !is_rejection && !is_temporary && !retries && !parts.status.is_server_error()
}

/// An answer as it is stored: status, headers and body. A handler that
/// [stores its answer itself](crate::IdempotencyLayer::stored_by_handler) makes one, stores its [bytes](Self::to_bytes), and
/// returns it.
///
/// # Examples
///
/// ```
/// use axum::http::{HeaderValue, StatusCode, header};
/// use redlock_axum::StoredAnswer;
///
/// let json = HeaderValue::from_static("application/json");
/// let answer = StoredAnswer::new(StatusCode::CREATED, r#"{"payment":42}"#).header(header::CONTENT_TYPE, json);
/// assert!(answer.to_bytes().ends_with(b"{\"payment\":42}"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct StoredAnswer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl StoredAnswer {
    /// Creates an answer without headers.
    pub fn new(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self { status, headers: HeaderMap::new(), body: body.into() }
    }

    /// Adds a header. `set-cookie`, `date`, `content-length` and the headers of a connection are left out of a replay.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// Returns the bytes for the store.
    pub fn to_bytes(&self) -> Bytes {
        let Self { status, headers, body } = self;
        let stored = || headers.iter().filter(|(name, _)| !is_never_stored(name));
        let length: usize =
            stored().map(|(name, value)| name.as_str().len() + value.len() + 6).sum();
        let mut bytes = BytesMut::with_capacity(5 + length + body.len());
        bytes.put_u8(KEPT);
        bytes.put_u16(status.as_u16());
        bytes.put_u16(stored().count().try_into().unwrap_or(u16::MAX));
        for (name, value) in stored().take(u16::MAX.into()) {
            put(&mut bytes, name.as_str().as_bytes());
            put(&mut bytes, value.as_bytes());
        }
        bytes.put_slice(body);
        bytes.freeze()
    }

    fn read(mut bytes: Bytes) -> Option<Self> {
        let status = StatusCode::from_u16(bytes.try_get_u16().ok()?).ok()?;
        let mut headers = HeaderMap::new();
        for _ in 0..bytes.try_get_u16().ok()? {
            let name = HeaderName::from_bytes(&take(&mut bytes)?).ok()?;
            let value = HeaderValue::from_maybe_shared(take(&mut bytes)?).ok()?;
            headers.append(name, value);
        }
        Some(Self { status, headers, body: bytes })
    }

    fn of(parts: &Parts, stored: &[HeaderName], body: Bytes) -> Self {
        let is_stored = |name: &HeaderName| stored.contains(name) && !is_never_stored(name);
        let headers = parts.headers.iter().filter(|(name, _)| is_stored(name));
        let headers = headers.map(|(name, value)| (name.clone(), value.clone())).collect();
        Self { status: parts.status, headers, body }
    }
}

impl IntoResponse for StoredAnswer {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

/// Shows neither headers nor body.
impl std::fmt::Debug for StoredAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredAnswer")
            .field("status", &self.status)
            .field("bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// A header has at most 64 KiB in practice: hyper limits the whole head.
fn put(bytes: &mut BytesMut, text: &[u8]) {
    bytes.put_u32(text.len().try_into().unwrap_or(u32::MAX));
    bytes.put_slice(text);
}

fn take(bytes: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
    (length <= bytes.len()).then(|| bytes.split_to(length))
}

/// The outcome of a request that has ended, from its record.
pub(super) enum AnswerOutcome {
    Answer(StoredAnswer),
    /// The work is done, and its answer was too long, or had no end.
    NotKept,
}

impl AnswerOutcome {
    /// Returns the record of an answer that was not kept.
    pub(super) fn not_kept() -> Bytes {
        Bytes::from_static(&[NOT_KEPT])
    }

    /// Reads the bytes of a record. Bytes of an unknown form are an answer that nobody can send again.
    pub(super) fn read(mut bytes: Bytes) -> Self {
        let answer = match bytes.try_get_u8() {
            Ok(KEPT) => StoredAnswer::read(bytes),
            _ => None,
        };
        answer.map_or(Self::NotKept, Self::Answer)
    }
}

/// A response that was read for the store.
pub(super) struct ReadAnswer {
    pub(super) response: Response,
    /// The bytes for the store, or why there are none.
    pub(super) answer: Result<Bytes, NotKept>,
}

/// Why an answer is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotKept {
    TooLarge,
    Endless,
    Trailers,
    Failed,
}

impl NotKept {
    /// Returns the reason and the remedy for the log.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::TooLarge => {
                "it is longer than the `answer_limit`; raise the limit, or answer with a link"
            }
            Self::Endless => {
                "it is a stream, or its body did not end within 10 s; answer with a link to the stream"
            }
            Self::Trailers => "it has trailers; send their values as headers",
            Self::Failed => "its body ended with an error; make the body before the response",
        }
    }
}

/// Reads the body of a response up to a limit. The returned response has the same bytes.
pub(super) async fn read(response: Response, stored: &[HeaderName], limit: usize) -> ReadAnswer {
    let (parts, mut body) = response.into_parts();
    let mut frames = VecDeque::new();
    let result = if parts.status.is_informational() || is_event_stream(&parts.headers) {
        Err(NotKept::Endless)
    } else if body.size_hint().lower() > limit as u64 {
        Err(NotKept::TooLarge)
    } else {
        read_frames(&mut body, &mut frames, limit).await
    };
    match result {
        Ok(data) => {
            let answer = StoredAnswer::of(&parts, stored, data.clone()).to_bytes();
            ReadAnswer {
                response: Response::from_parts(parts, Body::from(data)),
                answer: Ok(answer),
            }
        }
        Err(reason) => {
            let body = Body::new(Resumed { frames, rest: body });
            ReadAnswer { response: Response::from_parts(parts, body), answer: Err(reason) }
        }
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let is_stream = |value: &HeaderValue| {
        let text = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
        text.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
    };
    headers.get(header::CONTENT_TYPE).is_some_and(is_stream)
}

/// Returns the whole body. On failure, `frames` has its beginning.
async fn read_frames(
    body: &mut Body,
    frames: &mut VecDeque<AnswerFrame>,
    limit: usize,
) -> Result<Bytes, NotKept> {
    let deadline = Instant::now() + LONGEST_BODY;
    let mut length = 0_usize;
    loop {
        let frame = timeout_at(deadline, body.frame()).await.map_err(|_| NotKept::Endless)?;
        let Some(frame) = frame else { break };
        let reason = match &frame {
            Ok(frame) => match frame.data_ref() {
                Some(data) => {
                    length = length.saturating_add(data.len());
                    (length > limit).then_some(NotKept::TooLarge)
                }
                None => Some(NotKept::Trailers),
            },
            Err(_) => Some(NotKept::Failed),
        };
        frames.push_back(frame);
        if let Some(reason) = reason {
            return Err(reason);
        }
    }
    let mut data = frames.drain(..).filter_map(|frame| frame.ok()?.into_data().ok());
    let first = data.next().unwrap_or_default();
    if first.len() == length {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(length);
    whole.put(first);
    data.for_each(|data| whole.put(data));
    Ok(whole.freeze())
}

type AnswerFrame = Result<Frame<Bytes>, axum::Error>;

/// A body whose beginning was read.
struct Resumed {
    frames: VecDeque<AnswerFrame>,
    rest: Body,
}

impl HttpBody for Resumed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AnswerFrame>> {
        let this = self.get_mut();
        match this.frames.pop_front() {
            Some(frame) => Poll::Ready(Some(frame)),
            None => Pin::new(&mut this.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && self.rest.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(status: u16) -> Parts {
        Response::builder().status(status).body(()).unwrap().into_parts().0
    }

    #[test]
    fn temporary_answers_are_not_stored() {
        for status in [401, 403, 408, 409, 425, 429, 500, 502, 503, 504] {
            assert!(!is_stored_by_default(&parts(status)), "{status}");
        }
        for status in [200, 201, 204, 302, 400, 402, 404, 410, 422] {
            assert!(is_stored_by_default(&parts(status)), "{status}");
        }
        let mut later = parts(202);
        later.headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        assert!(!is_stored_by_default(&later));
        let mut refused = parts(422);
        refused.extensions.insert(LockRejection::missing_manager());
        assert!(!is_stored_by_default(&refused));
    }

    #[tokio::test]
    async fn trailers_are_sent_and_not_kept() {
        let trailers: HeaderMap =
            [(header::ETAG, HeaderValue::from_static("x"))].into_iter().collect();
        let frames = [
            Ok::<_, axum::Error>(Frame::data(Bytes::from_static(b"12"))),
            Ok(Frame::trailers(trailers.clone())),
        ];
        let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
        let ReadAnswer { response, answer } = read(Response::new(Body::new(body)), &[], 10).await;
        assert_eq!(answer.unwrap_err(), NotKept::Trailers);
        let whole = response.into_body().collect().await.unwrap();
        assert_eq!(whole.trailers(), Some(&trailers));
        assert_eq!(whole.to_bytes(), "12");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_end_in_time_is_sent_and_not_kept() {
        let slow = async {
            tokio::time::sleep(LONGEST_BODY * 2).await;
            Ok::<_, axum::Error>("3")
        };
        let begin = futures_util::stream::iter([Ok("1"), Ok("2")]);
        let body = futures_util::StreamExt::chain(begin, futures_util::stream::once(slow));
        let ReadAnswer { response, answer } =
            read(Response::new(Body::from_stream(body)), &[], 10).await;
        assert_eq!(answer.unwrap_err(), NotKept::Endless);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "123");
    }

    #[test]
    fn an_answer_is_read_as_it_was_written_without_the_headers_of_one_connection() {
        let value = HeaderValue::from_bytes(b"a \xff").unwrap();
        let answer = StoredAnswer::new(StatusCode::CREATED, "body")
            .header(header::LOCATION, value.clone())
            .header(header::LOCATION, HeaderValue::from_static(""))
            .header(header::SET_COOKIE, HeaderValue::from_static("s3cret"))
            .header(header::DATE, value.clone())
            .header(HeaderName::from_static("keep-alive"), value);
        let bytes = answer.to_bytes();
        let AnswerOutcome::Answer(read) = AnswerOutcome::read(bytes.clone()) else {
            panic!("no answer")
        };
        assert_eq!(
            (read.status, &read.body[..], read.headers.len()),
            (StatusCode::CREATED, &b"body"[..], 2)
        );
        assert_eq!(read.headers.get_all(header::LOCATION).iter().count(), 2);
        assert!(!format!("{answer:?}").contains("s3cret"));
        // Each beginning of the bytes, and other forms, are read without a panic.
        for end in 0..bytes.len() {
            let _ = AnswerOutcome::read(bytes.slice(..end));
        }
        assert!(matches!(AnswerOutcome::read(AnswerOutcome::not_kept()), AnswerOutcome::NotKept));
        assert!(matches!(AnswerOutcome::read(Bytes::from_static(&[9, 9])), AnswerOutcome::NotKept));
    }
}
