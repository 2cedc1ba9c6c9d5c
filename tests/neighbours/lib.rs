//! The recipes of the guide's page about neighbours, without a server. The module of a crate contains the recipe.
#![cfg(test)]
#![allow(clippy::unwrap_used, reason = "tests")]

mod aide;
mod axum_test;
mod scheduler;
mod sessions;
mod tonic;
mod utoipa;
