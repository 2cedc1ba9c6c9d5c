//! Invariant 12: no password and no token in any log, `Debug`, error or response; no key and no node in
//! a response.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::error::Error;
use std::fmt::Debug;
use std::process::Command;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Path;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use axum::{Extension, Router};
use redlock_axum::{HeldLock, LockLayer, LockRejection, Locks, OnLost, redis_lock};
use redlock_core::{Dialect, LockManager, LockManagerBuilder, LockRequest, scope};
use redlock_tests::{Logs, RedisOptions, RedisServer, Servers, eventually, find_secret};
use tower::ServiceExt;

const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(20);
const BRIEF: Duration = Duration::from_millis(50);
const KEY: &str = "order:42";
/// Written differently in a URL than on the wire.
const PASSWORD: &str = "s3cr3t/w%rd:@";
/// The part of it that is the same in both.
const CORE: &str = "s3cr3t";

/// All that was said, and what must not have been.
#[derive(Debug, Default)]
struct Said {
    texts: Vec<String>,
    tokens: Vec<String>,
}

impl Said {
    fn debug(&mut self, value: &dyn Debug) {
        self.texts.extend([format!("{value:?}"), format!("{value:#?}")]);
    }

    fn error(&mut self, error: &dyn Error) {
        let mut next = Some(error);
        while let Some(error) = next {
            self.debug(&error);
            self.texts.push(error.to_string());
            next = error.source();
        }
    }

    fn result<T: Debug, E: Error>(&mut self, result: Result<T, E>) -> Option<T> {
        self.debug(&result);
        result.map_err(|error| self.error(&error)).ok()
    }

    /// Reads the tokens of all locks that are held on the servers now.
    async fn overhear(&mut self, servers: &Servers) {
        for server in servers.iter().filter(|server| server.is_up()) {
            let mut probe = server.probe().await;
            for key in probe.keys().await.iter().filter(|key| !is_counter(key)) {
                let kind: String = probe.command(["TYPE", key]).await;
                // It may have run out meanwhile.
                let tokens: Vec<String> = match kind.as_str() {
                    "string" => {
                        probe.command::<Option<String>>(["GET", key]).await.into_iter().collect()
                    }
                    _ => probe.command(["HKEYS", key]).await,
                };
                self.tokens.extend(tokens);
            }
        }
    }

    fn check(mut self, logs: &Logs) {
        self.tokens.sort_unstable();
        self.tokens.dedup();
        let lines = logs.lines();
        for text in self.texts.iter().chain(&lines) {
            assert!(!text.contains(PASSWORD) && !text.contains(CORE), "{text}");
            assert!(!self.tokens.iter().any(|token| text.contains(token)), "{text}");
            assert_eq!(find_secret(text), None, "{text}");
        }
        // The search does look at what was said.
        assert!(self.tokens.iter().all(|token| find_secret(token).is_some()), "{:?}", self.tokens);
        assert!(!self.tokens.is_empty() && self.texts.iter().any(|text| text.contains(KEY)));
    }
}

fn guarded() -> RedisOptions {
    RedisServer::options().password(PASSWORD)
}

fn builder(servers: &Servers) -> LockManagerBuilder {
    LockManager::builder().urls(servers.urls()).node_timeout(Duration::from_secs(2))
}

/// A whole life of a lock, with all that can be asked of it.
async fn live(said: &mut Said, servers: &Servers, request: &dyn Fn() -> LockRequest) {
    said.debug(&request());
    said.debug(&request().fenced());
    let guard = request().try_acquire().await.unwrap();
    said.overhear(servers).await;
    let lease = guard.handle();
    said.debug(&(&guard, &lease, guard.state(), guard.key()));
    said.result(request().try_acquire().await);
    said.result(request().wait_time(BRIEF).acquire().await);
    said.result(guard.extend(LONG).await);
    said.result(guard.extend(Duration::ZERO).await);
    said.result(guard.release().await);
    said.debug(&lease);

    let guard = request().fenced().acquire().await.unwrap();
    said.overhear(servers).await;
    said.debug(&(&guard, guard.fencing_token()));
    said.texts.push(guard.fencing_token().to_string());
    for server in servers.iter() {
        let _: i64 = server.probe().await.command(["DEL", KEY]).await;
    }
    said.result(guard.extend(LONG).await);
    said.debug(&guard);
    said.result(guard.release().await);

    scope(async {
        let _guard = request().acquire().await.unwrap();
        said.result(request().acquire().await);
    })
    .await;
    for server in servers.iter() {
        let mut probe = server.probe().await;
        let _: i64 = probe.command(["DEL", KEY]).await;
        let _: () = probe.command(["SET", KEY, "of somebody else"]).await;
    }
    said.result(request().acquire().await);
    for server in servers.iter() {
        let _: i64 = server.probe().await.command(["DEL", KEY]).await;
    }
    drop(request().expire(BRIEF).renew(true).acquire().await.unwrap());
    eventually("released", SOON, async || servers_are_free(servers).await.then_some(())).await;
}

