//! The name of a lock. A test of a hand-over is in `waiting/hand_over_tests.rs`.

use crate::{LockError, LockManager, LockRequest, scope};

/// Returns the name of the lock that each way of acquiring it gets.
async fn names(request: impl Fn() -> LockRequest) -> Vec<String> {
    let tried = request().try_acquire().await.unwrap().name().to_owned();
    let acquired = request().acquire().await.unwrap().name().to_owned();
    let patient = request().wait_forever().acquire().await.unwrap().handle().name().to_owned();
    let run = request().run(async |lock| lock.name().to_owned()).await.unwrap();
    let detached = request().run_detached(async |lock| lock.name().to_owned()).await.unwrap();
    vec![tried, acquired, patient, run, detached]
}

#[tokio::test]
async fn a_lock_has_the_name_of_its_request_and_is_other_without_one() {
    let locks = LockManager::in_memory();
    assert_eq!(names(|| locks.lock("order:42")).await, ["other"; 5]);
    assert_eq!(names(|| locks.lock("order:42").named("order:{id}")).await, ["order:{id}"; 5]);
    let calculated = || locks.lock_all(["a", "b"]).named(format!("shard {}", 7));
    assert_eq!(names(calculated).await, ["shard 7"; 5]);
    // It is no option, so the options keep it.
    let optional = || locks.lock("a").named("a").options(crate::LockOptions::new().keep(false));
    assert_eq!(names(optional).await, ["a"; 5]);
}

#[tokio::test]
async fn a_leader_has_the_name_of_its_request() {
    let locks = LockManager::in_memory();
    let name = async |leader: crate::Leader| leader.name().to_owned();
    assert_eq!(locks.lead("reminders").run(name).await.unwrap(), "other");
    assert_eq!(locks.lead("reminders").named("reminders").run(name).await.unwrap(), "reminders");
}

/// They are one lock, in one row of a table.
#[tokio::test]
async fn guards_that_join_a_lock_have_the_name_of_its_first_request() {
    let locks = LockManager::in_memory();
    scope(async {
        let outer = locks.lock("a").named("outer").try_acquire().await.unwrap();
        let inner = locks.lock("a").named("inner").reentrant(true).try_acquire().await.unwrap();
        drop(outer);
        assert_eq!(inner.name(), "outer");
    })
    .await;
}

#[tokio::test]
async fn an_invalid_name_is_an_invalid_option_that_names_value_range_and_key() {
    let locks = LockManager::in_memory();
    let allowed = "but must be from 1 to 100 bytes without control characters";
    for (name, value) in [
        (String::new(), "\"\""),
        ("a\u{85}".to_owned(), "\"a\\u{85}\""),
        ("a".repeat(101), "101 bytes long"),
    ] {
        let request = locks.lock("order:42").named(name.clone());
        let message = format!("name is {value}, {allowed}");
        for error in [request.check().unwrap_err(), request.acquire().await.unwrap_err()] {
            let LockError::InvalidOption(invalid) = &error else { panic!("{error:?}") };
            assert_eq!((invalid.option(), error.to_string()), ("name", message.clone()));
            let diagnostics = format!("{message}; lock order:42");
            assert_eq!(error.diagnostics().to_string(), diagnostics);
        }
        let refused = locks.lead("order:42").named(name).run(async |_leader| {}).await;
        assert_eq!(refused.unwrap_err().to_string(), message);
    }
    locks.lock("order:42").named("a".repeat(100)).check().unwrap();
}
