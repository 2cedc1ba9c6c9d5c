//! The questions of operators: the status of a lock, the break of one holder, and the snapshot of this process.

mod break_lock;
#[cfg(test)]
#[cfg(feature = "test-util")]
mod break_tests;
mod error;
#[cfg(feature = "serde")]
mod serde;
mod snapshot;
mod status;
#[cfg(test)]
#[cfg(feature = "test-util")]
mod tests;

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::context::Context;
use crate::error::{LockError, NodeError};
use crate::key::LockKey;
use crate::lock::{Dialect, LockSpec, Mode};
use crate::node::Inspection;
use crate::quorum::quorum;

pub use break_lock::{BreakRequest, Broken, check_reason};
pub use error::{BreakError, StatusError};
pub use snapshot::{
    CounterSnapshot, HeldSnapshot, LostSnapshot, NodeSnapshot, ProcessSnapshot, Snapshot,
    WaitingSnapshot,
};
pub use status::{Holder, KeyState, LockStatus, NodeAnswer, StatusRequest};

/// Returns the lock at a key, as the nodes have it.
fn spec(context: &Context, key: &LockKey, dialect: Dialect) -> LockSpec {
    LockSpec::new(key.with_prefix(&context.prefix), Mode::Exclusive, dialect)
}

/// Asks all nodes at once. Each has the node timeout. A node that offers no inspection has no answer.
async fn ask_all<'a, T, A>(
    context: &'a Context,
    ask: impl Fn(&'a dyn Inspection) -> A,
) -> Vec<Option<Result<T, NodeError>>>
where
    A: Future<Output = Result<T, NodeError>>,
{
    let limit = context.ballot.node_timeout;
    let asked = context.ballot.nodes.iter().map(|node| {
        // The first poll sends the question.
        let answer = node.inspection().map(&ask);
        async move {
            let answer = timeout(limit, answer?).await;
            Some(answer.unwrap_or(Err(NodeError::NoReply(limit))))
        }
    });
    join_all(asked).await
}

/// Returns the name of a node that offers no inspection, if so many lack it that no quorum can answer.
fn unsupported(context: &Context) -> Option<Arc<str>> {
    let nodes = &context.ballot.nodes;
    let mut lacking = nodes.iter().filter(|node| node.inspection().is_none());
    let first = lacking.next()?;
    (lacking.count() + 1 > nodes.len() - quorum(nodes.len())).then(|| Arc::clone(first.name()))
}

/// Returns why a closed manager asks no node.
fn check_open<E: From<Closed>>(context: &Arc<Context>) -> Result<(), E> {
    context.home.check_open().map_err(|closed| {
        E::from(match closed {
            LockError::RuntimeEnded => Closed::RuntimeEnded,
            _ => Closed::ShutDown,
        })
    })?;
    context.enter();
    Ok(())
}

/// The reasons of a closed manager.
enum Closed {
    ShutDown,
    RuntimeEnded,
}