/// A fencing counter outlives its locks.
fn is_counter(key: &str) -> bool {
    key.contains("redlock:fencing")
}

async fn servers_are_free(servers: &Servers) -> bool {
    servers.keys().await.iter().all(|key| is_counter(key))
}

#[tokio::test]
async fn a_lock_says_nothing_of_its_token_or_of_the_password() {
    let logs = Logs::collect();
    let mut said = Said::default();
    let servers = Servers::from(vec![
        guarded().start().await,
        guarded().start().await,
        guarded().start().await,
    ]);
    said.debug(&builder(&servers));
    let locks = builder(&servers).max_waiters(1).connect().await.unwrap();
    said.debug(&locks);
    for dialect in [Dialect::Plain, Dialect::Redisson] {
        let request = || locks.lock(KEY).expire(LONG).dialect(dialect);
        live(&mut said, &servers, &request).await;
    }

    for key in ["", "a\nb"] {
        said.result(locks.lock(key).acquire().await);
    }
    said.result(locks.lock(KEY).expire(Duration::ZERO).acquire().await);
    let guard = locks.lock(KEY).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock(KEY).wait_time(BRIEF).acquire());
    tokio::task::yield_now().await;
    said.result(locks.lock(KEY).wait_time(BRIEF).acquire().await);
    said.result(waiting.await.unwrap());
    said.overhear(&servers).await;
    locks.shutdown().await;
    said.debug(&guard);
    said.result(guard.release().await);
    said.result(locks.lock(KEY).acquire().await);
    said.check(&logs);
}

/// Of servers that refuse: a server that does not know a command repeats all of its arguments.
#[tokio::test]
async fn a_server_that_refuses_says_nothing_either() {
    let logs = Logs::collect();
    let mut said = Said::default();
    // So that there is something to look for.
    let good = Servers::from(vec![guarded().start().await]);
    let locks = builder(&good).connect().await.unwrap();
    live(&mut said, &good, &|| locks.lock(KEY).expire(LONG)).await;

    let refusing = [
        guarded().rename("HELLO", ""),
        guarded().rename("SET", ""),
        guarded().rename("EVALSHA", ""),
        guarded().rename("SCRIPT", ""),
        guarded().rename("CLIENT", ""),
        guarded().directive("maxmemory", "1").directive("maxmemory-policy", "noeviction"),
    ];
    for options in refusing {
        let servers = Servers::from(vec![options.start().await]);
        if let Some(locks) = said.result(builder(&servers).connect().await) {
            for dialect in [Dialect::Plain, Dialect::Redisson] {
                let request = || locks.lock(KEY).expire(BRIEF).dialect(dialect);
                if let Some(guard) = said.result(request().acquire().await) {
                    said.overhear(&servers).await;
                    said.result(request().acquire().await);
                    said.result(guard.extend(LONG).await);
                    said.result(guard.release().await);
                }
                said.result(request().fenced().acquire().await);
            }
        }
    }

    let mut probe = good[0].probe().await;
    for (number, rights) in [
        vec!["-@all", "+auth", "+hello"],
        vec!["+@all", "-set"],
        vec!["+@all", "-evalsha"],
        vec!["+@all", "-del", "-pexpire"],
        vec!["+@all", "resetkeys", "~other:*"],
    ]
    .iter()
    .enumerate()
    {
        let user = format!("user{number}");
        let password = format!(">{PASSWORD}");
        let words = [&["ACL", "SETUSER", &user, "on", &password, "~*", "&*"], &rights[..]].concat();
        let _: () = probe.command(words).await;
        let url = good[0].url().replace("//:", &format!("//{user}:"));
        let patient = LockManager::builder().url(url).node_timeout(Duration::from_secs(2));
        if let Some(locks) = said.result(patient.connect().await)
            && let Some(guard) = said.result(locks.lock(KEY).expire(BRIEF).acquire().await)
        {
            said.overhear(&good).await;
            said.result(locks.lock(KEY).acquire().await);
            said.result(guard.extend(LONG).await);
            said.result(guard.release().await);
            tokio::time::sleep(BRIEF * 2).await;
        }
    }

    // A wrong password, where the others have the right one.
    let wrong = good[0].url().replace("s3cr3t", "s3cr3tly-wrong");
    let none = format!("redis://127.0.0.1:{}", good[0].port());
    let three = Servers::from(vec![guarded().start().await, guarded().start().await]);
    for url in [wrong, none] {
        said.result(LockManager::connect([&url]).await);
        let urls = three.urls();
        let locks = LockManager::connect([&urls[0], &url, &urls[1]]).await.unwrap();
        said.debug(&locks);
        said.result(locks.lock(KEY).acquire().await);
        said.result(LockManager::connect([&urls[0], &url, &url]).await);
    }
    said.check(&logs);
}

