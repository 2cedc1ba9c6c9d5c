//! The request that executes the handler, from its claim to the stored answer.
//!
//! The order makes it safe. An answer that is stored never changes, so it is read without the lock. Otherwise the request
//! holds the lock of its key, and claims the key in the store, in one step that also looks again. It stores its answer on the
//! condition that the record has its own number. So a holder that has lost its lock may still store, as long as nobody has
//! claimed the key after it, and never afterwards.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::MatchedPath;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderName, HeaderValue, Request};
use redlock_core::{LockError, LockGuard, log_limited};
use tokio::time::{sleep, timeout};
use tower_service::Service;

use super::answers::{AnswerClaim, AnswerId, AnswerRecord, AnswersError, ClaimResult};
use super::extract::Idempotency;
use super::fingerprint::Fingerprint;
use super::outcome::{self, ReadAnswer};
use super::rejection::IdempotencyRejection;
use super::settings::{Settings, Unfinished};
use super::stored_answer::AnswerOutcome;
use crate::rejection::LockRejection;

/// Marks a stored answer that is sent again.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// The longest time of one operation of a store.
const LONGEST_OPERATION: Duration = Duration::from_secs(5);
/// The pauses before an answer is stored again. The claim would otherwise look like that of a crash.
const STORE_PAUSES: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(200), Duration::from_millis(750)];

/// Waits for an operation of a store.
pub(super) async fn bounded<T>(
    operation: impl Future<Output = Result<T, AnswersError>>,
) -> Result<T, AnswersError> {
    let late = |_| Err(AnswersError::new(format!("no reply within {LONGEST_OPERATION:?}")));
    timeout(LONGEST_OPERATION, operation).await.unwrap_or_else(late)
}

/// The response to a request that held the lock.
struct AnsweredTurn {
    response: Response,
    /// Whether the store has its answer, which repetitions get without the lock.
    is_stored: bool,
}

impl From<Response> for AnsweredTurn {
    fn from(response: Response) -> Self {
        Self { response, is_stored: false }
    }
}

/// A request that may execute the handler.
pub(super) struct Turn {
    settings: Arc<Settings>,
    id: AnswerId,
    fingerprint: Fingerprint,
    route: Option<MatchedPath>,
}

impl Turn {
    pub(super) fn new(
        settings: Arc<Settings>,
        id: AnswerId,
        fingerprint: Fingerprint,
        route: Option<MatchedPath>,
    ) -> Self {
        Self { settings, id, fingerprint, route }
    }

    pub(super) fn id(&self) -> &AnswerId {
        &self.id
    }

    /// Answers the request by a record; `None` if the record is a claim without an answer, whose owner may still work.
    pub(super) fn answer_of(&self, record: AnswerRecord) -> Option<Response> {
        if record.fingerprint != self.fingerprint {
            return Some(self.reject(IdempotencyRejection::key_reused()));
        }
        Some(match AnswerOutcome::read(record.answer?) {
            AnswerOutcome::Answer(answer) => {
                let mut response = answer.into_response();
                response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
                self.settings.count_replays(1);
                response
            }
            AnswerOutcome::NotKept => self.reject(IdempotencyRejection::answer_not_kept()),
        })
    }

    fn reject(&self, rejection: IdempotencyRejection) -> Response {
        self.settings.reject(rejection.at_route(self.route.clone()))
    }

    /// Serves the request if its lock was acquired, and releases the lock.
    pub(super) async fn serve<S>(
        self,
        acquired: Result<LockGuard, LockError>,
        inner: S,
        request: Request<Body>,
    ) -> Result<Response, S::Error>
    where
        S: Service<Request<Body>, Response: IntoResponse>,
    {
        let guard = match acquired {
            Ok(guard) => guard,
            Err(refusal) => return Ok(self.reject(LockRejection::from(refusal).into())),
        };
        let served = AssertUnwindSafe(self.work(&guard, inner, request)).catch_unwind().await;
        if matches!(&served, Ok(Ok(AnsweredTurn { is_stored: true, .. }))) {
            // The client need not wait for the end of a lock that no repetition needs. It ends in the background.
            drop(guard);
        } else {
            guard.release_or_log().await;
        }
        let served = served.unwrap_or_else(|panic| resume_unwind(panic));
        served.map(|served| served.response)
    }

