//! Secrets stay in: no log, `Debug`, error or response contains a password or token, and no response contains
//! a key, a node or the label of an owner.

use std::error::Error;
use std::fmt::Debug;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, State};
use axum::http::Request;
use axum::routing::post;
use redlock_axum::{
    HeldLock, LockLayer, LockPolicy, LockRejection, OnLost, ScopeLayer, redis_lock,
};
use redlock_core::{Dialect, LockManager, LockRequest, LockStatus, OwnerLabel, scope};
use redlock_tests::{
    Logs, PostgresServer, RedisOptions, RedisServer, Servers, ZookeeperServer, eventually,
    find_secret, skip,
};
use tower::ServiceExt;

use super::run_again;
use crate::{LONG, SOON, builder};

const BRIEF: Duration = Duration::from_millis(50);
const KEY: &str = "order:42";
const LABEL: &str = "label-of-a-process:4121";
/// A password that must be percent-encoded in a URL.
const PASSWORD: &str = "s3cr3t/w%rd:@";
/// The part of the password that is the same with and without percent-encoding.
const CORE: &str = "s3cr3t";

/// Everything that the library printed or returned.
#[derive(Debug, Default)]
struct Output(Vec<String>);

impl Output {
    fn debug(&mut self, value: &dyn Debug) {
        self.0.extend([format!("{value:?}"), format!("{value:#?}")]);
    }

    fn result<T: Debug, E: Error>(&mut self, result: Result<T, E>) -> Option<T> {
        self.debug(&result);
        let mut next = result.as_ref().err().map(|error| error as &dyn Error);
        while let Some(error) = next {
            self.debug(&error);
            self.0.push(error.to_string());
            next = error.source();
        }
        result.ok()
    }

    fn check(self, logs: &Logs) {
        // The check is able to fail: a text mentions the lock.
        assert!(self.0.iter().any(|text| text.contains(KEY)));
        for text in self.0.into_iter().chain(logs.lines()) {
            assert!(!text.contains(PASSWORD) && !text.contains(CORE), "{text}");
            assert_eq!(find_secret(&text), None, "{text}");
        }
    }

    /// Calls what operators call, while the lock is held, free or foreign.
    async fn operators_see(&mut self, locks: &LockManager, dialect: Dialect) {
        self.debug(&locks.snapshot());
        self.0.push(serde_json::to_string(&locks.snapshot()).unwrap());
        let status = locks.status(KEY).dialect(dialect).await;
        self.debug(&status);
        for holder in status.iter().flat_map(LockStatus::holders) {
            self.debug(&holder);
        }
    }

    /// Calls every operation of a lock on servers that may refuse any of them.
    async fn try_operations(&mut self, locks: &LockManager, dialect: Dialect) {
        let request = || locks.lock(KEY).expire(LONG).dialect(dialect);
        self.debug(&(request(), request().fenced(true)));
        if let Some(guard) = self.result(request().try_acquire().await) {
            self.debug(&(&guard, guard.handle(), guard.state(), guard.keys()));
            self.result(request().wait_time(BRIEF).acquire().await);
            self.result(guard.extend(LONG).await);
            self.result(guard.extend(Duration::ZERO).await);
            self.operators_see(locks, dialect).await;
            self.result(guard.release().await);
        }
        self.operators_see(locks, dialect).await;
        if let Some(guard) = self.result(request().fenced(true).try_acquire().await) {
            self.debug(&(&guard, guard.fencing_token().unwrap()));
            self.0.push(guard.fencing_token().unwrap().to_string());
            self.result(guard.release().await);
        }
    }
}

fn guarded() -> RedisOptions {
    RedisServer::options().password(PASSWORD)
}

/// Gives the key this value on all servers, or deletes it.
async fn set(servers: &Servers, value: Option<&str>) {
    for server in servers.iter() {
        let mut probe = server.probe().await;
        match value {
            Some(value) => probe.command::<()>(["SET", KEY, value]).await,
            None => probe.command::<()>(["DEL", KEY]).await,
        }
    }
}

