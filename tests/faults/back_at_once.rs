//! The first requests after a server has returned are served at once, and no request makes a storm of connections.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redlock_core::{LockError, LockManager, NodeError, Vote};
use redlock_tests::{Play, PlayedServer, RedisServer, Servers, eventually};

const SOON: Duration = Duration::from_secs(20);
const SECOND: Duration = Duration::from_secs(1);
/// The time between the moment at which the server accepts connections and the first request.
const AFTER: Duration = Duration::from_millis(10);

/// Connects a manager with the default timeouts, which these tests are about.
async fn connect(servers: &Servers) -> LockManager {
    LockManager::connect(servers.urls()).await.unwrap()
}

/// Stops `struck` of `servers` servers for the time `outage`, and returns 10 ms after they accept connections again. Checks
/// that a caller that may not wait is refused during the outage.
async fn outlast(outage: Duration, struck: usize, servers: usize) -> (Servers, LockManager) {
    let mut servers = Servers::start(servers).await;
    let locks = connect(&servers).await;
    locks.lock("order:42").try_acquire().await.unwrap().release().await.unwrap();
    servers[..struck].iter_mut().for_each(RedisServer::kill);
    tokio::time::sleep(outage).await;
    let error = locks.lock("order:42").try_acquire().await.unwrap_err();
    let votes = error.votes().cloned().unwrap_or_default();
    let is_down = |vote| matches!(vote, Some(&Vote::Failed(NodeError::NotConnected(_))));
    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
    assert_eq!(votes.iter().filter(|(_, vote)| is_down(*vote)).count(), struck, "{error}");
    join_all(servers[..struck].iter_mut().map(RedisServer::restart)).await;
    tokio::time::sleep(AFTER).await;
    (servers, locks)
}

/// Sends requests that may wait for a second after an outage, one every 10 ms. Each of them is granted.
async fn are_served_after(outage: Duration, struck: usize, servers: usize) {
    let (_servers, locks) = outlast(outage, struck, servers).await;
    let request = async |number: u32| {
        tokio::time::sleep(AFTER * number).await;
        let request = locks.lock(format!("order:{number}")).wait_time(SECOND);
        request.acquire().await.map(drop)
    };
    let requests = join_all((0..30).map(request)).await;
    let errors = requests.iter().filter_map(|granted| granted.as_ref().err());
    let errors: Vec<String> = errors.map(|error| error.diagnostics().to_string()).collect();
    assert!(errors.is_empty(), "{} of 30 refused after {outage:?}: {errors:?}", errors.len());
}

/// The server answers every attempt to connect with an error. The attempts are counted by their first command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_requests_makes_no_storm_of_connections() {
    const REQUESTS: u32 = 10_000;
    const CALLERS: u32 = 100;
    /// The shortest time between two attempts.
    const PAUSE: Duration = Duration::from_millis(20);
    let real = RedisServer::start().await;
    let server = PlayedServer::before(&real).await;
    let builder = LockManager::builder().url(server.url());
    let locks = builder.connect().await.unwrap();
    server.play(|_| Play::Reply("-ERR away\r\n".to_owned()));
    server.set_away(true);
    server.set_away(false);
    eventually("the server is away", SOON, async || {
        locks.lock("order:42").try_acquire().await.err()
    })
    .await;
    let attempts = || server.commands(&["HELLO"]).len();
    let (before, begun) = (attempts(), Instant::now());
    let call = async |locks: LockManager, caller: u32| {
        for request in 0..REQUESTS / CALLERS {
            // A few of them may wait for an attempt.
            let wait_time = if request % 10 == 0 { SECOND } else { Duration::ZERO };
            let request = locks.lock(format!("order:{caller}:{request}")).wait_time(wait_time);
            let error = request.acquire().await.unwrap_err();
            assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
            // The attempts go on meanwhile.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let callers = (0..CALLERS).map(|caller| tokio::spawn(call(locks.clone(), caller)));
    for caller in join_all(callers).await {
        caller.unwrap();
    }
    let most = begun.elapsed().div_duration_f64(PAUSE);
    let made = u32::try_from(attempts() - before).unwrap();
    assert!(f64::from(made) <= most + 2.0, "{made} attempts in {:?}", begun.elapsed());
    server.play(|_| Play::Pass);
    locks.lock("order:42").wait_time(SECOND).acquire().await.unwrap().release().await.unwrap();
}

mod thorough {
    use super::*;

    #[tokio::test]
    async fn no_request_that_may_wait_is_refused_after_an_outage_of_twenty_seconds() {
        are_served_after(20 * SECOND, 1, 1).await;
    }

    /// Callers that wait all the time have used up the attempts that they may ask for. The regular ones go on.
    #[tokio::test]
    async fn beside_traffic_a_server_that_is_back_is_used_within_half_a_second() {
        for seconds in [1, 5, 20] {
            let mut servers = Servers::start(1).await;
            let locks = connect(&servers).await;
            let is_over = tokio_util::sync::CancellationToken::new();
            let traffic = async {
                for number in 0.. {
                    let wait_time = Duration::from_millis(200) * (number % 2);
                    let request = locks.lock(format!("traffic:{number}")).wait_time(wait_time);
                    tokio::spawn(is_over.clone().run_until_cancelled_owned(async move {
                        drop(request.acquire().await);
                    }));
                    tokio::time::sleep(2 * AFTER).await;
                }
            };
            let outage = async {
                servers[0].kill();
                tokio::time::sleep(seconds * SECOND).await;
                servers[0].restart().await;
                let begun = Instant::now();
                while locks.lock("order:42").wait_time(SECOND).acquire().await.is_err() {}
                begun.elapsed()
            };
            let back = tokio::select! {
                () = traffic => unreachable!(),
                back = outage => back,
            };
            is_over.cancel();
            println!("used {back:?} after an outage of {seconds} s");
            assert!(back < 5 * SECOND, "{back:?}");
        }
    }
}

mod measured {
    use redlock_tests::best_of_five;

    use super::*;
    use crate::QUIET;

    /// A second is the wait time of the requests, and the default timeouts are shorter.
    #[tokio::test]
    async fn no_request_that_may_wait_is_refused_after_its_servers_have_returned() {
        let _quiet = QUIET.write().await;
        tokio::join!(
            are_served_after(SECOND, 1, 1),
            are_served_after(5 * SECOND, 1, 1),
            are_served_after(SECOND, 3, 5),
        );
    }

    /// Two other libraries serve this request after 1 to 6 ms.
    #[tokio::test]
    async fn the_first_request_after_an_outage_takes_at_most_fifty_milliseconds() {
        let _quiet = QUIET.write().await;
        for (seconds, struck, servers) in [(1, 1, 1), (5, 1, 1), (20, 1, 1), (1, 3, 5)] {
            let what = format!(
                "milliseconds of the first request after {struck} of {servers} servers were down for {seconds} s"
            );
            let measure = async || {
                let (_servers, locks) = outlast(seconds * SECOND, struck, servers).await;
                let begun = Instant::now();
                // A request that is refused is repeated, so that the figure says for how long requests are refused.
                while locks.lock("order:42").wait_time(SECOND).acquire().await.is_err() {
                    tokio::task::yield_now().await;
                }
                begun.elapsed().as_secs_f64() * 1000.0
            };
            best_of_five(&what, measure, |millis| *millis <= 50.0).await;
        }
    }
}
