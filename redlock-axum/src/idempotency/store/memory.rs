//! Answers in the memory of this process.

use std::collections::HashMap;
use std::fmt;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::super::answers::{
    AnswerClaim, AnswerId, AnswerRecord, Answers, AnswersFuture, ClaimResult,
};

/// The number of records at which records whose time is over are removed for the first time.
const FIRST_SWEEP: usize = 1024;

/// Answers in the memory of this process: for tests, and for services that run as one copy. A restart forgets them. Clones
/// share the answers.
#[derive(Clone, Default)]
pub struct MemoryAnswers(Arc<Mutex<Records>>);

#[derive(Default)]
struct Records {
    records: HashMap<AnswerId, (AnswerRecord, Instant)>,
    /// The number of records at which the next sweep begins.
    next_sweep: usize,
}

impl MemoryAnswers {
    /// Creates a store without answers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of records whose time is not over.
    pub fn len(&self) -> usize {
        let now = Instant::now();
        self.table().records.values().filter(|(_, end)| *end > now).count()
    }

    /// Returns whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn table(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records {
    fn get(&mut self, id: &AnswerId) -> Option<&mut (AnswerRecord, Instant)> {
        let now = Instant::now();
        self.records.get_mut(id).filter(|(_, end)| *end > now)
    }

    fn put(&mut self, id: &AnswerId, record: AnswerRecord, keep: Duration) {
        if self.records.len() >= self.next_sweep.max(FIRST_SWEEP) {
            let now = Instant::now();
            self.records.retain(|_, (_, end)| *end > now);
            self.next_sweep = self.records.len() * 2;
        }
        self.records.insert(id.clone(), (record, Instant::now() + keep));
    }

    fn claim(&mut self, id: &AnswerId, claim: AnswerClaim) -> ClaimResult {
        if let Some((record, _)) = self.get(id)
            && !claim.replaces(record)
        {
            return ClaimResult::Found(record.clone());
        }
        self.put(id, AnswerRecord::new(claim.number, claim.fingerprint, None), claim.keep);
        ClaimResult::Claimed
    }

    fn store(&mut self, id: &AnswerId, number: i64, answer: Bytes, keep: Duration) -> bool {
        let Some((record, end)) = self.get(id).filter(|(record, _)| record.number == number) else {
            return false;
        };
        record.answer = Some(answer);
        *end = Instant::now() + keep;
        true
    }

    fn forget(&mut self, id: &AnswerId, number: i64) {
        let is_own = |record: &AnswerRecord| record.number == number && record.answer.is_none();
        if self.get(id).is_some_and(|(record, _)| is_own(record)) {
            self.records.remove(id);
        }
    }
}

impl Answers for MemoryAnswers {
    fn load<'a>(&'a self, id: &'a AnswerId) -> AnswersFuture<'a, Option<AnswerRecord>> {
        Box::pin(ready(Ok(self.table().get(id).map(|(record, _)| record.clone()))))
    }

    fn claim<'a>(&'a self, id: &'a AnswerId, claim: AnswerClaim) -> AnswersFuture<'a, ClaimResult> {
        Box::pin(async move { Ok(self.table().claim(id, claim)) })
    }

    fn store<'a>(
        &'a self,
        id: &'a AnswerId,
        number: i64,
        answer: Bytes,
        keep: Duration,
    ) -> AnswersFuture<'a, bool> {
        Box::pin(async move { Ok(self.table().store(id, number, answer, keep)) })
    }

    fn forget<'a>(&'a self, id: &'a AnswerId, number: i64) -> AnswersFuture<'a, ()> {
        Box::pin(async move {
            self.table().forget(id, number);
            Ok(())
        })
    }
}

impl fmt::Debug for MemoryAnswers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryAnswers").field("len", &self.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a service that runs for long uses more and more memory.
    #[tokio::test(start_paused = true)]
    async fn records_whose_time_is_over_are_removed_and_no_others() {
        let store = MemoryAnswers::new();
        let claim = async |number: i64, keep: u64| {
            let claim = AnswerClaim::new(1, [1; 32].into(), Duration::from_secs(keep));
            let id = AnswerId::new("", &number.to_string());
            assert_eq!(store.claim(&id, claim).await.unwrap(), ClaimResult::Claimed);
        };
        let most = i64::try_from(FIRST_SWEEP).unwrap();
        for number in 0..most {
            claim(number, if number < 10 { 60 } else { 1 }).await;
        }
        tokio::time::advance(Duration::from_secs(2)).await;
        claim(most, 60).await;
        assert_eq!(store.table().records.len(), 11);
        // The next one is far away.
        for number in 0..2 * most {
            claim(most + 1 + number, 60).await;
        }
        assert_eq!((store.len(), store.table().records.len()), (11 + 2048, 11 + 2048));
    }
}