/// Calls the operations of a lock that is held, lost, or foreign.
async fn exercise_lock(
    output: &mut Output,
    servers: &Servers,
    locks: &LockManager,
    dialect: Dialect,
) {
    output.try_operations(locks, dialect).await;
    let request = || -> LockRequest { locks.lock(KEY).expire(LONG).dialect(dialect) };
    scope(async {
        let guard = request().try_acquire().await.unwrap();
        output.result(request().try_acquire().await);
        set(servers, None).await;
        output.result(guard.extend(LONG).await);
        output.debug(&guard);
        output.result(guard.release().await);
    })
    .await;
    set(servers, Some("foreign")).await;
    output.result(request().try_acquire().await);
    set(servers, None).await;
}

#[tokio::test]
async fn a_lock_never_prints_its_token_or_the_password() {
    let logs = Logs::collect();
    let mut output = Output::default();
    let mut servers = Servers::start_with(&guarded(), 3).await;
    // For so long the manager waits for nodes that are down.
    let builder = builder(servers.urls()).node_timeout(Duration::from_secs(1)).max_waiters(1);
    output.debug(&builder);
    let locks = builder.connect().await.unwrap();
    output.debug(&locks);
    for dialect in [Dialect::Plain, Dialect::Redisson] {
        exercise_lock(&mut output, &servers, &locks, dialect).await;
    }
    for key in ["", "a\nb"] {
        output.result(locks.lock(key).try_acquire().await);
    }
    output.result(locks.lock(KEY).expire(Duration::ZERO).try_acquire().await);
    let guard = locks.lock(KEY).expire(LONG).renew(true).try_acquire().await.unwrap();
    // Otherwise the texts could not contain what the check searches for.
    let token = servers[0].probe().await.get(KEY).await.unwrap();
    assert!(find_secret(&String::from_utf8(token).unwrap()).is_some());
    let waiting = tokio::spawn(locks.lock(KEY).wait_time(BRIEF).acquire());
    tokio::task::yield_now().await;
    output.result(locks.lock(KEY).wait_time(BRIEF).acquire().await);
    output.result(waiting.await.unwrap());

    for server in servers.iter_mut() {
        server.probe().await.disconnect_others().await;
        server.kill();
    }
    eventually("the nodes are reported down", SOON, async || {
        output.result(guard.extend(LONG).await);
        output.result(locks.lock("other").try_acquire().await);
        (logs.count("WARN", "a node is down") == 3).then_some(())
    })
    .await;
    output.debug(&(&guard, guard.state()));
    output.result(guard.release().await);
    locks.shutdown().await;
    output.result(locks.lock(KEY).try_acquire().await);
    output.check(&logs);
}

/// A server repeats all arguments of an unknown command in its error.
#[tokio::test]
async fn errors_of_refusing_servers_contain_no_secret() {
    let logs = Logs::collect();
    let mut output = Output::default();
    let mut clients = Vec::new();
    for options in [
        guarded().rename("HELLO", ""),
        guarded().rename("SET", ""),
        guarded().rename("EVALSHA", ""),
        guarded().rename("SCRIPT", ""),
        guarded().rename("CLIENT", ""),
        guarded().directive("maxmemory", "1").directive("maxmemory-policy", "noeviction"),
    ] {
        let server = options.start().await;
        clients.push((server.url(), server));
    }
    for rights in ["-@all +auth +hello", "-set", "-evalsha", "-del -pexpire", "resetkeys ~other:*"]
    {
        let server = guarded().start().await;
        let user = format!("ACL SETUSER app on >{PASSWORD} ~* &* +@all {rights}");
        let words = user.split(' ').collect::<Vec<_>>();
        server.probe().await.command::<()>(words).await;
        clients.push((server.url().replace("//:", "//app:"), server));
    }
    for (url, _) in &clients {
        if let Some(locks) = output.result(builder([url]).connect().await) {
            for dialect in [Dialect::Plain, Dialect::Redisson] {
                output.try_operations(&locks, dialect).await;
            }
        }
    }

    // A URL with a wrong password and one without, beside URLs with the right one.
    let servers = Servers::start_with(&guarded(), 3).await;
    let mut urls = servers.urls();
    for url in [
        urls[1].replace("s3cr3t", "s3cr3tly-wrong"),
        format!("redis://127.0.0.1:{}", servers[1].port()),
    ] {
        urls[1] = url;
        output.result(LockManager::connect(&urls[1..2]).await);
        let locks = builder(&urls).connect().await.unwrap();
        output.debug(&locks);
        output.result(locks.lock(KEY).try_acquire().await);
        output.result(LockManager::connect([&urls[0], &urls[1], &urls[1]]).await);
    }
    output.check(&logs);
}

