//! The options of a layer, and their checks.

use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderName, Method};
use redlock_core::__private::LockName;
use redlock_core::{InvalidOption, LockError, LockManager, LockRequest};

use super::answers::{AnswerId, Answers};
use super::outcome::is_stored_by_default;
use super::rejection::IdempotencyRejection;
use super::stored_answer::{STORED_HEADERS, is_never_stored};
use crate::layer::methods::Methods;

/// The default of `keep`.
const DEFAULT_KEEP: Duration = Duration::from_secs(24 * 3600);
/// The range of `keep`.
const SHORTEST_KEEP: Duration = Duration::from_secs(1);
const LONGEST_KEEP: Duration = Duration::from_secs(366 * 24 * 3600);
/// The default of both limits.
const DEFAULT_LIMIT: usize = 1 << 20;
/// The greatest `answer_limit`.
const GREATEST_ANSWER: usize = 64 << 20;
/// The default name of the locks in tables and metrics.
const LOCK_NAME: &str = "idempotency";

type StoreIf = Arc<dyn Fn(&http::response::Parts, bool) -> bool + Send + Sync>;
pub(super) type OnRefusal = Arc<dyn Fn(IdempotencyRejection) -> Response + Send + Sync>;

/// Selects the effect of a claim without an answer on the next request: the copy of the first request was killed, or the store
/// failed after its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Unfinished {
    /// The handler runs again. A part of its work, or all of it, may be done already.
    #[default]
    RunAgain,
    /// The request is refused: 409 with the code `outcome_unknown`, until the claim is over after the time of
    /// [`keep`](crate::IdempotencyLayer::keep), or is removed by hand.
    Refuse,
}

/// The options of a layer.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) locks: LockManager,
    pub(super) answers: Arc<dyn Answers>,
    pub(super) name: LockName,
    pub(super) keep: Duration,
    pub(super) unfinished: Unfinished,
    pub(super) body_limit: Option<usize>,
    pub(super) answer_limit: usize,
    pub(super) is_detached: bool,
    pub(super) stored_by_handler: bool,
    pub(super) stored_headers: Vec<HeaderName>,
    pub(super) is_optional: bool,
    pub(super) wait: Option<Duration>,
    /// `None` for all methods that change something.
    pub(super) methods: Option<Methods>,
    pub(super) store_if: Option<StoreIf>,
    pub(super) on_reject: Option<OnRefusal>,
}

impl Settings {
    pub(super) fn new(locks: &LockManager, answers: Arc<dyn Answers>) -> Self {
        Self {
            locks: locks.clone(),
            answers,
            name: LockName::checked(LOCK_NAME),
            keep: DEFAULT_KEEP,
            unfinished: Unfinished::default(),
            body_limit: None,
            answer_limit: DEFAULT_LIMIT,
            is_detached: true,
            stored_by_handler: false,
            stored_headers: STORED_HEADERS.into(),
            is_optional: false,
            wait: None,
            methods: None,
            store_if: None,
            on_reject: None,
        }
    }

    /// Checks the options, and the locks.
    pub(super) fn check(&self) -> Result<(), InvalidOption> {
        if !(SHORTEST_KEEP..=LONGEST_KEEP).contains(&self.keep) {
            let value = format!("{:?}", self.keep);
            return Err(InvalidOption::new("keep", value, "from 1 s to 366 days"));
        }
        let buffers = self.locks.body_buffers().limit();
        if let Some(limit) = self.body_limit
            && !(1..=buffers).contains(&limit)
        {
            let allowed = format!("from 1 to {buffers} bytes, the body_buffers of the manager");
            return Err(InvalidOption::new("body_limit", limit, allowed));
        }
        if self.answer_limit > GREATEST_ANSWER {
            let allowed = format!("at most {GREATEST_ANSWER} bytes");
            return Err(InvalidOption::new("answer_limit", self.answer_limit, allowed));
        }
        if let Some(name) = self.stored_headers.iter().find(|name| is_never_stored(name)) {
            let allowed = "a header that belongs neither to one connection nor to one moment, and is no cookie";
            return Err(InvalidOption::new("store_header", name, allowed));
        }
        if let Some(methods) = &self.methods {
            methods.check("methods")?;
        }
        match self.request("idempotency:check:check").check() {
            Err(LockError::InvalidOption(error)) => Err(error),
            Err(LockError::InvalidKey(_)) | Ok(()) => Ok(()),
            Err(error) => Err(InvalidOption::new("locks", error, "usable")),
        }
    }

    fn request(&self, key: &str) -> LockRequest {
        let request = self.locks.lock(key).with_name(self.name.clone()).fenced(true);
        match self.wait {
            Some(wait) => request.wait_time(wait),
            None => request,
        }
    }

    /// Returns the request for the lock of a key.
    pub(super) fn lock(&self, id: &AnswerId) -> LockRequest {
        self.request(&format!("idempotency:{}", id.text()))
    }

    /// Counts answers that are sent again.
    pub(super) fn count_replays(&self, count: u64) {
        self.locks.count_replays(&self.name, count);
    }

    pub(super) fn longest_body(&self) -> usize {
        self.body_limit.unwrap_or(DEFAULT_LIMIT)
    }

    /// Returns whether a request of this method has a key.
    pub(super) fn covers(&self, method: &Method) -> bool {
        match &self.methods {
            Some(methods) => methods.cover(method),
            None => !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS),
        }
    }

    /// Returns whether a response is stored.
    pub(super) fn stores(&self, parts: &http::response::Parts) -> bool {
        let by_default = is_stored_by_default(parts);
        self.store_if.as_ref().map_or(by_default, |store_if| store_if(parts, by_default))
    }

    /// Returns the response to a refused request.
    pub(super) fn reject(&self, rejection: IdempotencyRejection) -> Response {
        let rejection = rejection.with_log_limit(self.locks.log_limit());
        match &self.on_reject {
            None => rejection.into_response(),
            Some(on_reject) => rejection.respond_by(|rejection| on_reject(rejection)),
        }
    }
}
