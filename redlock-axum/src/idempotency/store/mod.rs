//! The stores of answers that this crate has.

mod memory;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;

pub use memory::MemoryAnswers;
#[cfg(feature = "postgres")]
pub use postgres::{PostgresAnswers, postgres_answers_schema};
#[cfg(feature = "redis")]
pub use redis::RedisAnswers;
