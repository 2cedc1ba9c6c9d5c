//! The tests of the contract of [`Answers`], for authors of stores. [`answers_tests!`](crate::answers_tests) calls them.

use std::time::Duration;

use bytes::Bytes;

use super::answers::{AnswerClaim, AnswerId, AnswerRecord, Answers, ClaimResult};
use super::fingerprint::Fingerprint;

/// Longer than any test.
const LONG: Duration = Duration::from_secs(300);
const ANSWER: Bytes = Bytes::from_static(b"\0answer\xff");

fn id() -> AnswerId {
    AnswerId::new("customer:7", "key \"1\"")
}

fn claim(number: i64) -> AnswerClaim {
    AnswerClaim::new(number, Fingerprint::from([1; 32]), LONG)
}

fn record(number: i64, answer: Option<Bytes>) -> AnswerRecord {
    AnswerRecord::new(number, Fingerprint::from([1; 32]), answer)
}

/// Panics with the message of a store that has failed.
async fn done<T>(operation: impl Future<Output = Result<T, super::answers::AnswersError>>) -> T {
    operation.await.unwrap_or_else(|error| panic!("the store has failed: {error}"))
}

/// A key without a record is claimed, and the record has the number and the fingerprint, and no answer.
pub async fn a_free_key_is_claimed(store: impl Answers) {
    let id = id();
    assert_eq!(done(store.load(&id)).await, None);
    assert_eq!(done(store.claim(&id, claim(5))).await, ClaimResult::Claimed);
    assert_eq!(done(store.load(&id)).await, Some(record(5, None)));
}

/// A claim without an answer is replaced by a greater number only.
pub async fn a_claim_is_replaced_by_a_greater_number_only(store: impl Answers) {
    let id = id();
    done(store.claim(&id, claim(5))).await;
    for number in [4, 5] {
        let found = done(store.claim(&id, claim(number))).await;
        assert_eq!(found, ClaimResult::Found(record(5, None)), "{number}");
    }
    let refused = done(store.claim(&id, claim(6).replaces_unfinished(false))).await;
    assert_eq!(refused, ClaimResult::Found(record(5, None)), "it replaces nothing");
    let other = AnswerClaim::new(6, Fingerprint::from([2; 32]), LONG);
    let refused = done(store.claim(&id, other)).await;
    assert_eq!(refused, ClaimResult::Found(record(5, None)), "another request");
    // The numbers have up to 16 digits, and are compared as numbers.
    for number in [6, 10, (1 << 53) - 1] {
        assert_eq!(done(store.claim(&id, claim(number))).await, ClaimResult::Claimed);
        assert_eq!(done(store.load(&id)).await, Some(record(number, None)));
    }
}

/// An answer is stored by the number that has claimed the key, and by no other.
pub async fn an_answer_is_stored_by_its_own_number_only(store: impl Answers) {
    let id = id();
    assert!(!done(store.store(&id, 5, ANSWER, LONG)).await, "there is no record");
    assert_eq!(done(store.load(&id)).await, None);
    done(store.claim(&id, claim(5))).await;
    done(store.claim(&id, claim(6))).await;
    for number in [5, 7] {
        assert!(!done(store.store(&id, number, ANSWER, LONG)).await, "{number}");
    }
    assert_eq!(done(store.load(&id)).await, Some(record(6, None)));
    for _ in 0..2 {
        assert!(done(store.store(&id, 6, ANSWER, LONG)).await);
        assert_eq!(done(store.load(&id)).await, Some(record(6, Some(ANSWER))));
    }
}

/// An answer stays: no claim and no removal changes it.
pub async fn an_answer_never_changes(store: impl Answers) {
    let id = id();
    done(store.claim(&id, claim(5))).await;
    done(store.store(&id, 5, ANSWER, LONG)).await;
    let kept = record(5, Some(ANSWER));
    for number in [4, 5, 6] {
        let found = done(store.claim(&id, claim(number))).await;
        assert_eq!(found, ClaimResult::Found(kept.clone()), "{number}");
        done(store.forget(&id, number)).await;
        assert_eq!(done(store.load(&id)).await, Some(kept.clone()), "{number}");
    }
}

/// A claim is removed by its own number only.
pub async fn a_claim_is_forgotten_by_its_own_number_only(store: impl Answers) {
    let id = id();
    done(store.forget(&id, 5)).await;
    done(store.claim(&id, claim(5))).await;
    for number in [4, 6] {
        done(store.forget(&id, number)).await;
        assert_eq!(done(store.load(&id)).await, Some(record(5, None)), "{number}");
    }
    done(store.forget(&id, 5)).await;
    assert_eq!(done(store.load(&id)).await, None);
    assert_eq!(done(store.claim(&id, claim(1))).await, ClaimResult::Claimed);
}

