//! Idempotency keys: a request that is repeated is not executed again, and gets the answer of the first one.
//!
//! * [`layer`], [`settings`]: the layer; its options and their checks.
//! * [`service`]: the service, which asks whether a request has an answer already, and locks its key.
//! * [`turn`]: the one request that executes the handler, from its claim to the stored answer.
//! * [`outcome`], [`stored_answer`]: which responses are stored, and how their bodies are read; the bytes of an answer.
//! * [`key`], [`fingerprint`]: the header, and the digest of a request.
//! * [`answers`]: the trait of a store. [`store`]: the stores. [`contract`]: the tests for authors of stores.
//! * [`rejection`], [`rejection_kind`], [`extract`]: the refused requests and their kinds; the extractor of handlers.

mod answers;
#[cfg(feature = "test-util")]
pub mod contract;
mod extract;
mod fingerprint;
mod key;
mod layer;
mod outcome;
mod rejection;
mod rejection_kind;
mod service;
mod settings;
mod store;
mod stored_answer;
mod turn;

pub use answers::{
    AnswerClaim, AnswerId, AnswerRecord, Answers, AnswersError, AnswersFuture, ClaimResult,
};
pub use extract::{AnswerRow, Idempotency};
pub use fingerprint::Fingerprint;
pub use layer::{IdempotencyLayer, ScopedKeys, UnscopedKeys};
pub use rejection::IdempotencyRejection;
pub use rejection_kind::IdempotencyRejectionKind;
pub use service::IdempotencyService;
pub use settings::Unfinished;
pub use store::MemoryAnswers;
#[cfg(feature = "redis")]
pub use store::RedisAnswers;
#[cfg(feature = "postgres")]
pub use store::{PostgresAnswers, postgres_answers_schema};
pub use stored_answer::StoredAnswer;