#[tokio::test]
async fn an_error_does_not_repeat_an_invalid_url() {
    let logs = Logs::collect();
    let mut output = Output(vec![KEY.to_owned()]);
    let server = guarded().start().await;
    let at = format!("127.0.0.1:{}", server.port());
    let passwords = "s3cr3t|a/s3cr3t|1234/s3cr3t|a@s3cr3t|a%zzs3cr3t|a?s3cr3t|1?s3cr3t|[s3cr3t|s3cr3t\\|\
                     s3cr3t |a#s3cr3t|a:s3cr3t:b|s3cr3t\n|1234/s3cr3t/2";
    for password in passwords.split('|') {
        for scheme in ["redis", "rediss", "unix", "http", "REDIS", ""] {
            for rest in [
                format!("user:{password}@{at}"),
                format!(":{password}@{at}/x"),
                format!(":{password}@{at}/-1"),
                format!(":{password}@"),
                format!(":{password}@{at}:99999"),
                format!("/no/such/socket?pass={password}"),
                format!("/no/such/socket?pass={password}&db=x"),
                format!(":{password}@/no/such/socket"),
            ] {
                let url = format!("{scheme}://{rest}");
                let builder = LockManager::builder().url(url).connect_timeout(BRIEF);
                output.debug(&builder);
                output.result(builder.connect().await);
            }
        }
    }
    output.check(&logs);
}

#[redis_lock(key = "order:{id}", wait_time = "50ms")]
async fn attribute(Path(id): Path<u64>) -> String {
    format!("done: {}", id == 42)
}

/// A handler that loses its lock while it runs.
async fn loses_lock(
    State(locks): State<LockManager>,
    lock: HeldLock,
    Path(_): Path<u64>,
) -> String {
    locks.shutdown().await;
    lock.lost().await;
    std::future::pending().await
}

fn app(locks: &LockManager) -> Router {
    let policy = || LockPolicy::new("order:{id:u64}").expire(LONG);
    let layer = |policy| LockLayer::new(locks, policy).unwrap();
    Router::new()
        .route("/attribute/{id}", post(attribute))
        .route("/layer/{id}", post(async || "done").route_layer(layer(policy())))
        .route("/twice/{id}", post(attribute).route_layer(layer(policy())))
        .route("/lacks/{other}", post(async || "done").route_layer(layer(policy())))
        .route(
            "/loses-lock/{id}",
            post(loses_lock).route_layer(layer(policy().on_lost(OnLost::Abort))),
        )
        .layer(ScopeLayer::new(locks))
        .with_state(locks.clone())
}

impl Output {
    /// Sends requests, and checks their status.
    async fn answers(&mut self, app: &Router, paths: &[&str], status: u16) {
        for path in paths {
            let request = Request::post(*path).body(Body::empty()).unwrap();
            let response = app.clone().oneshot(request).await.unwrap();
            let (parts, body) = response.into_parts();
            let body = String::from_utf8(to_bytes(body, 10_000).await.unwrap().into()).unwrap();
            self.debug(&parts.extensions.get::<LockRejection>());
            let answer = format!("{} {:?} {body}", parts.status, parts.headers);
            let private = [KEY, "127.0.0.1", LABEL];
            assert!(!private.iter().any(|text| answer.contains(text)), "{path}: {answer}");
            assert_eq!(parts.status, status, "{path}: {answer}");
            self.0.push(answer);
        }
    }
}

