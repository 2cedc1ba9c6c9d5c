//! A scheduler in every copy: tokio-cron-scheduler fires in each of them, and one does the work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redlock_axum::{LockManager, MemoryNode};
use tokio::sync::Semaphore;
use tokio_cron_scheduler::{Job, JobScheduler};

/// Runs the job of a tick, unless another copy runs it. Returns whether it ran here.
async fn tick(locks: &LockManager, day: u32, job: impl Future<Output = ()>) -> bool {
    let request = locks.lock(format!("report:{day}")).expire(Duration::from_secs(60)).renew(true).keep(true);
    match request.try_acquire().await {
        Ok(guard) => {
            job.await;
            drop(guard);
            true
        }
        Err(error) => {
            assert!(error.is_contended(), "the job did not run here: {}", error.diagnostics());
            false
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_copies_run_the_job_of_a_tick_once() {
    let node = MemoryNode::new();
    let (ran, fired) = (Arc::new(AtomicU32::new(0)), Arc::new(Semaphore::new(0)));
    let mut copies = Vec::new();
    for _ in 0..3 {
        let locks = LockManager::builder().memory_node(&node).connect().await.unwrap();
        let (ran, fired) = (Arc::clone(&ran), Arc::clone(&fired));
        let scheduler = JobScheduler::new().await.unwrap();
        let job = Job::new_async("* * * * * *", move |_, _| {
            let (locks, ran, fired) = (locks.clone(), Arc::clone(&ran), Arc::clone(&fired));
            Box::pin(async move {
                let work = async { drop(ran.fetch_add(1, Ordering::SeqCst)) };
                tick(&locks, 7, work).await;
                fired.add_permits(1);
            })
        });
        scheduler.add(job.unwrap()).await.unwrap();
        scheduler.start().await.unwrap();
        copies.push(scheduler);
    }
    // Each copy has fired at least once, and some have fired again within the lease.
    let enough = fired.acquire_many(9);
    let _all = tokio::time::timeout(Duration::from_secs(60), enough).await.unwrap().unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}
