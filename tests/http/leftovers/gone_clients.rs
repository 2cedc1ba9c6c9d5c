//! Clients that close a real connection in the middle of their request.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::routing::post;
use redlock_axum::{BodyMode, redis_lock};
use redlock_tests::{Nodes, eventually, on_each_kind_of_nodes};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::{FRONTS, KEY, Service, layer, policy, three_fronts};
use crate::{LONG, SOON};

on_each_kind_of_nodes! {
    [redis_x3: Nodes::redis(3).await,]
    [
        no_lock_is_left_after_a_disconnect_or_an_uncaught_panic,
        no_lock_is_left_after_a_disconnect_with_an_unread_body,
        a_detached_handler_goes_on_under_its_lock_after_a_disconnect,
    ]
}

mod thorough {
    use super::*;

    on_each_kind_of_nodes! {
        [postgres_x1: Nodes::postgres(1, 0).await, zookeeper_x1: Nodes::zookeeper().await,]
        [
            no_lock_is_left_after_a_disconnect_or_an_uncaught_panic,
            a_detached_handler_goes_on_under_its_lock_after_a_disconnect,
        ]
    }
}

async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, router).into_future());
    address
}

/// Checks on the servers that the lock is held in between.
async fn no_lock_is_left_after_a_disconnect_or_an_uncaught_panic(nodes: Nodes) {
    let service = Service::start(nodes).await;
    let address = serve(service.router.clone()).await;
    let client = reqwest::Client::new();
    let post = |front: &str, body: &'static str| {
        let json = (header::CONTENT_TYPE.as_str(), "application/json");
        client.post(format!("http://{address}{front}")).header(json.0, json.1).body(body).send()
    };

    for front in service.fronts().await {
        let held = {
            let mut gone = Box::pin(post(front, r#""never""#));
            tokio::select! {
                response = &mut gone => panic!("{response:?}"),
                () = service.inside.entered.notified() => {}
            }
            service.nodes.all_hold(KEY).await;
            // The first client is still connected, so another request is refused.
            post(front, r#""success""#).await.unwrap().status()
        };
        assert_eq!(held, StatusCode::CONFLICT);
        service.is_clean(front).await;

        post(front, r#""panic""#).await.unwrap_err();
        service.is_clean(front).await;
        // Consumes the notification that the handler was entered.
        service.inside.entered.notify_one();
        service.inside.entered.notified().await;
    }
}

/// How a handler's run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Returned,
    Dropped,
}

/// Controls and observes a handler that does not read its body.
#[derive(Debug, Clone)]
struct Unread {
    entered: Arc<Notify>,
    may_return: Arc<Notify>,
    ended: mpsc::UnboundedSender<Ended>,
}

/// Reports on drop how a run of the handler ended.
struct Run(mpsc::UnboundedSender<Ended>, Ended);

impl Drop for Run {
    fn drop(&mut self) {
        // The receiver is gone if the test is over.
        let _ = self.0.send(self.1);
    }
}

impl Unread {
    async fn work(&self) -> &'static str {
        let mut run = Run(self.ended.clone(), Ended::Dropped);
        self.entered.notify_one();
        self.may_return.notified().await;
        run.1 = Ended::Returned;
        "done"
    }
}

#[redis_lock(key = "order:{id}", expire = "5m", installed)]
async fn unread_attribute(Path(id): Path<u64>, State(unread): State<Unread>) -> &'static str {
    unread.work().await
}

async fn unread_plain(State(unread): State<Unread>) -> &'static str {
    unread.work().await
}

/// If an unread body does not fit into the socket buffers, the server does not check the connection until the
/// handler returns: the handler runs to its end under its lock, which is then released. With a small body the
/// server notices the disconnect at once and drops the handler.
async fn no_lock_is_left_after_a_disconnect_with_an_unread_body(nodes: Nodes) {
    const LARGE: usize = 64 << 20;
    let locks = nodes.manager().await;
    let (ended, mut ends) = mpsc::unbounded_channel();
    let unread = Unread { entered: Arc::default(), may_return: Arc::default(), ended };
    // A layer reads the body before it requests the lock, unless the handler reads it itself.
    let streamed = policy().body(BodyMode::Stream);
    let router = three_fronts(post(unread_attribute), post(unread_plain), &locks, &streamed);
    let address = serve(router.with_state(unread.clone())).await;

    let enter = async |path: String, length: usize| {
        let mut client = TcpStream::connect(address).await.unwrap();
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        let body = vec![b'x'; length];
        tokio::select! {
            biased;
            () = unread.entered.notified() => {}
            () = async {
                client.write_all(&body).await.unwrap();
                assert!(length < LARGE, "the server has read the large body");
                std::future::pending::<()>().await;
            } => {}
        }
        client
    };
    let mut ended = async || tokio::time::timeout(SOON, ends.recv()).await.unwrap().unwrap();

    for front in FRONTS {
        let large = enter(front.to_owned(), LARGE).await;
        nodes.all_hold(KEY).await;
        drop(large);
        let small = enter(front.replace("42", "43"), 16).await;
        nodes.all_hold("order:43").await;
        drop(small);
        assert_eq!(ended().await, Ended::Dropped, "{front}: the request with the small body");
        let error = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap_err();
        assert!(error.is_contended(), "{front}: {error}");
        eventually("the lock of the small request is released", SOON, async || {
            (nodes.locks().await == nodes.len()).then_some(())
        })
        .await;
        unread.may_return.notify_one();
        assert_eq!(ended().await, Ended::Returned, "{front}");
        nodes.become_empty().await;
    }
}

/// The client leaves in the middle of its payment, and tries again.
async fn a_detached_handler_goes_on_under_its_lock_after_a_disconnect(nodes: Nodes) {
    let locks = nodes.manager().await;
    let (ended, mut ends) = mpsc::unbounded_channel();
    let (left, mut leaves) = mpsc::unbounded_channel();
    let work = Unread { entered: Arc::default(), may_return: Arc::default(), ended };
    let detached = layer(&locks, policy().detached(true));
    let router = Router::new().route("/{id}", post(unread_plain).route_layer(detached)).layer(
        middleware::from_fn(move |request: Request, next: Next| {
            let request_of_client = Run(left.clone(), Ended::Dropped);
            async move {
                let _request_of_client = request_of_client;
                next.run(request).await
            }
        }),
    );
    let address = serve(router.with_state(work.clone())).await;
    let (client, url) = (reqwest::Client::new(), format!("http://{address}/42"));

    {
        let mut gone = Box::pin(client.post(&url).send());
        tokio::select! {
            response = &mut gone => panic!("{response:?}"),
            () = work.entered.notified() => {}
        }
    }
    timeout(SOON, leaves.recv()).await.unwrap().unwrap();
    nodes.all_hold(KEY).await;
    let again = client.post(&url).send().await.unwrap();
    assert_eq!(again.status(), StatusCode::CONFLICT);
    ends.try_recv().unwrap_err();
    work.may_return.notify_one();
    assert_eq!(timeout(SOON, ends.recv()).await.unwrap(), Some(Ended::Returned));
    nodes.become_empty().await;
    ends.try_recv().unwrap_err();
}
