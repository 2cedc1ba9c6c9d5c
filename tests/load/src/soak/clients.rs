//! The clients of a long run.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::PATIENCE;
use crate::answers::{Answer, Answers};
use crate::client::Connection;

/// How many clients of each service ask for short work on a few keys, and how many for long work. Long
/// work takes nearly as long as the lease, so that servers can forget a lock in the middle of it.
const QUICK_CLIENTS: u64 = 12;
const SLOW_CLIENTS: u64 = 6;
const QUICK_KEYS: u64 = 8;
const SLOW_KEYS: u64 = 4;
const PAUSE: Range<u64> = 20..60;

/// A request of one of the clients: its path.
fn quick_work(random: &mut StdRng) -> String {
    let (key, hold) = (random.random_range(0..QUICK_KEYS), random.random_range(2..8));
    format!("/wait/{key}?hold_ms={hold}")
}

fn slow_work(random: &mut StdRng) -> String {
    let (key, hold) = (random.random_range(0..SLOW_KEYS), random.random_range(500..800));
    format!("/fenced/{key}?hold_ms={hold}")
}

/// Sends requests over connections that are kept open, until `stop`. Returns all answers.
pub(super) async fn steady_clients(
    services: &[SocketAddr],
    seed: u64,
    stop: &CancellationToken,
) -> Answers {
    let clients = services.iter().flat_map(|service| {
        (0..QUICK_CLIENTS + SLOW_CLIENTS).map(|client| {
            let work = if client < QUICK_CLIENTS { quick_work } else { slow_work };
            let seed = seed ^ u64::from(service.port()) << 32 ^ client << 8;
            tokio::spawn(steady_client(*service, StdRng::seed_from_u64(seed), work, stop.clone()))
        })
    });
    let clients = join_all(clients).await.into_iter();
    clients.flat_map(|client| client.expect("a client that does not panic")).collect()
}

async fn steady_client(
    service: SocketAddr,
    mut random: StdRng,
    work: fn(&mut StdRng) -> String,
    stop: CancellationToken,
) -> Vec<Answer> {
    let mut answers = Vec::new();
    let mut connection = None;
    while !stop.is_cancelled() {
        let path = work(&mut random);
        let sent = Instant::now();
        let exchange = async {
            let mut open = match connection.take() {
                Some(open) => open,
                None => Connection::open(service).await?,
            };
            let status = open.post(&path).await?;
            connection = Some(open);
            std::io::Result::Ok(status)
        };
        let status = match timeout(PATIENCE, exchange).await {
            Ok(status) => status.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {PATIENCE:?}")),
        };
        answers.push(Answer { sent, ended: Instant::now(), status });
        sleep(Duration::from_millis(random.random_range(PAUSE))).await;
    }
    answers
}

/// Lets `count` clients close their connection in the middle of a request, at equal distances.
/// Returns how many there were.
pub(super) async fn vanishing_clients(
    services: &[SocketAddr],
    seed: u64,
    count: u32,
    time: Range<Instant>,
) -> u32 {
    let mut random = StdRng::seed_from_u64(seed.wrapping_add(1));
    let clients = TaskTracker::new();
    let distance = (time.end - time.start) / count.max(1);
    for number in 0..count {
        sleep_until((time.start + distance * number).into()).await;
        let service = services[random.random_range(0..services.len())];
        clients.spawn(vanishing_client(service, random.random()));
    }
    clients.close();
    clients.wait().await;
    count
}

async fn vanishing_client(service: SocketAddr, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let path = if random.random() { quick_work(&mut random) } else { slow_work(&mut random) };
    // It vanishes anyway, so that its errors are of no interest; those of the others are counted.
    let Ok(mut connection) = Connection::open(service).await else { return };
    if random.random_ratio(1, 4) {
        let bytes = random.random_range(1..path.len());
        let _ = connection.post_in_part(&path, bytes).await;
    } else {
        let _ = connection.post_only(&path).await;
        sleep(Duration::from_millis(random.random_range(0..40))).await;
    }
}
