//! Faults of an ensemble under load: its leader is killed or cut off, servers restart one after another, an observer
//! serves clients, and clients are stopped.

mod thorough {
    use std::time::Duration;

    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    use redlock_tests::{
        Peer, Traffic, ZookeeperEnsemble, eventually, monotonic_nanos, seeds, skip,
    };
    use rustix::process::Signal;
    use tokio::time::sleep;

    use crate::client::{Recorded, signal};
    use crate::{KEY, SESSION, SOON};

    const LEASE: Duration = Duration::from_secs(2);

    /// An ensemble with an observer, and three processes that contend for a lock. The last one knows only the observer.
    struct World {
        ensemble: ZookeeperEnsemble,
        recorded: Recorded,
        clients: Vec<Peer>,
    }

    impl World {
        async fn new(seed: u64) -> Option<Self> {
            let options = ZookeeperEnsemble::options().observers(1);
            let options = options.session_timeout(SESSION).sync_limit(5);
            let ensemble = options.start().await.inspect_err(|why| skip(why)).ok()?;
            let recorded = Recorded::new();
            let mut clients = Vec::new();
            for (number, servers) in [&[0, 1, 2, 3][..], &[0, 1, 2], &[3]].into_iter().enumerate() {
                let mut client = recorded.start(&ensemble.url_of(servers));
                let (lease, seed) = (LEASE.as_millis(), seed.wrapping_add(number as u64));
                client.order(&format!("contend {KEY} {lease} {seed}"));
                client.order(&format!("contend {KEY} {lease} {}", !seed));
                clients.push(client);
            }
            let world = Self { ensemble, recorded, clients };
            world.all_get_locks().await;
            Some(world)
        }

        /// Waits until each process has got the lock after this time.
        async fn all_get_locks(&self) {
            let since = monotonic_nanos();
            eventually("each process gets the lock", 2 * SOON, async || {
                let holds = self.recorded.holds();
                let gets = |client: &Peer| {
                    holds.iter().any(|hold| hold.process == client.id() && hold.start > since)
                };
                self.clients.iter().all(gets).then_some(())
            })
            .await;
        }

        /// Waits until the lock is granted again, and checks the history.
        async fn recovers(&self, fault: &str) {
            self.all_get_locks().await;
            println!("{fault}: {} holds", self.recorded.checked().len());
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_leader_that_is_killed_or_cut_off_leaves_no_lock_of_two() {
        let Some(mut world) = World::new(1).await else { return };
        for _ in 0..2 {
            let leader = world.ensemble.leader().await;
            world.ensemble.kill(leader);
            assert_ne!(world.ensemble.leader().await, leader);
            world.recovers("the leader is killed").await;
            world.ensemble.restart(leader).await;
            world.recovers("the former leader is back").await;

            let leader = world.ensemble.leader().await;
            world.ensemble.isolate(leader);
            eventually("the others elect a leader", SOON, async || {
                (world.ensemble.leader().await != leader).then_some(())
            })
            .await;
            world.recovers("the leader is cut off").await;
            world.ensemble.heal();
            world.ensemble.serves(leader).await;
            world.recovers("the network is whole").await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn servers_that_restart_one_after_another_leave_no_lock_of_two() {
        let Some(mut world) = World::new(2).await else { return };
        for server in (0..world.ensemble.count()).chain([0, 1, 2]) {
            world.ensemble.restart(server).await;
            world.recovers(&format!("server {server} has restarted")).await;
        }
    }

    /// Random faults of clients, servers and networks, several at once.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn random_faults_leave_no_lock_of_two() {
        for seed in seeds("zookeeper::storm") {
            println!("REDLOCK_SEED={seed}");
            let Some(mut world) = World::new(seed).await else { return };
            let mut choices = StdRng::seed_from_u64(seed);
            for _ in 0..12 {
                let server = choices.random_range(0..world.ensemble.count());
                let other = (server + choices.random_range(1..4)) % world.ensemble.count();
                let client = choices.random_range(0..world.clients.len());
                let lasts = SESSION.mul_f64(choices.random_range(0.1..1.3));
                let stops_client = choices.random();
                if stops_client {
                    signal(&world.clients[client], Signal::STOP);
                    // The client is silent before the other fault begins, perhaps for most of its session.
                    sleep(lasts.mul_f64(choices.random_range(0.0..0.9))).await;
                }
                let fault = choices.random_range(0..5);
                match fault {
                    0 => world.ensemble.freeze(server),
                    1 => world.ensemble.isolate(server),
                    2 => world.ensemble.cut(server, other),
                    3 => world.ensemble.proxy(server).set_both(Traffic::Hold),
                    _ => world.ensemble.kill(server),
                }
                sleep(lasts.mul_f64(0.5)).await;
                if stops_client {
                    signal(&world.clients[client], Signal::CONT);
                }
                sleep(lasts.mul_f64(0.5)).await;
                match fault {
                    0 => world.ensemble.thaw(server),
                    1 | 2 => world.ensemble.heal(),
                    3 => {
                        world.ensemble.proxy(server).set_both(Traffic::Pass);
                        world.ensemble.proxy(server).reset();
                    }
                    _ => world.ensemble.restart(server).await,
                }
                world.recovers(&format!("fault {fault} of server {server}")).await;
            }
        }
    }
}