/// A record is gone when its time is over. Then a smaller number claims the key, also for another request.
pub async fn a_record_ends_after_its_time(store: impl Answers) {
    let id = id();
    let brief = Duration::from_millis(200);
    done(store.claim(&id, AnswerClaim::new(5, Fingerprint::from([1; 32]), brief))).await;
    gone(&store, &id).await;
    assert!(!done(store.store(&id, 5, ANSWER, LONG)).await, "the time of the claim is over");
    assert_eq!(done(store.claim(&id, claim(4))).await, ClaimResult::Claimed);
    assert!(done(store.store(&id, 4, ANSWER, brief)).await);
    gone(&store, &id).await;
    let other = Fingerprint::from([2; 32]);
    let claimed = done(store.claim(&id, AnswerClaim::new(3, other, LONG))).await;
    assert_eq!(claimed, ClaimResult::Claimed);
    let found = done(store.load(&id)).await;
    assert_eq!(found, Some(AnswerRecord::new(3, other, None)), "nothing of the old record stays");
}

/// Waits until there is no record.
async fn gone(store: &impl Answers, id: &AnswerId) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while done(store.load(id)).await.is_some() {
        assert!(tokio::time::Instant::now() < deadline, "the record outlives its time");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Scopes and keys with any characters have records of their own.
pub async fn different_names_have_different_records(store: impl Answers) {
    let names = [
        ("", "a"),
        ("", "A"),
        ("a", "a"),
        ("a", "b"),
        ("a:b", "c"),
        ("a", "b:c"),
        ("%41", "é\u{1}"),
    ];
    for (number, (scope, key)) in (1..).zip(names) {
        let claimed = done(store.claim(&AnswerId::new(scope, key), claim(number))).await;
        assert_eq!(claimed, ClaimResult::Claimed, "{scope:?} {key:?}");
    }
    for (number, (scope, key)) in (1..).zip(names) {
        let found = done(store.load(&AnswerId::new(scope, key))).await;
        assert_eq!(found, Some(record(number, None)), "{scope:?} {key:?}");
    }
}

/// Answers of every length are stored, byte for byte.
pub async fn long_and_empty_answers_are_stored(store: impl Answers) {
    for (number, length) in (1..).zip([1, 255, 65_536, 1 << 20]) {
        let id = AnswerId::new("", &length.to_string());
        let answer: Bytes = (0..length).map(|byte| u8::try_from(byte % 251).unwrap_or(0)).collect();
        done(store.claim(&id, claim(number))).await;
        assert!(done(store.store(&id, number, answer.clone(), LONG)).await, "{length} bytes");
        assert_eq!(done(store.load(&id)).await, Some(record(number, Some(answer))));
    }
}

/// Of many claims at once, each with its own number, the greatest claimed number is the record in the end.
pub async fn of_claims_at_once_the_greatest_number_stays(store: impl Answers) {
    let id = id();
    let claims = (1..=20).map(|number| {
        let (store, id) = (&store, &id);
        async move { (number, done(store.claim(id, claim(number))).await) }
    });
    let results = futures_util::future::join_all(claims).await;
    let claimed = results.iter().filter(|(_, result)| *result == ClaimResult::Claimed);
    let greatest = claimed.map(|(number, _)| *number).max();
    assert_eq!(done(store.load(&id)).await.map(|record| record.number), greatest);
    // The others do not store.
    for number in 1..=20 {
        let stored = done(store.store(&id, number, ANSWER, LONG)).await;
        assert_eq!(stored, Some(number) == greatest, "{number}");
    }
}

/// Writes a `#[tokio::test]` for each behaviour of a store of answers. Requires the feature `test-util`.
///
/// The argument is the path of an async function that returns an empty store, which implements [`Answers`](crate::Answers), and a
/// value that ends with the test, such as a server. A test passes if the function returns `None`, because a program is not
/// installed. Call the macro in a module of its own.
///
/// # Examples
///
/// ```
/// use redlock_axum::MemoryAnswers;
///
/// async fn store() -> Option<(MemoryAnswers, ())> {
///     Some((MemoryAnswers::new(), ()))
/// }
///
/// mod contract {
///     redlock_axum::answers_tests!(super::store);
/// }
/// ```
#[macro_export]
macro_rules! answers_tests {
    ($store:path) => {
        $crate::answers_tests! { @each $store:
            a_free_key_is_claimed
            a_claim_is_replaced_by_a_greater_number_only
            an_answer_is_stored_by_its_own_number_only
            an_answer_never_changes
            a_claim_is_forgotten_by_its_own_number_only
            a_record_ends_after_its_time
            different_names_have_different_records
            long_and_empty_answers_are_stored
            of_claims_at_once_the_greatest_number_stays
        }
    };
    (@each $store:path: $($behaviour:ident)+) => {
        $(#[tokio::test]
        async fn $behaviour() {
            let store = $store;
            if let Some((store, _server)) = store().await {
                $crate::test_util::answers_tests::$behaviour(store).await;
            }
        })+
    };
}
