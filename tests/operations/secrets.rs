//! Secrets stay in: no log, `Debug`, error or response contains a password or token, and no response contains
//! a key or node.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::error::Error;
use std::fmt::Debug;
use std::process::Command;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Path;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use redlock_axum::{HeldLock, LockLayer, LockRejection, Locks, LocksLayer, OnLost, redis_lock};
use redlock_core::{Dialect, LockManager, LockManagerBuilder, LockRequest, scope};
use redlock_tests::{Logs, RedisOptions, RedisServer, Servers, eventually, find_secret};
use tower::ServiceExt;

const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(20);
const BRIEF: Duration = Duration::from_millis(50);
const KEY: &str = "order:42";
/// A password that must be percent-encoded in a URL.
const PASSWORD: &str = "s3cr3t/w%rd:@";
/// The part of the password that is the same with and without percent-encoding.
const CORE: &str = "s3cr3t";

/// Everything that the library printed or returned, and the tokens that must not occur in it.
#[derive(Debug, Default)]
struct Output {
    texts: Vec<String>,
    tokens: Vec<String>,
}

impl Output {
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

    /// Records the tokens of all locks that the servers hold now.
    async fn collect_tokens(&mut self, servers: &Servers) {
        for server in servers.iter().filter(|server| server.is_up()) {
            let mut probe = server.probe().await;
            for key in probe.keys().await.iter().filter(|key| !is_counter(key)) {
                let kind: String = probe.command(["TYPE", key]).await;
                // The lock may have expired meanwhile.
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
        // The check is able to fail: `find_secret` recognizes the tokens, and a text mentions the lock.
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

/// Calls every operation of a lock, also on lost and foreign locks, and records all output.
async fn exercise_lock(output: &mut Output, servers: &Servers, request: &dyn Fn() -> LockRequest) {
    output.debug(&request());
    output.debug(&request().fenced());
    let guard = request().try_acquire().await.unwrap();
    output.collect_tokens(servers).await;
    let lease = guard.handle();
    output.debug(&(&guard, &lease, guard.state(), guard.key()));
    output.result(request().try_acquire().await);
    output.result(request().wait_time(BRIEF).acquire().await);
    output.result(guard.extend(LONG).await);
    output.result(guard.extend(Duration::ZERO).await);
    output.result(guard.release().await);
    output.debug(&lease);

    let guard = request().fenced().acquire().await.unwrap();
    output.collect_tokens(servers).await;
    output.debug(&(&guard, guard.fencing_token()));
    output.texts.push(guard.fencing_token().to_string());
    for server in servers.iter() {
        let _: i64 = server.probe().await.command(["DEL", KEY]).await;
    }
    output.result(guard.extend(LONG).await);
    output.debug(&guard);
    output.result(guard.release().await);

    scope(async {
        let _guard = request().acquire().await.unwrap();
        output.result(request().acquire().await);
    })
    .await;
    for server in servers.iter() {
        let mut probe = server.probe().await;
        let _: i64 = probe.command(["DEL", KEY]).await;
        let _: () = probe.command(["SET", KEY, "foreign"]).await;
    }
    output.result(request().acquire().await);
    for server in servers.iter() {
        let _: i64 = server.probe().await.command(["DEL", KEY]).await;
    }
    drop(request().expire(BRIEF).renew(true).acquire().await.unwrap());
    eventually("released", SOON, async || servers_are_free(servers).await.then_some(())).await;
}

/// A fencing counter stays when its locks are released.
fn is_counter(key: &str) -> bool {
    key.contains("redlock:fencing")
}

async fn servers_are_free(servers: &Servers) -> bool {
    servers.keys().await.iter().all(|key| is_counter(key))
}

#[tokio::test]
async fn a_lock_never_prints_its_token_or_the_password() {
    let logs = Logs::collect();
    let mut output = Output::default();
    let servers = Servers::from(vec![
        guarded().start().await,
        guarded().start().await,
        guarded().start().await,
    ]);
    output.debug(&builder(&servers));
    let locks = builder(&servers).max_waiters(1).connect().await.unwrap();
    output.debug(&locks);
    for dialect in [Dialect::Plain, Dialect::Redisson] {
        let request = || locks.lock(KEY).expire(LONG).dialect(dialect);
        exercise_lock(&mut output, &servers, &request).await;
    }

    for key in ["", "a\nb"] {
        output.result(locks.lock(key).acquire().await);
    }
    output.result(locks.lock(KEY).expire(Duration::ZERO).acquire().await);
    let guard = locks.lock(KEY).acquire().await.unwrap();
    let waiting = tokio::spawn(locks.lock(KEY).wait_time(BRIEF).acquire());
    tokio::task::yield_now().await;
    output.result(locks.lock(KEY).wait_time(BRIEF).acquire().await);
    output.result(waiting.await.unwrap());
    output.collect_tokens(&servers).await;
    locks.shutdown().await;
    output.debug(&guard);
    output.result(guard.release().await);
    output.result(locks.lock(KEY).acquire().await);
    output.check(&logs);
}

/// A server repeats all arguments of an unknown command in its error.
#[tokio::test]
async fn errors_of_refusing_servers_contain_no_secret() {
    let logs = Logs::collect();
    let mut output = Output::default();
    // This lock provides tokens to search for.
    let good = Servers::from(vec![guarded().start().await]);
    let locks = builder(&good).connect().await.unwrap();
    exercise_lock(&mut output, &good, &|| locks.lock(KEY).expire(LONG)).await;

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
        if let Some(locks) = output.result(builder(&servers).connect().await) {
            for dialect in [Dialect::Plain, Dialect::Redisson] {
                let request = || locks.lock(KEY).expire(BRIEF).dialect(dialect);
                if let Some(guard) = output.result(request().acquire().await) {
                    output.collect_tokens(&servers).await;
                    output.result(request().acquire().await);
                    output.result(guard.extend(LONG).await);
                    output.result(guard.release().await);
                }
                output.result(request().fenced().acquire().await);
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
        if let Some(locks) = output.result(patient.connect().await)
            && let Some(guard) = output.result(locks.lock(KEY).expire(BRIEF).acquire().await)
        {
            output.collect_tokens(&good).await;
            output.result(locks.lock(KEY).acquire().await);
            output.result(guard.extend(LONG).await);
            output.result(guard.release().await);
            tokio::time::sleep(BRIEF * 2).await;
        }
    }

    // A URL with a wrong password and one without, beside URLs with the right one.
    let wrong = good[0].url().replace("s3cr3t", "s3cr3tly-wrong");
    let none = format!("redis://127.0.0.1:{}", good[0].port());
    let three = Servers::from(vec![guarded().start().await, guarded().start().await]);
    for url in [wrong, none] {
        output.result(LockManager::connect([&url]).await);
        let urls = three.urls();
        let locks = LockManager::connect([&urls[0], &url, &urls[1]]).await.unwrap();
        output.debug(&locks);
        output.result(locks.lock(KEY).acquire().await);
        output.result(LockManager::connect([&urls[0], &url, &url]).await);
    }
    output.check(&logs);
}

#[tokio::test]
async fn an_error_does_not_repeat_an_invalid_url() {
    let logs = Logs::collect();
    let mut output = Output::default();
    let server = guarded().start().await;
    let locks = LockManager::connect([server.url()]).await.unwrap();
    let _guard = locks.lock(KEY).acquire().await.unwrap();
    output.texts.push(KEY.to_owned());
    output.collect_tokens(&Servers::from(vec![guarded().start().await])).await;
    output.tokens.push(server.probe().await.command(["GET", KEY]).await);

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
                output.debug(&builder);
                output.result(builder.connect().await);
            }
        }
    }
    output.check(&logs);
}

#[tokio::test]
async fn errors_of_a_broken_connection_contain_no_secret() {
    let logs = Logs::collect();
    let mut output = Output::default();
    let mut servers = Servers::from(vec![guarded().start().await]);
    let locks = builder(&servers).connect().await.unwrap();
    let request = || locks.lock(KEY).expire(LONG).renew(true);
    let guard = request().acquire().await.unwrap();
    output.collect_tokens(&servers).await;
    let mut probe = servers[0].probe().await;
    for kind in ["normal", "pubsub"] {
        let _: i64 = probe.command(["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]).await;
    }
    servers[0].kill();
    output.result(guard.extend(LONG).await);
    eventually("the node is reported down", SOON, async || {
        output.result(request().acquire().await);
        logs.lines().iter().any(|line| line.contains("a node is down")).then_some(())
    })
    .await;
    output.debug(&(&guard, guard.state()));
    output.result(guard.release().await);
    servers[0].restart().await;
    drop(
        eventually("the server grants the lock again", SOON, async || {
            output.result(request().acquire().await)
        })
        .await,
    );
    locks.shutdown().await;
    output.check(&logs);
}

#[redis_lock(key = "order:{id}", wait_time = "50ms")]
async fn attribute(Path(id): Path<u64>) -> String {
    format!("done: {}", id == 42)
}

/// A handler that loses its lock while it runs.
async fn loses_lock(Locks(locks): Locks, lock: HeldLock, Path(_): Path<u64>) -> String {
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
        .route("/loses-lock/{id}", post(loses_lock).route_layer(layer().on_lost(OnLost::Abort)))
        .layer(LocksLayer::new(locks))
        .with_state(locks.clone())
}

impl Output {
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
async fn a_response_contains_no_key_node_or_secret() {
    let logs = Logs::collect();
    let mut output = Output::default();
    let mut servers = Servers::from(vec![guarded().start().await]);
    let locks = builder(&servers).connect().await.unwrap();
    let app = app(&locks);
    let paths = ["/attribute/42", "/layer/42"];
    for path in paths {
        assert_eq!(output.response(&app, path).await, 200);
    }
    let guard = locks.lock(KEY).expire(LONG).acquire().await.unwrap();
    output.collect_tokens(&servers).await;
    for path in paths {
        assert_eq!(output.response(&app, path).await, 409);
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
        assert_eq!(output.response(&app, path).await, status, "{path}");
    }
    let mut probe = servers[0].probe().await;
    let _: () = probe.command(["SET", KEY, "foreign"]).await;
    for path in paths {
        assert_eq!(output.response(&app, path).await, 500, "a foreign key");
    }
    let _: i64 = probe.command(["DEL", KEY]).await;
    let own = builder(&servers).connect().await.unwrap();
    assert_eq!(output.response(&self::app(&own), "/loses-lock/42").await, 503);
    servers[0].kill();
    for path in paths {
        assert_eq!(output.response(&app, path).await, 503, "no quorum");
    }
    locks.shutdown().await;
    for path in paths {
        assert_eq!(output.response(&app, path).await, 503, "shut down");
    }
    output.check(&logs);
}

/// The whole suite relies on this: each test process searches its own logs for secrets.
#[test]
fn a_secret_in_a_log_ends_the_process() {
    const TEST: &str = "secrets::a_secret_in_a_log_ends_the_process";
    const SECRET: &str = "REDLOCK_TEST_LOG_A_SECRET";
    if let Ok(secret) = std::env::var(SECRET) {
        // Each of these calls starts the search of the logs.
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
        let (success, stderr) = run(secret);
        assert!(!success && stderr.contains("a secret was logged"), "{secret}: {stderr}");
    }
    // `tests/run.sh` searches the output of the whole run for these passwords.
    let passwords = std::fs::read_to_string(passwords.path()).unwrap();
    assert!(passwords.lines().any(|password| password == PASSWORD), "{passwords}");
}