#[tokio::test]
async fn a_url_that_cannot_be_used_is_not_repeated() {
    let logs = Logs::collect();
    let mut said = Said::default();
    let server = guarded().start().await;
    let locks = LockManager::connect([server.url()]).await.unwrap();
    let _guard = locks.lock(KEY).acquire().await.unwrap();
    said.texts.push(KEY.to_owned());
    said.overhear(&Servers::from(vec![guarded().start().await])).await;
    said.tokens.push(server.probe().await.command(["GET", KEY]).await);

    let at = format!("127.0.0.1:{}", server.port());
    for password in [
        "s3cr3t",
        "a/s3cr3t",
        "1234/s3cr3t",
        "a@s3cr3t",
        "a%zzs3cr3t",
        "a?s3cr3t",
        "1?s3cr3t",
        "[s3cr3t",
        "s3cr3t\\",
        "s3cr3t ",
        "a#s3cr3t",
        "a:s3cr3t:b",
        "s3cr3t\n",
        "1234/s3cr3t/2",
    ] {
        for scheme in ["redis", "rediss", "unix", "http", "REDIS", ""] {
            for url in [
                format!("{scheme}://user:{password}@{at}"),
                format!("{scheme}://:{password}@{at}/x"),
                format!("{scheme}://:{password}@{at}/-1"),
                format!("{scheme}://:{password}@"),
                format!("{scheme}://:{password}@{at}:99999"),
                format!("{scheme}:///no/such/socket?pass={password}"),
                format!("{scheme}:///no/such/socket?pass={password}&db=x"),
                format!("{scheme}://:{password}@/no/such/socket"),
            ] {
                let builder = LockManager::builder().url(url).connect_timeout(BRIEF);
                said.debug(&builder);
                said.result(builder.connect().await);
            }
        }
    }
    said.check(&logs);
}

