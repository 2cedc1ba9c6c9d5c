//! A store whose operations fail, hang and wait as a test says.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use redlock_axum::{
    AnswerClaim, AnswerId, AnswerRecord, Answers, AnswersError, AnswersFuture, ClaimResult,
    MemoryAnswers,
};
use tokio::sync::{Notify, Semaphore};

/// An operation of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Load,
    Claim,
    Store,
    Forget,
}

/// The way in which a store fails or delays an operation.
#[derive(Debug, Clone)]
pub(crate) enum Play {
    /// It executes nothing, and says so.
    Fail,
    /// It executes the operation, and its reply is lost.
    Lose,
    /// It never replies.
    Hang,
    /// It says that the operation has begun, and waits for a permit.
    Wait(Arc<Notify>, Arc<Semaphore>),
}

/// Answers in memory, with operations that go as the test says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Played {
    pub(crate) answers: MemoryAnswers,
    plays: Arc<Mutex<VecDeque<(Operation, Play)>>>,
}

impl Played {
    /// Sets what happens at the next operation of this kind that has nothing else to do.
    pub(crate) fn plan(&self, operation: Operation, play: Play) {
        self.plays.lock().unwrap().push_back((operation, play));
    }

    /// Returns how many operations have not gone as planned yet.
    pub(crate) fn planned(&self) -> usize {
        self.plays.lock().unwrap().len()
    }

    fn next(&self, operation: Operation) -> Option<Play> {
        let mut plays = self.plays.lock().unwrap();
        let index = plays.iter().position(|(of, _)| *of == operation)?;
        plays.remove(index).map(|(_, play)| play)
    }

    fn play<'a, T: Send + 'a>(
        &'a self,
        operation: Operation,
        work: AnswersFuture<'a, T>,
    ) -> AnswersFuture<'a, T> {
        Box::pin(async move {
            match self.next(operation) {
                None => return work.await,
                Some(Play::Fail) => {}
                Some(Play::Lose) => drop(work.await),
                Some(Play::Hang) => pending().await,
                Some(Play::Wait(begun, permits)) => {
                    begun.notify_one();
                    permits.acquire().await.unwrap().forget();
                    return work.await;
                }
            }
            Err(AnswersError::new("as the test says"))
        })
    }
}

impl Answers for Played {
    fn load<'a>(&'a self, id: &'a AnswerId) -> AnswersFuture<'a, Option<AnswerRecord>> {
        self.play(Operation::Load, self.answers.load(id))
    }

    fn claim<'a>(&'a self, id: &'a AnswerId, claim: AnswerClaim) -> AnswersFuture<'a, ClaimResult> {
        self.play(Operation::Claim, self.answers.claim(id, claim))
    }

    fn store<'a>(
        &'a self,
        id: &'a AnswerId,
        number: i64,
        answer: Bytes,
        keep: Duration,
    ) -> AnswersFuture<'a, bool> {
        self.play(Operation::Store, self.answers.store(id, number, answer, keep))
    }

    fn forget<'a>(&'a self, id: &'a AnswerId, number: i64) -> AnswersFuture<'a, ()> {
        self.play(Operation::Forget, self.answers.forget(id, number))
    }
}
