//! Stored answers, and their bytes.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

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

/// Begins the bytes of an answer, and of the record of an answer that was not kept.
const KEPT: u8 = 1;
const NOT_KEPT: u8 = 0;

/// Returns whether a header is never stored.
pub(super) fn is_never_stored(name: &HeaderName) -> bool {
    let text = name.as_str();
    NEVER_STORED.contains(name) || text == "keep-alive" || text.starts_with("proxy-")
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

    /// Returns the answer of a response, with the headers that are stored.
    pub(super) fn of(parts: &Parts, stored: &[HeaderName], body: Bytes) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

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
