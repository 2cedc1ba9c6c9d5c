//! Work under a lock, as applications write it: closures, functions and methods, spawned and awaited in place.

use std::error::Error;
use std::num::ParseIntError;
use std::rc::Rc;

use redlock_core::{LockError, LockHandle, LockManager, LockRequest, OnLost, RunError};
use tokio::task::{LocalSet, spawn_local, yield_now};

fn request(locks: &LockManager) -> LockRequest {
    locks.lock("a").on_lost(OnLost::Abort).wait_forever()
}

async fn length(lock: LockHandle) -> usize {
    yield_now().await;
    lock.keys()[0].as_str().len()
}

/// A service whose methods borrow it.
struct Service {
    locks: LockManager,
    done: Vec<String>,
}

impl Service {
    async fn work(&mut self, name: &str, lock: &LockHandle) -> usize {
        yield_now().await;
        assert!(lock.is_valid());
        self.done.push(name.to_owned());
        self.done.len()
    }

    async fn locked(&mut self, name: &str) -> Result<usize, RunError> {
        request(&self.locks).run(async |lock| self.work(name, &lock).await).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_owns_its_values_is_spawned() {
    let locks = LockManager::in_memory();
    let name = String::from("order");
    let tasks = [
        tokio::spawn(request(&locks).run(length)),
        tokio::spawn(request(&locks).run(async |lock| length(lock).await)),
        tokio::spawn(request(&locks).run(|lock| async move { length(lock).await })),
        tokio::spawn(request(&locks).run(async move |lock| length(lock).await + name.len() - 5)),
    ];
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap(), 1);
    }
    locks.lock("a").try_acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_borrows_is_spawned_with_the_block_that_owns_the_values() {
    let mut service = Service { locks: LockManager::in_memory(), done: Vec::new() };
    let task = tokio::spawn(async move {
        let mut sum = service.locked("first").await?;
        let name = String::from("second");
        sum += service.locked(&name).await?;
        let locks = service.locks.clone();
        request(&locks).run(async |_| sum += 1).await?;
        request(&locks).run(async |lock| service.work(&name, &lock).await).await?;
        Ok::<_, RunError>((sum, service.done))
    });
    let (sum, done) = task.await.unwrap().unwrap();
    assert_eq!(sum, 4);
    assert_eq!(done, ["first", "second", "second"]);
}

#[tokio::test]
async fn work_that_is_not_send_runs_on_its_thread() {
    let locks = LockManager::in_memory();
    let number = Rc::new(1);
    let work = request(&locks).run(async move |lock| length(lock).await + *number);
    let local = LocalSet::new();
    let task = local.run_until(async { spawn_local(work).await });
    assert_eq!(task.await.unwrap().unwrap(), 2);
}

#[tokio::test]
async fn the_errors_of_the_lock_and_of_the_work_are_told_apart() {
    async fn parse(locks: &LockManager, text: &str) -> Result<u32, Box<dyn Error>> {
        Ok(locks.lock("a").run(async |_| text.parse::<u32>()).await??)
    }

    let locks = LockManager::in_memory();
    assert_eq!(parse(&locks, "42").await.unwrap(), 42);
    assert!(parse(&locks, "x").await.unwrap_err().is::<ParseIntError>());
    let _holder = locks.lock("a").try_acquire().await.unwrap();
    let refused = parse(&locks, "42").await.unwrap_err();
    let refused = refused.downcast::<RunError>().unwrap();
    assert!(matches!(*refused, RunError::Acquire(LockError::Contended { .. })), "{refused:?}");
}

#[tokio::test]
async fn fenced_work_gets_the_number_of_its_holder() {
    let locks = LockManager::in_memory();
    let before = locks.lock("a").fenced(true).try_acquire().await.unwrap();
    let token = before.fencing_token();
    before.release().await.unwrap();
    let work = async |lock: LockHandle| {
        let shared = locks.lock("a").reentrant(true).fenced(true).try_acquire().await.unwrap();
        assert_eq!(shared.fencing_token(), lock.fencing_token());
        lock.fencing_token()
    };
    let run = || locks.lock("a").fenced(true).run(work);
    let (first, second) = (run().await.unwrap(), run().await.unwrap());
    assert!(token < first && first < second, "{token:?} {first:?} {second:?}");
}
