//! The cases in which a lock outlives the session of its holder, unless the node has evidence that the session lives.
//!
//! A server ends a session when its leader has not heard of it for the session timeout. A write that a follower forwards
//! does not count. So a holder that was silent for nearly that time has a lock that may be gone at once.

mod thorough {
    use std::time::Duration;

    use redlock_tests::{Peer, ZookeeperEnsemble, eventually};
    use rustix::process::Signal;

    use crate::client::{Recorded, signal};
    use crate::{KEY, SESSION, SOON, connect, start_ensemble};

    /// The longest lease.
    const LEASE: Duration = Duration::from_secs(2);

    /// The time in which a release is sent.
    const RELEASE: Duration = Duration::from_millis(100);

    /// A process that waits for the lock at one follower, while another process at the other follower has it.
    struct Scene {
        ensemble: ZookeeperEnsemble,
        recorded: Recorded,
    }

    impl Scene {
        async fn new() -> Option<Self> {
            Some(Self { ensemble: start_ensemble().await?, recorded: Recorded::new() })
        }

        /// Lets a process at `follower` wait for the lock. Does `before` while it waits, then releases the lock, and does
        /// `after`. Then a third caller at the other follower gets the lock, as soon as it is free.
        async fn run(
            &mut self,
            follower: usize,
            other: usize,
            before: impl AsyncFnOnce(&mut ZookeeperEnsemble, &mut Peer),
            after: impl AsyncFnOnce(&mut ZookeeperEnsemble, &mut Peer),
        ) {
            let elsewhere = connect(&self.ensemble.url_of(&[other])).await;
            let wait = 10 * SESSION;
            let mut waiter = self.recorded.start(&self.ensemble.url_of(&[follower]));
            let first = self.recorded.acquire(&elsewhere, KEY, LEASE, wait).await;
            // The lease of the first holder lasts until its release.
            let (guard, mut belief) = first;
            waiter.order(&format!("acquire {KEY} {} {}", LEASE.as_millis(), wait.as_millis()));
            eventually("the process waits", SOON, async || {
                let waits = self.ensemble.locks_count(other).await == (1, 1);
                let _ = guard.extend(LEASE).await;
                belief.look(|| guard.remaining());
                waits.then_some(())
            })
            .await;
            before(&mut self.ensemble, &mut waiter).await;
            belief.look(|| guard.remaining());
            drop(belief);
            // The leader may not answer.
            let _ = tokio::time::timeout(RELEASE, guard.release()).await;
            after(&mut self.ensemble, &mut waiter).await;
            let third = connect(&self.ensemble.url_of(&[other])).await;
            let (guard, belief) = self.recorded.acquire(&third, KEY, LEASE, wait).await;
            drop(belief);
            // If the connection of a server that has just gone on breaks, the manager repeats the release.
            let _ = guard.release().await;
            eventually("no lock is left", SOON, async || {
                (self.ensemble.locks_count(other).await == (0, 0)).then_some(())
            })
            .await;
            self.recorded.checked();
        }
    }

    /// Continues the process after this part of the session timeout.
    async fn go_on_after(waiter: &Peer, part: f64) {
        tokio::time::sleep(SESSION.mul_f64(part)).await;
        signal(waiter, Signal::CONT);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_process_that_was_silent_for_a_session_timeout_has_no_lock_of_another() {
        let Some(mut scene) = Scene::new().await else { return };
        let [follower, other] = scene.ensemble.followers().await;
        let mut answers = Vec::new();
        for part in [0.97, 1.0, 1.05, 1.1, 1.15, 1.2, 1.25] {
            println!("silent for {part} session timeouts");
            let silent = async |_: &mut ZookeeperEnsemble, waiter: &mut Peer| {
                signal(waiter, Signal::STOP);
            };
            let goes_on = async |_: &mut ZookeeperEnsemble, waiter: &mut Peer| {
                // The release has woken the waiter, which cannot answer yet.
                go_on_after(waiter, part).await;
                answers.push(waiter.answer());
            };
            scene.run(follower, other, silent, goes_on).await;
        }
        // A node that refuses every lock would leave no lock of two, either.
        assert!(answers.iter().any(|answer| answer == "acquired"), "{answers:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_follower_that_freezes_after_its_answer_leaves_no_lock_of_two() {
        let Some(mut scene) = Scene::new().await else { return };
        let [follower, other] = scene.ensemble.followers().await;
        for part in [0.5, 0.9, 0.97, 1.0] {
            println!("silent for {part} session timeouts");
            let silent = async |_: &mut ZookeeperEnsemble, waiter: &mut Peer| {
                signal(waiter, Signal::STOP);
            };
            let freezes = async |ensemble: &mut ZookeeperEnsemble, waiter: &mut Peer| {
                go_on_after(waiter, part).await;
                println!("{}", waiter.answer());
                ensemble.freeze(follower);
            };
            scene.run(follower, other, silent, freezes).await;
            scene.ensemble.thaw(follower);
            scene.ensemble.serves(follower).await;
        }
    }

    /// The pings of the followers wait in the sockets of the leader while its clock goes on.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_leader_that_was_stopped_for_a_session_timeout_leaves_no_lock_of_two() {
        let Some(mut scene) = Scene::new().await else { return };
        for part in [1.0, 1.05, 1.1, 1.15, 1.2] {
            println!("the leader stops for {part} session timeouts");
            let leader = scene.ensemble.leader().await;
            let [follower, other] = scene.ensemble.followers().await;
            let stops = async |ensemble: &mut ZookeeperEnsemble, _: &mut Peer| {
                ensemble.freeze(leader);
                tokio::time::sleep(SESSION.mul_f64(part)).await;
            };
            let goes_on = async |ensemble: &mut ZookeeperEnsemble, waiter: &mut Peer| {
                ensemble.thaw(leader);
                println!("{}", waiter.answer());
                ensemble.serves(leader).await;
            };
            scene.run(follower, other, stops, goes_on).await;
        }
    }
}
