//! Copies of a service that are killed in the middle of requests with idempotency keys, and clients that repeat them.

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use rand::RngExt;
use redlock_tests::{PostgresServer, Service, skip};
use reqwest::Client;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use crate::SOON;

/// The requests that a copy serves when it is killed.
const AT_ONCE: usize = 10;
/// The longest time of a handler, and of a copy under load.
const LONGEST: u64 = 40;

struct Shop {
    server: PostgresServer,
    environment: Vec<(&'static str, String)>,
}

impl Shop {
    /// Returns `None`, which skips the test, if PostgreSQL is missing.
    async fn open() -> Option<Self> {
        let server = match PostgresServer::start().await {
            Ok(server) => server,
            Err(reason) => {
                skip(&reason);
                return None;
            }
        };
        let create = "create table payment (key text); grant select, insert on payment to app";
        server.admin().await.batch_execute(create).await.unwrap();
        let environment = vec![
            ("LOCKS_URLS", server.url()),
            ("ANSWERS_URL", server.url()),
            ("DATABASE", format!("host=127.0.0.1 port={} user=app dbname=postgres", server.port())),
        ];
        Some(Self { server, environment })
    }

    async fn copy(&self) -> Service {
        Service::start(env!("CARGO_BIN_EXE_once-service"), &self.environment).await
    }

    async fn payments(&self, key: &str) -> i64 {
        let count = "select count(*) from payment where key = $1";
        self.server.admin().await.query_one(count, &[&key]).await.unwrap().get(0)
    }
}

/// Sends a request until it is answered with 201.
async fn paid(client: &Client, url: &str, key: &str) -> String {
    let deadline = Instant::now() + SOON;
    loop {
        let sent = client.post(url).header("idempotency-key", key).send().await;
        let status = match sent {
            Ok(answer) if answer.status() == 201 => return answer.text().await.unwrap(),
            Ok(answer) => {
                format!("{}: {}", answer.status(), answer.text().await.unwrap_or_default())
            }
            Err(error) => error.to_string(),
        };
        assert!(Instant::now() < deadline, "{key}: {status}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Kills copies at random points of their requests. Returns how many requests had two effects.
async fn kill_copies(path: &str, kills: usize) -> usize {
    let Some(shop) = Shop::open().await else { return 0 };
    let (survivor, client) = (shop.copy().await, Client::new());
    let mut doubles = 0;
    for kill in 0..kills {
        let victim = shop.copy().await;
        let requests = (0..AT_ONCE).map(|request| {
            let hold = rand::rng().random_range(0..LONGEST);
            let url = victim.url(&format!("{path}?hold_ms={hold}"));
            let key = format!("{kill}-{request}");
            let client = client.clone();
            let send = client.post(url).header("idempotency-key", &key);
            (key, hold, tokio::spawn(send.send()))
        });
        let requests: Vec<_> = requests.collect();
        sleep(Duration::from_millis(rand::rng().random_range(0..LONGEST * 2))).await;
        victim.kill();
        let repeated = requests.into_iter().map(|(key, hold, sent)| {
            let (client, url) = (&client, survivor.url(&format!("{path}?hold_ms={hold}")));
            async move {
                let _ = sent.await;
                assert_eq!(paid(client, &url, &key).await, "paid");
                key
            }
        });
        for key in join_all(repeated).await {
            let payments = shop.payments(&key).await;
            assert!((1..=2).contains(&payments), "{key}: {payments}");
            doubles += usize::from(payments == 2);
        }
    }
    doubles
}

#[tokio::test]
async fn a_handler_that_stores_its_answer_has_one_effect_though_its_copy_is_killed() {
    assert_eq!(kill_copies("/exact", 2).await, 0);
}

mod nightly {
    use super::kill_copies;

    #[tokio::test]
    async fn two_hundred_killed_requests_have_one_effect_each() {
        assert_eq!(kill_copies("/exact", 20).await, 0);
    }

    /// The window of the plain form, for the page.
    #[tokio::test]
    async fn a_plain_handler_may_run_twice() {
        let doubles = kill_copies("/plain", 20).await;
        println!("{doubles} of 200 killed requests had two effects");
    }
}

/// Forwards connections to the present copy, as a load balancer.
async fn balance(target: Arc<Mutex<String>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let target = target.lock().unwrap().clone();
            tokio::spawn(async move {
                if let Ok(mut server) = TcpStream::connect(target).await {
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                }
            });
        }
    });
    format!("http://{address}")
}

/// A client that nobody here wrote repeats its request when its copy is killed.
#[tokio::test]
async fn curl_repeats_a_request_whose_copy_is_killed() {
    let Some(shop) = Shop::open().await else { return };
    let (victim, survivor) = (shop.copy().await, shop.copy().await);
    let target = Arc::new(Mutex::new(victim.address().to_owned()));
    let url = format!("{}/exact?hold_ms=3000", balance(Arc::clone(&target)).await);
    let curl = tokio::task::spawn_blocking(move || {
        let options = ["-s", "-f", "--retry", "20", "--retry-all-errors", "--retry-delay", "1"];
        let header = ["-H", "Idempotency-Key: \"curl\"", "-X", "POST"];
        Command::new("curl").args(options).args(header).arg(url).output().unwrap()
    });
    // The handler has begun when its key is claimed.
    let admin = shop.server.admin().await;
    redlock_tests::eventually("the handler begins", SOON, async || {
        let count = "select count(*) from locks.redlock_answer";
        (admin.query_one(count, &[]).await.unwrap().get::<_, i64>(0) == 1).then_some(())
    })
    .await;
    survivor.address().clone_into(&mut target.lock().unwrap());
    victim.kill();
    let output = curl.await.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "paid");
    assert_eq!(shop.payments("curl").await, 1);
}

