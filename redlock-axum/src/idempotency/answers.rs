//! The trait of a store of answers.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redlock_core::KeyPart;

use super::fingerprint::Fingerprint;

/// The future of an operation of [`Answers`].
pub type AnswersFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, AnswersError>> + Send + 'a>>;

/// A store of answers: one record for each idempotency key. This crate has `MemoryAnswers`, `RedisAnswers` and
/// `PostgresAnswers`.
///
/// A record begins as a claim, which has the number of the holder of the key's lock, and no answer. It ends with an
/// answer, which never changes, or it is forgotten. The layer calls [`claim`](Self::claim) only while it holds the lock of
/// the key, and the numbers of the holders grow. A holder may be late, so the store compares the numbers.
///
/// The answer is a text of bytes, which the store does not interpret.
///
/// With the feature `test-util`, `redlock_axum::answers_tests!` writes the tests of this contract.
///
/// # Cancel safety
///
/// The layer gives up a future that takes longer than five seconds. An operation that the store executes later must have the
/// same effect as one in time.
pub trait Answers: Send + Sync + fmt::Debug + 'static {
    /// Returns the record of a key; `None` if there is none, or if its time is over.
    fn load<'a>(&'a self, id: &'a AnswerId) -> AnswersFuture<'a, Option<AnswerRecord>>;

    /// Claims a key, in one step.
    ///
    /// * Without a record, or if its time is over, the claim becomes the record.
    /// * A record without an answer is replaced if the claim [replaces](AnswerClaim::replaces) it, has the same
    ///   fingerprint, and has a **greater** number. The time of the record begins anew.
    /// * Every other record stays, and is returned.
    fn claim<'a>(&'a self, id: &'a AnswerId, claim: AnswerClaim) -> AnswersFuture<'a, ClaimResult>;

    /// Stores the answer of a record with exactly this number, and sets the time for which the record is kept. Returns `false`,
    /// and changes nothing, if there is no such record. To store again what is stored already returns `true`.
    fn store<'a>(
        &'a self,
        id: &'a AnswerId,
        number: i64,
        answer: Bytes,
        keep: Duration,
    ) -> AnswersFuture<'a, bool>;

    /// Removes a record with exactly this number and without an answer. Otherwise changes nothing.
    fn forget<'a>(&'a self, id: &'a AnswerId, number: i64) -> AnswersFuture<'a, ()>;
}

/// Several layers can share a store.
impl<T: Answers + ?Sized> Answers for Arc<T> {
    fn load<'a>(&'a self, id: &'a AnswerId) -> AnswersFuture<'a, Option<AnswerRecord>> {
        (**self).load(id)
    }

    fn claim<'a>(&'a self, id: &'a AnswerId, claim: AnswerClaim) -> AnswersFuture<'a, ClaimResult> {
        (**self).claim(id, claim)
    }

    fn store<'a>(
        &'a self,
        id: &'a AnswerId,
        number: i64,
        answer: Bytes,
        keep: Duration,
    ) -> AnswersFuture<'a, bool> {
        (**self).store(id, number, answer, keep)
    }

    fn forget<'a>(&'a self, id: &'a AnswerId, number: i64) -> AnswersFuture<'a, ()> {
        (**self).forget(id, number)
    }
}

/// Whose key it is, and the key. `Debug` shows neither.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct AnswerId {
    scope: Arc<str>,
    key: Arc<str>,
}

impl AnswerId {
    /// Creates the name of a record. The scope is empty if [all clients are one](crate::IdempotencyLayer::shared_scope).
    pub fn new(scope: &str, key: &str) -> Self {
        Self { scope: scope.into(), key: key.into() }
    }

    /// Returns the scope. It is empty if all clients are one.
    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// Returns the text of the header, without its quotes.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns scope and key as one text. Both are escaped, so different records have different texts.
    pub fn text(&self) -> String {
        let Self { scope, key } = self;
        let key = KeyPart(&**key);
        if scope.is_empty() { key.to_string() } else { format!("{}:{key}", KeyPart(&**scope)) }
    }
}

impl fmt::Debug for AnswerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerId").finish_non_exhaustive()
    }
}

/// A stored record. `Debug` does not show the answer.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AnswerRecord {
    /// The number of the holder that has claimed the key.
    pub number: i64,
    /// The digest of its request.
    pub fingerprint: Fingerprint,
    /// `None` for a claim.
    pub answer: Option<Bytes>,
}

impl AnswerRecord {
    /// Creates a record.
    pub fn new(number: i64, fingerprint: Fingerprint, answer: Option<Bytes>) -> Self {
        Self { number, fingerprint, answer }
    }
}

impl fmt::Debug for AnswerRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerRecord")
            .field("number", &self.number)
            .field("answer", &self.answer.as_ref().map(Bytes::len))
            .finish_non_exhaustive()
    }
}

/// A claim of a key.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct AnswerClaim {
    /// The number of the holder of the key's lock.
    pub number: i64,
    /// The digest of its request.
    pub fingerprint: Fingerprint,
    /// The time for which the claim is kept.
    pub keep: Duration,
    /// Whether the claim replaces an older claim without an answer.
    pub replaces_unfinished: bool,
}

impl AnswerClaim {
    /// Creates a claim, which replaces an older claim without an answer.
    pub fn new(number: i64, fingerprint: Fingerprint, keep: Duration) -> Self {
        Self { number, fingerprint, keep, replaces_unfinished: true }
    }

    /// Sets whether the claim replaces an older claim without an answer.
    #[must_use]
    pub fn replaces_unfinished(mut self, replaces: bool) -> Self {
        self.replaces_unfinished = replaces;
        self
    }

    /// Returns whether the claim replaces a record.
    pub fn replaces(&self, record: &AnswerRecord) -> bool {
        record.answer.is_none()
            && self.replaces_unfinished
            && record.fingerprint == self.fingerprint
            && record.number < self.number
    }
}

/// The result of [`Answers::claim`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimResult {
    /// The claim is the record.
    Claimed,
    /// The record stays.
    Found(AnswerRecord),
    /// Another transaction is changing the record.
    Busy,
}

/// The error of a store of answers. The message is for operators: it must contain no password, and nothing of an answer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct AnswersError(Arc<str>);

impl AnswersError {
    /// Creates an error with a message for operators.
    pub fn new(message: impl Into<Arc<str>>) -> Self {
        Self(message.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client chooses its key, and must not reach the record of another scope by it.
    #[test]
    fn different_scopes_and_keys_have_different_texts() {
        let pairs =
            [("", "a:b"), ("a", "b"), ("", "a%3Ab"), ("a:b", "c"), ("a", "b:c"), ("A", "b")];
        let texts: std::collections::HashSet<_> =
            pairs.iter().map(|(scope, key)| AnswerId::new(scope, key).text()).collect();
        assert_eq!(texts.len(), pairs.len(), "{texts:?}");
    }

    #[test]
    fn debug_shows_no_key_and_no_answer() {
        let id = AnswerId::new("customer", "s3cret");
        let fingerprint = Fingerprint::from([7; 32]);
        let record = AnswerRecord::new(1, fingerprint, Some(Bytes::from_static(b"s3cret")));
        let text = format!("{id:?} {record:?} {:?}", ClaimResult::Found(record.clone()));
        assert!(!text.contains("s3cret") && !text.contains("customer"), "{text}");
    }
}