#[tokio::test]
async fn a_response_contains_no_key_node_or_secret() {
    let logs = Logs::collect();
    let mut output = Output::default();
    let mut servers = Servers::start_with(&guarded(), 1).await;
    let locks = builder(servers.urls()).owner_label(LABEL).connect().await.unwrap();
    let other = builder(servers.urls()).owner_label(LABEL).connect().await.unwrap();
    let app = app(&locks);
    let paths = ["/attribute/42", "/layer/42"];
    output.answers(&app, &paths, 200).await;
    // Held by the same process, without a vote, and by another one, whose label the vote has.
    for holder in [&locks, &other] {
        let guard = holder.lock(KEY).expire(LONG).try_acquire().await.unwrap();
        let refused = locks.lock(KEY).try_acquire().await.unwrap_err();
        assert_eq!(refused.holder().map(OwnerLabel::as_str), Some(LABEL));
        output.answers(&app, &paths, 409).await;
        guard.release().await.unwrap();
    }

    output.answers(&app, &["/attribute/x", "/layer/x", "/layer/%ff"], 400).await;
    output.answers(&app, &["/twice/42", "/lacks/42"], 500).await;
    set(&servers, Some("foreign")).await;
    output.answers(&app, &paths, 500).await;
    set(&servers, None).await;
    let own = builder(servers.urls()).connect().await.unwrap();
    output.answers(&self::app(&own), &["/loses-lock/42"], 503).await;
    servers[0].kill();
    output.answers(&app, &paths, 503).await;
    locks.shutdown().await;
    output.answers(&app, &paths, 503).await;
    output.check(&logs);
}

/// The whole suite relies on this: each test process searches its own logs for secrets.
#[test]
fn a_secret_in_a_log_ends_the_process() {
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
    let path = passwords.path().display().to_string();
    let run = |secret: &str| {
        let output = run_again(&[(SECRET, secret), ("REDLOCK_TEST_PASSWORDS", &path)]);
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

/// The driver of PostgreSQL logs its parameters, and the server repeats the values of a row in its details.
#[tokio::test]
async fn a_lock_in_postgresql_never_prints_its_token_or_the_password() {
    let logs = Logs::collect();
    let mut output = Output::default();
    let started = PostgresServer::options().password(PASSWORD).start().await;
    let Some(mut server) = started.inspect_err(|why| skip(why)).ok() else { return };
    let builder = builder([server.url()]).node_timeout(Duration::from_secs(1)).max_waiters(1);
    output.debug(&builder);
    let locks = builder.connect().await.unwrap();
    output.debug(&locks);
    output.try_operations(&locks, Dialect::Plain).await;
    let guard = locks.lock(KEY).expire(LONG).fenced(true).try_acquire().await.unwrap();
    let sql = "select token from locks.redlock_lease where name = $1";
    let token: String = server.admin().await.query_one(sql, &[&KEY]).await.unwrap().get(0);
    // Otherwise the texts could not contain what the check searches for.
    assert!(find_secret(&token).is_some());
    assert!(server.delete_lock(KEY).await);
    output.result(guard.extend(LONG).await);
    output.result(guard.release().await);
    let check = "alter table locks.redlock_lease add check (token = '')";
    server.admin().await.batch_execute(check).await.unwrap();
    let error = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap_err();
    assert!(format!("{error:?}").contains("violates check constraint"), "{error:?}");
    output.result::<(), _>(Err(error));
    server.kill();
    output.try_operations(&locks, Dialect::Plain).await;
    output.check(&logs);
}

/// The name of a znode follows from the token, and the login is sent over each connection.
#[tokio::test]
async fn a_lock_in_zookeeper_never_prints_its_token_or_the_password() {
    let logs = Logs::collect();
    let mut output = Output::default();
    let started = ZookeeperServer::options().independent().start().await;
    let Some(mut server) = started.inspect_err(|why| skip(why)).ok() else { return };
    let login = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(login.path(), format!("app:{PASSWORD}")).unwrap();
    let url = format!("{}&auth_file={}", server.url(), login.path().display());
    let builder = builder([url]).node_timeout(Duration::from_secs(1)).max_waiters(1);
    output.debug(&builder);
    let locks = builder.connect().await.unwrap();
    output.debug(&locks);
    output.try_operations(&locks, Dialect::Plain).await;
    let guard = locks.lock(KEY).expire(LONG).fenced(true).try_acquire().await.unwrap();
    server.delete_lock(KEY).await;
    output.result(guard.extend(LONG).await);
    output.result(guard.release().await);
    std::fs::write(login.path(), PASSWORD).unwrap();
    server.restart().await;
    output.try_operations(&locks, Dialect::Plain).await;
    server.kill();
    output.try_operations(&locks, Dialect::Plain).await;
    output.check(&logs);
}