#[tokio::test]
async fn a_connection_that_breaks_says_nothing_of_what_it_carried() {
    let logs = Logs::collect();
    let mut said = Said::default();
    let mut servers = Servers::from(vec![guarded().start().await]);
    let locks = builder(&servers).connect().await.unwrap();
    let request = || locks.lock(KEY).expire(LONG).renew(true);
    let guard = request().acquire().await.unwrap();
    said.overhear(&servers).await;
    let mut probe = servers[0].probe().await;
    for kind in ["normal", "pubsub"] {
        let _: i64 = probe.command(["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]).await;
    }
    servers[0].kill();
    said.result(guard.extend(LONG).await);
    eventually("it is known to be down", SOON, async || {
        said.result(request().acquire().await);
        logs.lines().iter().any(|line| line.contains("a node is down")).then_some(())
    })
    .await;
    said.debug(&(&guard, guard.state()));
    said.result(guard.release().await);
    servers[0].restart().await;
    drop(eventually("it is back", SOON, async || said.result(request().acquire().await)).await);
    locks.shutdown().await;
    said.check(&logs);
}

#[redis_lock(key = "order:{id}", wait_time = "50ms")]
async fn attribute(Path(id): Path<u64>) -> String {
    format!("done: {}", id == 42)
}

/// Loses its lock while it works.
async fn robbed(Locks(locks): Locks, lock: HeldLock, Path(_): Path<u64>) -> String {
    locks.shutdown().await;
    lock.lost().await;
    std::future::pending().await
}

fn app(locks: &LockManager) -> Router {
    let layer = || LockLayer::new("order:{id:u64}").expire(LONG);
    Router::new()
        .route("/attribute/{id}", post(attribute))
        .route("/layer/{id}", post(async || "done").route_layer(layer()))
        .route("/twice/{id}", post(attribute).route_layer(layer()))
        .route("/lacks/{other}", post(async || "done").route_layer(layer()))
        .route("/wrong/{id}", post(async || "done").route_layer(layer().expire(Duration::ZERO)))
        .route("/robbed/{id}", post(robbed).route_layer(layer().on_lost(OnLost::Abort)))
        .layer(Extension(locks.clone()))
}

impl Said {
    async fn response(&mut self, app: &Router, path: &str) -> StatusCode {
        let request = Request::post(path).body(Body::empty()).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = String::from_utf8(to_bytes(body, 10_000).await.unwrap().into()).unwrap();
        self.debug(&parts.extensions.get::<LockRejection>());
        let answer = format!("{} {:?} {body}", parts.status, parts.headers);
        assert!(!answer.contains(KEY) && !answer.contains("127.0.0.1"), "{path}: {answer}");
        self.texts.push(answer);
        parts.status
    }
}

#[tokio::test]
async fn a_response_says_nothing_of_the_lock() {
    let logs = Logs::collect();
    let mut said = Said::default();
    let mut servers = Servers::from(vec![guarded().start().await]);
    let locks = builder(&servers).connect().await.unwrap();
    let app = app(&locks);
    let ways = ["/attribute/42", "/layer/42"];
    for way in ways {
        assert_eq!(said.response(&app, way).await, 200);
    }
    let guard = locks.lock(KEY).expire(LONG).acquire().await.unwrap();
    said.overhear(&servers).await;
    for way in ways {
        assert_eq!(said.response(&app, way).await, 409);
    }
    guard.release().await.unwrap();

    for (path, status) in [
        ("/attribute/x", 400),
        ("/layer/x", 400),
        ("/layer/%ff", 400),
        ("/twice/42", 500),
        ("/lacks/42", 500),
        ("/wrong/42", 500),
    ] {
        assert_eq!(said.response(&app, path).await, status, "{path}");
    }
    let mut probe = servers[0].probe().await;
    let _: () = probe.command(["SET", KEY, "of somebody else"]).await;
    for way in ways {
        assert_eq!(said.response(&app, way).await, 500, "a foreign key");
    }
    let _: i64 = probe.command(["DEL", KEY]).await;
    let own = builder(&servers).connect().await.unwrap();
    assert_eq!(said.response(&self::app(&own), "/robbed/42").await, 503);
    servers[0].kill();
    for way in ways {
        assert_eq!(said.response(&app, way).await, 503, "no quorum");
    }
    locks.shutdown().await;
    for way in ways {
        assert_eq!(said.response(&app, way).await, 503, "shut down");
    }
    said.check(&logs);
}

/// What the whole suite relies on: each of its processes searches all that is logged.
#[test]
fn a_secret_in_a_log_ends_the_process() {
    const TEST: &str = "secrets::a_secret_in_a_log_ends_the_process";
    const SECRET: &str = "REDLOCK_TEST_LOG_A_SECRET";
    if let Ok(secret) = std::env::var(SECRET) {
        // Any of these begins the watch.
        let _options = guarded();
        let _nodes = redlock_tests::Nodes::memory(1);
        std::thread::spawn(move || tracing::trace!(target: "any::library", "{secret}"))
            .join()
            .unwrap();
        return;
    }
    let passwords = tempfile::NamedTempFile::new().unwrap();
    let run = |secret: &str| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", TEST]).env(SECRET, secret);
        let output = child.env("REDLOCK_TEST_PASSWORDS", passwords.path()).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert!(run("nothing of interest").0);
    for secret in [PASSWORD, "0123456789abcdef0123456789abcdef"] {
        let (success, said) = run(secret);
        assert!(!success && said.contains("a secret was logged"), "{secret}: {said}");
    }
    // For the search of what the whole run prints.
    let passwords = std::fs::read_to_string(passwords.path()).unwrap();
    assert!(passwords.lines().any(|password| password == PASSWORD), "{passwords}");
}
