//! Which responses are stored, and how a response is read for the store.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use super::rejection::IdempotencyRejection;
use super::stored_answer::StoredAnswer;
use crate::rejection::LockRejection;

/// The longest time in which a body ends that is stored.
const LONGEST_BODY: Duration = Duration::from_secs(10);

/// Returns whether a response is stored, unless the application decides. The client of the others may try again.
pub(super) fn is_stored_by_default(parts: &Parts) -> bool {
    let is_rejection = parts.extensions.get::<LockRejection>().is_some()
        || parts.extensions.get::<IdempotencyRejection>().is_some();
    let is_temporary = matches!(parts.status.as_u16(), 401 | 403 | 408 | 409 | 425 | 429);
    let retries = parts.headers.contains_key(header::RETRY_AFTER);
    !is_rejection && !is_temporary && !retries && !parts.status.is_server_error()
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
        let mut refused = parts(422);
        refused.extensions.insert(IdempotencyRejection::key_reused());
        assert!(!is_stored_by_default(&refused), "by a layer inside");
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
}
