//! Routes whose requests share or exclude by their method: one handler for each method with the attribute, and
//! `shared_on` for layers and policies.

use std::pin::pin;

use axum::routing::{MethodRouter, get};
use axum::{Extension, Router};
use http::{Method, StatusCode};
use redlock_axum::{
    HeldLock, LockKey, LockManager, LockPolicy, MemoryNode, ScopeLayer, redis_lock,
};
use tokio::time::timeout;

use super::SHORT;
use super::stage::Stage;
use crate::support::{Answer, answer, eventually, layer, memory, request, table};

const READERS: [Method; 2] = [Method::GET, Method::HEAD];
const KEY: &str = "catalogue";

#[derive(Debug, Clone, Copy)]
enum Place {
    Attribute,
    Layer,
    LayerFromFn,
    Table,
}

const PLACES: [Place; 4] = [Place::Attribute, Place::Layer, Place::LayerFromFn, Place::Table];

/// Two copies of a service that share a node.
struct Copies {
    routers: [Router; 2],
    stage: Stage,
    node: MemoryNode,
}

async fn handler(lock: HeldLock, Extension(stage): Extension<Stage>) -> String {
    stage.enter().await;
    if lock.is_shared() { "shared".to_owned() } else { "exclusive".to_owned() }
}

#[redis_lock(key = "catalogue", shared, wait_time = "1h", installed)]
async fn read(lock: HeldLock, stage: Extension<Stage>) -> String {
    handler(lock, stage).await
}

#[redis_lock(key = "catalogue", wait_time = "1h", installed)]
async fn write(lock: HeldLock, stage: Extension<Stage>) -> String {
    handler(lock, stage).await
}

#[redis_lock(key = "catalogue", shared, installed)]
async fn try_read(lock: HeldLock, stage: Extension<Stage>) -> String {
    handler(lock, stage).await
}

#[redis_lock(key = "catalogue", installed)]
async fn try_write(lock: HeldLock, stage: Extension<Stage>) -> String {
    handler(lock, stage).await
}

impl Copies {
    async fn new(place: Place, waits: bool) -> Self {
        let (locks, node) = memory().await;
        let other = LockManager::builder().memory_node(&node).connect().await.unwrap();
        let stage = Stage::new();
        let routers = [locks, other].map(|locks| {
            let plain = || get(handler).put(handler).delete(handler);
            let router = match place {
                Place::Attribute if waits => route(get(read).put(write).delete(write)),
                Place::Attribute => route(get(try_read).put(try_write).delete(try_write)),
                Place::Layer => {
                    route(plain()).layer(layer(&locks, with_wait(LockPolicy::new(KEY), waits)))
                }
                Place::LayerFromFn => {
                    let policy = LockPolicy::from_fn(|_| LockKey::new(KEY));
                    route(plain()).layer(layer(&locks, with_wait(policy, waits)))
                }
                Place::Table => {
                    let policy = with_wait(LockPolicy::new(KEY).route("/"), waits);
                    route(plain()).layer(table(&locks, [policy]))
                }
            };
            router.layer(Extension(stage.clone())).layer(ScopeLayer::new(&locks))
        });
        Self { routers, stage, node }
    }

    /// Sends a request to a copy. Panics if the response takes more than ten seconds.
    fn send(&self, copy: usize, method: Method) -> impl Future<Output = Answer> + use<> {
        let router = self.routers[copy].clone();
        async move { answer(&router, request(method, "/")).await }
    }
}

fn route(methods: MethodRouter) -> Router {
    Router::new().route("/", methods)
}

fn with_wait(policy: LockPolicy, waits: bool) -> LockPolicy {
    let policy = policy.shared_on(READERS);
    if waits { policy.wait_forever() } else { policy }
}

#[tokio::test]
async fn reads_run_at_once_and_a_write_waits_for_all_of_them() {
    for place in PLACES {
        let copies = Copies::new(place, true).await;
        let stage = &copies.stage;
        let reads = [(0, Method::GET), (0, Method::HEAD), (1, Method::GET)];
        let reads = reads.map(|(copy, method)| tokio::spawn(copies.send(copy, method)));
        stage.until_inside(3).await;
        let mut write = pin!(copies.send(1, Method::PUT));
        for left in [2, 1, 0] {
            assert!(timeout(SHORT / 5, &mut write).await.is_err());
            assert_eq!(stage.inside(), left + 1, "{place:?}: the write did not wait");
            stage.leave(1);
            if left > 0 {
                stage.until_inside(left).await;
            }
        }
        stage.leave(1);
        let write = write.await;
        assert_eq!((write.status, &*write.body), (StatusCode::OK, "exclusive"), "{place:?}");
        for (read, body) in reads.into_iter().zip(["shared", "", "shared"]) {
            let read = read.await.unwrap();
            assert_eq!((read.status, &*read.body), (StatusCode::OK, body), "{place:?}");
        }
        eventually("the lock is free", || copies.node.is_empty()).await;
    }
}

#[tokio::test]
async fn a_write_runs_alone_and_reads_wait_for_it() {
    for place in PLACES {
        let copies = Copies::new(place, true).await;
        let write = tokio::spawn(copies.send(0, Method::DELETE));
        copies.stage.until_inside(1).await;
        let mut reads = [0, 1].map(|copy| Box::pin(copies.send(copy, Method::GET)));
        for read in &mut reads {
            assert!(timeout(SHORT / 5, read).await.is_err(), "{place:?}");
        }
        assert_eq!(copies.stage.inside(), 1, "{place:?}: a read did not wait");
        copies.stage.leave(1);
        assert_eq!(write.await.unwrap().body, "exclusive");
        let reads = reads.map(tokio::spawn);
        copies.stage.until_inside(2).await;
        copies.stage.leave(2);
        for read in reads {
            assert_eq!(read.await.unwrap().body, "shared");
        }
    }
}

#[tokio::test]
async fn without_a_wait_time_a_read_is_refused_beside_a_write_and_a_write_beside_a_read() {
    for place in PLACES {
        for (held, refused, served) in [
            (Method::GET, vec![Method::PUT, Method::DELETE], vec![Method::GET, Method::HEAD]),
            (Method::PUT, vec![Method::PUT, Method::GET, Method::HEAD], vec![]),
        ] {
            let copies = Copies::new(place, false).await;
            let held = tokio::spawn(copies.send(0, held));
            copies.stage.until_inside(1).await;
            for (copy, method) in refused.iter().flat_map(|method| [(0, method), (1, method)]) {
                let answer = copies.send(copy, method.clone()).await;
                assert_eq!(answer.status, 409, "{place:?} {copy} {method}");
                assert_eq!(answer.headers["retry-after"], "5", "{place:?} {copy} {method}");
            }
            let mut all = vec![held];
            all.extend(served.into_iter().map(|method| tokio::spawn(copies.send(1, method))));
            copies.stage.until_inside(all.len()).await;
            copies.stage.leave(all.len());
            for served in all {
                assert_eq!(served.await.unwrap().status, 200, "{place:?}");
            }
        }
    }
}