    /// Claims the key, calls the service, and stores its answer.
    async fn work<S>(
        &self,
        guard: &LockGuard,
        mut inner: S,
        mut request: Request<Body>,
    ) -> Result<AnsweredTurn, S::Error>
    where
        S: Service<Request<Body>, Response: IntoResponse>,
    {
        poll_fn(|cx| inner.poll_ready(cx)).await?;
        let number = match self.claim(guard).await {
            Ok(number) => number,
            Err(response) => return Ok((*response).into()),
        };
        let row = Idempotency::new(self.id.clone(), self.fingerprint, number);
        request.extensions_mut().insert(row);
        let call = async { inner.call(request).await.map(IntoResponse::into_response) };
        let response = match AssertUnwindSafe(call).catch_unwind().await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                self.forget(number).await;
                return Err(error);
            }
            Err(panic) => {
                self.forget(number).await;
                resume_unwind(panic)
            }
        };
        Ok(self.finish(number, response).await)
    }

    /// Claims the key for the holder of the lock, and returns its number. Otherwise returns the response.
    async fn claim(&self, guard: &LockGuard) -> Result<i64, Box<Response>> {
        let refuse = |rejection: IdempotencyRejection| Box::new(self.reject(rejection));
        let Settings { answers, keep, unfinished, .. } = &*self.settings;
        let valid =
            || guard.check_before_work().map_err(|lost| refuse(LockRejection::from(lost).into()));
        // The task of detached work may begin late, and the service may become ready late.
        valid()?;
        // Checked when the layer was made.
        let Some(number) = guard.fencing_token().map(redlock_core::FencingToken::number) else {
            let text =
                "the lock of an idempotency key has no number; its nodes must support `fenced`";
            return Err(refuse(IdempotencyRejection::misconfigured(text)));
        };
        let claim = AnswerClaim::new(number, self.fingerprint, *keep)
            .replaces_unfinished(*unfinished == Unfinished::RunAgain);
        let claimed = bounded(answers.claim(&self.id, claim)).await;
        let result = match claimed {
            Ok(ClaimResult::Claimed) => match valid() {
                Ok(()) => return Ok(number),
                lost => lost.map(|()| number),
            },
            // The store may have executed the claim.
            Err(error) => Err(refuse(error.into())),
            Ok(ClaimResult::Busy) => return Err(refuse(IdempotencyRejection::in_flight())),
            Ok(ClaimResult::Found(record)) => {
                let is_later = record.number >= number;
                return Err(self.answer_of(record).map_or_else(
                    || {
                        refuse(if is_later {
                            IdempotencyRejection::in_flight()
                        } else {
                            IdempotencyRejection::outcome_unknown()
                        })
                    },
                    Box::new,
                ));
            }
        };
        // The handler does not begin, so the next request need not find a claim.
        let _ = bounded(answers.forget(&self.id, number)).await;
        result
    }

    /// Stores the answer of the handler. Returns the response for its client.
    async fn finish(&self, number: i64, response: Response) -> AnsweredTurn {
        let Settings { answers, stored_by_handler, .. } = &*self.settings;
        if *stored_by_handler {
            match bounded(answers.load(&self.id)).await {
                Ok(Some(record)) if record.number == number && record.answer.is_some() => {
                    let response = match record.answer.map(AnswerOutcome::read) {
                        Some(AnswerOutcome::Answer(answer)) => answer.into_response(),
                        Some(AnswerOutcome::NotKept) | None => response,
                    };
                    return AnsweredTurn { response, is_stored: true };
                }
                Ok(_) => {}
                Err(error) => {
                    self.report("an answer that its handler has stored cannot be read", &error);
                    return response.into();
                }
            }
        }
        let (parts, body) = response.into_parts();
        let is_stored = self.settings.stores(&parts);
        let response = Response::from_parts(parts, body);
        if !is_stored {
            self.forget(number).await;
            return response.into();
        }
        let Settings { stored_headers, answer_limit, .. } = &*self.settings;
        let ReadAnswer { response, answer } =
            outcome::read(response, stored_headers, *answer_limit).await;
        let answer = answer.unwrap_or_else(|reason| {
            let route = self.route.as_ref().map(MatchedPath::as_str);
            let reason = reason.text();
            log_limited!(
                self.settings.locks.log_limit(), "answer not kept", route.unwrap_or_default(), error, route,
                "the answer to a request with an idempotency key was not kept, so that its repetitions are refused: {reason}"
            );
            AnswerOutcome::not_kept()
        });
        let is_stored = self.store(number, answer).await;
        AnsweredTurn { response, is_stored }
    }

    /// Stores an answer, also if the store fails for a moment. Returns whether it is stored.
    async fn store(&self, number: i64, answer: Bytes) -> bool {
        let Settings { answers, keep, .. } = &*self.settings;
        let mut pauses = STORE_PAUSES.into_iter();
        loop {
            match bounded(answers.store(&self.id, number, answer.clone(), *keep)).await {
                Ok(true) => return true,
                Ok(false) => {
                    let route = self.route.as_ref().map(MatchedPath::as_str);
                    log_limited!(
                        self.settings.locks.log_limit(),
                        "answer came late",
                        "",
                        warn,
                        route,
                        "an answer was not stored: the lock of its key was lost, and another request has claimed the key, or \
                         the claim is older than `keep`; the handler may run twice"
                    );
                    return false;
                }
                Err(error) => {
                    let Some(pause) = pauses.next() else {
                        let what = "an answer was not stored, so that its key looks unfinished";
                        self.report(what, &error);
                        return false;
                    };
                    sleep(pause).await;
                }
            }
        }
    }

    /// Removes the claim, so that the next request runs the handler.
    async fn forget(&self, number: i64) {
        if let Err(error) = bounded(self.settings.answers.forget(&self.id, number)).await {
            self.report("a claim was not removed, so that its key looks unfinished", &error);
        }
    }

    fn report(&self, what: &'static str, error: &AnswersError) {
        let route = self.route.as_ref().map(MatchedPath::as_str);
        log_limited!(self.settings.locks.log_limit(), what, "", error, route, "{what}: {error}");
    }
}
