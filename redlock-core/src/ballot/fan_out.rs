//! Many answers awaited in one task.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::Vote;
use crate::node::{Answer, patiently};

/// The answers of the nodes, polled together in the caller's task: for a handful of nodes that is
/// faster than a task or a wake-up list for each.
#[derive(Default)]
pub(crate) struct FanOut {
    answers: Vec<Option<Answer>>,
    pending: usize,
}

impl FanOut {
    pub(crate) fn with_capacity(nodes: usize) -> Self {
        Self { answers: Vec::with_capacity(nodes), pending: 0 }
    }

    /// Adds the answer of the next node.
    pub(crate) fn push(&mut self, answer: Answer) {
        self.answers.push(Some(answer));
        self.pending += 1;
    }

    /// Takes the answer of a node away, if it is still awaited.
    pub(crate) fn take(&mut self, index: usize) -> Option<Answer> {
        let answer = self.answers.get_mut(index)?.take();
        self.pending -= usize::from(answer.is_some());
        answer
    }

    /// Whether the answer of a node is awaited.
    pub(crate) fn is_pending(&self, index: usize) -> bool {
        self.answers.get(index).is_some_and(Option::is_some)
    }

    /// Whether nothing is awaited.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending == 0
    }

    /// Polls every answer once and reports the votes that have come in.
    pub(crate) fn poll_all(&mut self, cx: &mut Context<'_>, mut voted: impl FnMut(usize, Vote)) {
        for (index, slot) in self.answers.iter_mut().enumerate() {
            let Some(answer) = slot else { continue };
            if let Poll::Ready(vote) = Pin::new(answer).poll(cx) {
                *slot = None;
                self.pending -= 1;
                voted(index, vote);
            }
        }
    }

    /// Waits for all answers.
    pub(crate) async fn finish(mut self, mut voted: impl FnMut(usize, Vote)) {
        patiently(std::future::poll_fn(|cx| {
            self.poll_all(cx, &mut voted);
            if self.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        }))
        .await;
    }
}

impl fmt::Debug for FanOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FanOut").field("pending", &self.pending).finish_non_exhaustive()
    }
}