/// A client that gives up too early, and asks again.
#[tokio::test]
async fn a_client_with_a_short_time_out_pays_once() {
    let Some(shop) = Shop::open().await else { return };
    let copies = [shop.copy().await, shop.copy().await];
    let client = Client::builder().timeout(Duration::from_millis(200)).build().unwrap();
    for path in ["/plain", "/exact"] {
        let deadline = Instant::now() + SOON;
        for copy in copies.iter().cycle() {
            let url = copy.url(&format!("{path}?hold_ms=1000"));
            let sent = client.post(url).header("idempotency-key", path).send().await;
            if let Ok(answer) = sent
                && answer.status() == 201
            {
                assert_eq!(answer.headers()["idempotency-replayed"], "true");
                break;
            }
            assert!(Instant::now() < deadline, "{path}");
            sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(shop.payments(path).await, 1, "{path}");
    }
}

/// A copy is paused in the middle of its transaction until its lock is over. It goes on before and after another copy has
/// claimed the key.
#[tokio::test]
async fn a_copy_that_is_paused_longer_than_its_lease_pays_nothing_twice() {
    let Some(shop) = Shop::open().await else { return };
    let admin = shop.server.admin().await;
    let counted = async |sql: &str| admin.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
    for (is_claimed, key) in [(false, "before"), (true, "after")] {
        let (paused, survivor) = (shop.copy().await, shop.copy().await);
        let (client, path) = (Client::new(), "/exact?hold_ms=2000");
        let url = paused.url(path);
        let sent = tokio::spawn(client.post(url).header("idempotency-key", key).send());
        redlock_tests::eventually("the handler has paid", SOON, async || {
            let paid = "select count(*) from pg_stat_activity where state = 'idle in transaction' \
                        and query like 'insert into payment%'";
            (counted(paid).await == 1).then_some(())
        })
        .await;
        paused.freeze();
        redlock_tests::eventually("the lock is over", SOON, async || {
            let held = "select count(*) from locks.redlock_lease where expires > clock_timestamp()";
            (counted(held).await == 0).then_some(())
        })
        .await;
        if is_claimed {
            assert_eq!(paid(&client, &survivor.url(path), key).await, "paid");
        }
        paused.thaw();
        let late = sent.await.unwrap().unwrap();
        assert_eq!(late.status().as_u16(), if is_claimed { 409 } else { 201 });
        let replay = client.post(survivor.url(path)).header("idempotency-key", key).send();
        assert_eq!(replay.await.unwrap().headers()["idempotency-replayed"], "true");
        assert_eq!(shop.payments(key).await, 1, "{key}");
    }
}
