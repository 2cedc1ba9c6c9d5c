//! Options that are checked when a layer is made.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header;
use redlock_axum::node::{Capabilities, Node, Op, ReplyFuture};
use redlock_axum::{IdempotencyLayer, LockManager, MemoryAnswers, Vote};

#[tokio::test]
async fn a_layer_whose_options_are_wrong_is_not_made() {
    let locks = LockManager::in_memory();
    let layer = || IdempotencyLayer::new(&locks, MemoryAnswers::new());
    for (made, words) in [
        (
            layer().keep(Duration::from_millis(999)).shared_scope(),
            "keep is 999ms, but must be from 1 s",
        ),
        (layer().keep(Duration::from_secs(367 * 86_400)).shared_scope(), "366 days"),
        (layer().body_limit(0).shared_scope(), "body_limit is 0"),
        (layer().body_limit(usize::MAX).shared_scope(), "body_buffers"),
        (layer().answer_limit((64 << 20) + 1).shared_scope(), "answer_limit"),
        (layer().store_header(header::SET_COOKIE).shared_scope(), "store_header is set-cookie"),
        (layer().store_header(header::TRANSFER_ENCODING).shared_scope(), "store_header"),
        (layer().methods([]).shared_scope(), "methods"),
        (layer().named("").shared_scope(), "name"),
        (layer().named("a\nb").shared_scope(), "name"),
        (layer().wait(Duration::MAX).shared_scope(), "wait_time"),
    ] {
        let error = made.map(drop).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    assert!(layer().keep(Duration::from_secs(1)).answer_limit(0).shared_scope().is_ok());
    let unready = layer().scope(|_| None).unwrap();
    assert!(format!("{unready:?}").contains("MemoryAnswers"));
}

/// A node whose locks have no numbers.
#[derive(Debug)]
struct WithoutNumbers(Arc<str>);

impl Node for WithoutNumbers {
    fn name(&self) -> &Arc<str> {
        &self.0
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn call(&self, _: Op) -> ReplyFuture {
        ReplyFuture::ready(Vote::Agreed)
    }
}

/// A claim has the number of its lock, so a layer over locks without one is not made.
#[tokio::test]
async fn a_layer_over_locks_without_a_growing_number_is_not_made() {
    let node = WithoutNumbers("numberless".into());
    let locks = LockManager::builder().node(node).connect().await.unwrap();
    let layer = IdempotencyLayer::new(&locks, MemoryAnswers::new());
    let error = layer.shared_scope().map(drop).unwrap_err().to_string();
    assert!(error.contains("fenced"), "{error}");
}
