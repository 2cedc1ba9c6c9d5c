//! A client that gives up after its time-out, and asks again by a middleware: `reqwest-retry`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::post;
use redlock_axum::{IdempotencyLayer, LockManager, MemoryAnswers};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;

const SOON: Duration = Duration::from_secs(60);
/// The time-out of the client.
const PATIENCE: Duration = Duration::from_millis(300);

/// A payment that takes until so many requests have come.
#[derive(Clone, Default)]
struct Bank {
    requests: Arc<AtomicUsize>,
    payments: Arc<AtomicUsize>,
    needed: usize,
}

impl Bank {
    /// Serves the payments, and returns the URL.
    async fn open(&self, wait: Option<Duration>) -> String {
        async fn pay(State(bank): State<Bank>) -> String {
            let payment = bank.payments.fetch_add(1, Ordering::SeqCst) + 1;
            while bank.requests.load(Ordering::SeqCst) < bank.needed {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            format!("payment {payment}")
        }

        async fn count(State(bank): State<Bank>, request: Request, next: Next) -> Response {
            bank.requests.fetch_add(1, Ordering::SeqCst);
            next.run(request).await
        }

        let layer = IdempotencyLayer::new(&LockManager::in_memory(), MemoryAnswers::new());
        let layer = if let Some(wait) = wait { layer.wait(wait) } else { layer };
        let app = Router::new()
            .route("/pay", post(pay).layer(layer.shared_scope().unwrap()))
            .layer(from_fn_with_state(self.clone(), count))
            .with_state(self.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/pay", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        url
    }
}

/// The default strategy of the crate: it repeats after errors, and after 408, 429 and 5xx.
fn client() -> ClientWithMiddleware {
    let policy = ExponentialBackoff::builder()
        .retry_bounds(Duration::from_millis(10), PATIENCE)
        .build_with_max_retries(100);
    ClientBuilder::new(reqwest::Client::builder().timeout(PATIENCE).build().unwrap())
        .with(RetryTransientMiddleware::new_with_policy(policy))
        .build()
}

#[tokio::test]
async fn a_client_that_gives_up_and_asks_again_pays_once() {
    let bank = Bank { needed: 3, ..Bank::default() };
    let url = bank.open(Some(SOON)).await;
    let sent = client().post(url).header("idempotency-key", "\"a\"").send();
    let answer = sent.await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["idempotency-replayed"]),
        (200, &"true".parse().unwrap())
    );
    assert_eq!(answer.text().await.unwrap(), "payment 1");
    assert!(bank.requests.load(Ordering::SeqCst) >= 3);
    assert_eq!(bank.payments.load(Ordering::SeqCst), 1);
}

/// The crate takes 409 as final, so the caller learns it, and has paid once.
#[tokio::test]
async fn without_wait_its_repetition_is_refused() {
    let bank = Bank { needed: 2, ..Bank::default() };
    let url = bank.open(None).await;
    let answer = client().post(url).header("idempotency-key", "\"a\"").send().await.unwrap();
    assert_eq!(answer.status(), 409);
    assert_eq!(bank.payments.load(Ordering::SeqCst), 1);
}
