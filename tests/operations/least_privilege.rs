//! The permissions (Redis ACL rules) that the servers' user needs, and the abilities that are missing without
//! each of them.
//!
//! The tables document the permissions. A change that sends a new command must add a row; otherwise these
//! tests fail, because the command is not permitted.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::time::Duration;

use redlock_core::{
    Dialect, ExtendError, LockError, LockManager, LockManagerBuilder, LockRequest, MultiGuard,
    NodeError, ReleaseError, Vote, Votes,
};
use redlock_tests::{Logs, Probe, RedisServer, eventually, skip};

const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(10);
const PREFIX: &str = "lock:";
const KEY: &str = "order:42";

/// An operation on a lock. Each variant documents the result for a caller without permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ability {
    /// `ConnectError::Unavailable`, with `NotPermitted`.
    Connect,
    /// A warning in the log. A server that is listed twice or that evicts keys is not detected. For the
    /// effect on the restart guard see its documentation.
    Identify,
    /// A warning in the log. A step of the server's wall clock is not detected.
    WatchClock,
    /// `LockError::Unavailable`, with `NotPermitted`.
    Acquire,
    /// `LockError::Unavailable`, with `NotPermitted`, for a lock with `fenced`.
    Fence,
    /// `LockError::Unavailable`, with `NotPermitted`, although another holder has the lock, so that no
    /// caller can wait for it.
    Refuse,
    /// `LockError::Contended` has no remaining time, so waiters poll more often.
    TellRemaining,
    /// `ExtendError::Unavailable`, with `NotPermitted`; the lock is held until its lease runs out.
    Extend,
    /// `ReleaseError::Unavailable`, with `NotPermitted`; the lock stays until its lease runs out.
    Release,
    /// `ReleaseError::Unavailable`, with `NotPermitted`, for a lock with `min_hold`.
    ReleaseLater,
    /// `LockError::Unavailable`, with `NotPermitted`, for a shared lock and for one with permits.
    Share,
    /// `LockError::Unavailable`, with `NotPermitted`, for a shared lock, although an exclusive holder has the lock.
    RefuseReader,
    /// `LockError::ForeignKey` for an exclusive lock, although others share the lock.
    RefuseWriter,
    /// `ReleaseError::Unavailable`, with `NotPermitted`, for a shared lock. It stays until its lease runs out.
    StopSharing,
    /// A warning in the log. This user's waiters are not woken by releases, and poll instead.
    Listen,
    /// No waiter of any user is woken by this user's releases; the waiters notice them by polling.
    Announce,
    /// No effect on callers: the server continues to send messages without a subscriber.
    StopListening,
}

use Ability::{
    Acquire, Announce, Connect, Extend, Fence, Identify, Listen, Refuse, RefuseReader,
    RefuseWriter, Release, ReleaseLater, Share, StopListening, StopSharing, TellRemaining,
    WatchClock,
};

/// A rule of the ACL, and the abilities that are missing without it.
type Right = (&'static str, &'static [Ability]);

const PLAIN: &[Right] = &[
    ("~lock:*", &[Acquire]),
    ("&lock:*", &[Listen, Announce]),
    ("+set", &[Acquire]),
    ("+time", &[Fence, Share, WatchClock]),
    ("+get", &[Fence, TellRemaining, Extend, Release, ReleaseLater, RefuseReader]),
    ("+del", &[Release, StopSharing]),
    ("+pexpire", &[Extend, ReleaseLater]),
    ("+pttl", &[TellRemaining, Extend, ReleaseLater, RefuseReader]),
    ("+hget", &[RefuseWriter]),
    ("+hgetall", &[Fence, Share]),
    ("+hset", &[Share]),
    ("+hdel", &[StopSharing]),
    ("+pexpireat", &[Share]),
    ("+publish", &[Announce]),
    ("+evalsha", &[Fence, Share, TellRemaining, Extend, Release, ReleaseLater]),
    ("+script|load", &[Connect]),
    ("+subscribe", &[Listen]),
    ("+unsubscribe", &[StopListening]),
    ("+info", &[Identify]),
];

const REDISSON: &[Right] = &[
    ("~lock:*", &[Acquire]),
    ("&redisson_lock__channel:{lock:*", &[Listen, Announce]),
    ("+get", &[Fence]),
    ("+set", &[Fence]),
    ("+time", &[Fence, WatchClock]),
    ("+hset", &[Acquire]),
    ("+hexists", &[Acquire]),
    ("+exists", &[Acquire]),
    ("+del", &[Release]),
    ("+pexpire", &[Acquire]),
    ("+pttl", &[Refuse, Extend, ReleaseLater]),
    ("+publish", &[Announce]),
    ("+evalsha", &[Acquire]),
    ("+script|load", &[Connect]),
    ("+subscribe", &[Listen]),
    ("+unsubscribe", &[StopListening]),
    ("+info", &[Identify]),
];

fn rights(dialect: Dialect) -> &'static [Right] {
    match dialect {
        Dialect::Redisson => REDISSON,
        _ => PLAIN,
    }
}

fn channel(dialect: Dialect) -> String {
    match dialect {
        Dialect::Redisson => format!("redisson_lock__channel:{{{PREFIX}{KEY}}}"),
        _ => format!("{PREFIX}{KEY}"),
    }
}

/// A server whose user `app` has all rights that a dialect needs, except the missing ones.
struct Restricted {
    dialect: Dialect,
    /// The name of the first command that is not permitted.
    missing: &'static str,
    server: RedisServer,
    probe: Probe,
    logs: Logs,
}

impl Restricted {
    async fn start(dialect: Dialect, missing: Option<&'static str>) -> Self {
        Self::start_without(dialect, missing.as_slice()).await
    }

    async fn start_without(dialect: Dialect, missing: &[&'static str]) -> Self {
        let logs = Logs::collect();
        redlock_logs::remember_password("s3cret");
        let server = RedisServer::start().await;
        let mut probe = server.probe().await;
        // Redis 6.2 permits all channels by default.
        let mut user = vec!["ACL", "SETUSER", "app", "reset", "resetchannels", "on", ">s3cret"];
        let rules = rights(dialect).iter().map(|(rule, _)| *rule);
        user.extend(rules.filter(|rule| !missing.contains(rule)));
        probe.command::<()>(&user).await;
        let missing = missing.first().and_then(|rule| rule.strip_prefix('+')).unwrap_or_default();
        // The errors of Redis 6.2 do not name the subcommand.
        let missing = missing.split('|').next().unwrap_or_default();
        Self { dialect, missing, server, probe, logs }
    }

    fn builder(&self) -> LockManagerBuilder {
        LockManager::builder()
            .url(self.server.url_at("app:s3cret@127.0.0.1"))
            .prefix(PREFIX)
            .dialect(self.dialect)
            .node_timeout(SOON)
            .connect_timeout(SOON)
    }

    async fn manager(&self) -> LockManager {
        self.builder().connect().await.unwrap()
    }

    /// Asserts that the first vote is `NotPermitted`, and that it names the missing command but not the
    /// password.
    fn assert_not_permitted(&self, votes: &Votes) {
        let (_, vote) = votes.iter().next().unwrap();
        let Some(Vote::Failed(NodeError::NotPermitted(words))) = vote else { panic!("{votes}") };
        assert!(words.to_lowercase().contains(self.missing), "{}: {words}", self.missing);
        assert!(!words.contains("s3cret"), "{words}");
    }

    fn has_warned(&self, words: &str) -> bool {
        self.logs.lines().iter().any(|line| line.contains("WARN") && line.contains(words))
    }

    /// Returns how often a command was executed, and how often it was rejected.
    async fn calls(&mut self, command: &str) -> (u64, u64) {
        let info: String = self.probe.command(["INFO", "commandstats"]).await;
        let line = info.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:")));
        let count = |name: &str| {
            let (_, rest) = line?.split_once(&format!("{name}="))?;
            rest.split(',').next()?.parse().ok()
        };
        (count("calls").unwrap_or(0), count("rejected_calls").unwrap_or(0))
    }

    async fn is_listened_to(&mut self) -> bool {
        let channel = channel(self.dialect);
        let counted: (String, u64) = self.probe.command(["PUBSUB", "NUMSUB", &channel]).await;
        counted.1 > 0
    }

    async fn is_older_than(&mut self, version: &str) -> bool {
        let info: String = self.probe.command(["INFO", "server"]).await;
        let reported = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        let number = |text: &str| {
            let mut parts = text.split('.').map(|part| part.parse::<u32>().unwrap_or_default());
            [parts.next(), parts.next()]
        };
        number(reported.unwrap()) < number(version)
    }

    async fn clear(&mut self) {
        self.probe.command::<()>(["FLUSHALL"]).await;
    }

    /// Tries every operation, and returns the operations that fail.
    async fn lacks(&mut self) -> BTreeSet<Ability> {
        let mut lacking = BTreeSet::new();
        let locks = match self.builder().connect().await {
            Ok(locks) => locks,
            Err(redlock_core::ConnectError::Unavailable { votes, .. }) => {
                self.assert_not_permitted(&votes);
                return BTreeSet::from([Connect]);
            }
            Err(error) => panic!("{error}"),
        };
        if self.has_warned("run_id of the server is unknown") {
            lacking.insert(Identify);
        }
        if self.has_warned("time of the server is unknown") {
            lacking.insert(WatchClock);
        }
        let request = |locks: &LockManager| locks.lock(KEY).expire(LONG / 2);
        match request(&locks).try_acquire().await {
            Ok(guard) => drop(guard),
            Err(LockError::Unavailable { votes, .. }) => {
                self.assert_not_permitted(&votes);
                // A script's effects stay when it fails (every lock has a deadline).
                assert_eq!(self.probe.keys().await, [""; 0]);
                lacking.insert(Acquire);
                return lacking;
            }
            Err(error) => panic!("{error}"),
        }
        self.clear().await;

        match request(&locks).fenced().try_acquire().await {
            Ok(guard) => drop(guard),
            Err(LockError::Unavailable { votes, .. }) => {
                self.assert_not_permitted(&votes);
                let counter = |key: &String| key.contains(":fencing");
                eventually("no lock is left", SOON, async || {
                    self.probe.keys().await.iter().all(counter).then_some(())
                })
                .await;
                lacking.insert(Fence);
            }
            Err(error) => panic!("{error}"),
        }
        self.clear().await;

        let guard = request(&locks).try_acquire().await.unwrap();
        let stranger = self.manager().await;
        match request(&stranger).try_acquire().await.unwrap_err() {
            LockError::Contended { remaining: Some(_), .. } => {}
            LockError::Contended { remaining: None, .. } => {
                lacking.insert(TellRemaining);
            }
            LockError::Unavailable { votes, .. } => {
                self.assert_not_permitted(&votes);
                lacking.insert(Refuse);
            }
            error => panic!("{error}"),
        }
        match guard.extend(LONG).await {
            Ok(()) => assert!(guard.remaining() > LONG / 2),
            Err(ExtendError::Unavailable { votes, .. }) => {
                self.assert_not_permitted(&votes);
                assert!(guard.is_valid());
                lacking.insert(Extend);
            }
            Err(error) => panic!("{error}"),
        }
        match guard.release().await {
            Ok(()) => assert_eq!(self.probe.keys().await, [""; 0]),
            Err(ReleaseError::Unavailable { votes, .. }) => {
                self.assert_not_permitted(&votes);
                lacking.insert(Release);
            }
            Err(error) => panic!("{error}"),
        }
        self.clear().await;

        let guard = request(&locks).min_hold(SOON).try_acquire().await.unwrap();
        match guard.release().await {
            Ok(()) => {
                let left = self.probe.time_to_live(&format!("{PREFIX}{KEY}")).await;
                assert!(left.unwrap() <= SOON);
            }
            Err(ReleaseError::Unavailable { votes, .. }) => {
                self.assert_not_permitted(&votes);
                lacking.insert(ReleaseLater);
            }
            Err(error) => panic!("{error}"),
        }
        self.clear().await;

        if self.dialect == Dialect::Plain {
            lacking.extend(self.sharing_lacks(&locks, &stranger).await);
            self.clear().await;
        }

        if !lacking.contains(&Refuse) {
            lacking.extend(self.waiting_lacks(&locks, &stranger).await);
        }
        lacking
    }

    /// Tries the operations on shared locks.
    async fn sharing_lacks(&mut self, locks: &LockManager, stranger: &LockManager) -> Vec<Ability> {
        let mut lacking = Vec::new();
        let request = |locks: &LockManager| locks.lock(KEY).expire(LONG);
        for shared in [request(locks).permits(3), request(locks).shared()] {
            match shared.try_acquire().await {
                Ok(guard) => {
                    guard.extend(LONG * 2).await.unwrap();
                    match request(stranger).try_acquire().await.unwrap_err() {
                        LockError::Contended { .. } => {}
                        LockError::ForeignKey { .. } => lacking.push(RefuseWriter),
                        error => panic!("{error}"),
                    }
                    match guard.release().await {
                        Ok(()) => assert_eq!(self.probe.keys().await, [""; 0]),
                        Err(ReleaseError::Unavailable { votes, .. }) => {
                            self.assert_not_permitted(&votes);
                            lacking.push(StopSharing);
                        }
                        Err(error) => panic!("{error}"),
                    }
                    self.clear().await;
                }
                Err(LockError::Unavailable { votes, .. }) => {
                    self.assert_not_permitted(&votes);
                    // A script's effects stay when it fails (every lock has a deadline).
                    assert_eq!(self.probe.keys().await, [""; 0]);
                    lacking.push(Share);
                }
                Err(error) => panic!("{error}"),
            }
        }
        if lacking.contains(&Share) {
            return lacking;
        }
        let exclusive = request(locks).try_acquire().await.unwrap();
        match request(stranger).shared().try_acquire().await.unwrap_err() {
            LockError::Contended { remaining: Some(_), .. } => {}
            LockError::Unavailable { votes, .. } => {
                self.assert_not_permitted(&votes);
                lacking.push(RefuseReader);
            }
            error => panic!("{error}"),
        }
        drop(exclusive);
        lacking
    }

    async fn waiting_lacks(&mut self, locks: &LockManager, stranger: &LockManager) -> Vec<Ability> {
        let mut lacking = Vec::new();
        let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
        let waiting = tokio::spawn(stranger.lock(KEY).wait_forever().acquire());
        let listens = eventually("the waiter listens, or cannot", SOON, async || {
            let refused = self.has_warned("cannot subscribe to releases");
            if self.is_listened_to().await { Some(true) } else { refused.then_some(false) }
        });
        if !listens.await {
            lacking.push(Listen);
        }
        let (deleted, _) = self.calls("del").await;
        let (published, _) = self.calls("publish").await;
        drop(guard);
        // Without the right to release the lock, its lease runs out.
        self.probe.command::<()>(["PEXPIRE", &format!("{PREFIX}{KEY}"), "300"]).await;
        let guard = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
        if self.calls("del").await.0 > deleted && self.calls("publish").await.0 == published {
            lacking.push(Announce);
        }
        drop(guard);
        let stops =
            eventually("the waiter's channel is given up, or cannot be", SOON, async || {
                if self.is_listened_to().await {
                    (self.calls("unsubscribe").await.1 > 0).then_some(false)
                } else {
                    Some(true)
                }
            });
        if !stops.await {
            lacking.push(StopListening);
        }
        lacking
    }
}

/// With all rights every operation succeeds. Without one right, exactly the operations in its row fail, so
/// no right in the table is superfluous.
async fn removing_a_right_disables_only_what_needs_it(dialect: Dialect) {
    assert_eq!(Restricted::start(dialect, None).await.lacks().await, BTreeSet::new());
    for (rule, lacking) in rights(dialect) {
        let mut restricted = Restricted::start(dialect, Some(rule)).await;
        let found = restricted.lacks().await;
        assert_eq!(found, lacking.iter().copied().collect(), "without {rule}");
    }
}

#[test]
fn the_production_page_lists_these_rights() {
    let page = include_str!("../../redlock-axum/docs/production.md");
    let mut lines = page.lines().filter(|line| line.trim().starts_with("ACL SETUSER app"));
    for dialect in [Dialect::Plain, Dialect::Redisson] {
        let words = lines.next().unwrap().split_whitespace();
        let listed: BTreeSet<_> = words.filter(|word| word.starts_with(['~', '&', '+'])).collect();
        let needed: BTreeSet<_> = rights(dialect).iter().map(|(rule, _)| *rule).collect();
        assert_eq!(listed, needed, "{dialect:?}");
    }
}

#[tokio::test]
async fn each_right_is_needed_in_the_plain_dialect() {
    removing_a_right_disables_only_what_needs_it(Dialect::Plain).await;
}

#[tokio::test]
async fn each_right_is_needed_in_the_redisson_dialect() {
    removing_a_right_disables_only_what_needs_it(Dialect::Redisson).await;
}

/// A script's effects stay when it fails, and without `DEL` they could not be undone either (every lock has a
/// deadline).
#[tokio::test]
async fn without_pexpire_and_del_no_lock_is_left_without_a_deadline() {
    for dialect in [Dialect::Plain, Dialect::Redisson] {
        let mut restricted = Restricted::start_without(dialect, &["+pexpire", "+del"]).await;
        if restricted.is_older_than("7.0").await && dialect == Dialect::Redisson {
            return skip("this server cannot say beforehand what is not permitted");
        }
        let locks = restricted.manager().await;
        for fenced in [false, true] {
            let request = locks.lock(KEY).expire(SOON);
            let attempt = if fenced {
                request.fenced().try_acquire().await.map(redlock_core::FencedGuard::into_guard)
            } else {
                request.try_acquire().await
            };
            match (dialect, attempt) {
                // The plain dialect acquires with `SET` alone, and needs neither command until the release.
                (Dialect::Plain, Ok(guard)) => guard.keep_until_expiry(),
                (_, Err(LockError::Unavailable { votes, .. })) => {
                    restricted.assert_not_permitted(&votes);
                }
                (_, other) => panic!("{dialect:?}: {other:?}"),
            }
            let counter = |key: &String| key.contains(":fencing");
            let locks: Vec<_> =
                restricted.probe.keys().await.into_iter().filter(|key| !counter(key)).collect();
            for lock in &locks {
                let left: i64 = restricted.probe.command(["PTTL", lock]).await;
                assert!(left > 0, "{dialect:?}: {lock} stays for ever");
            }
            assert_eq!(locks.is_empty(), dialect == Dialect::Redisson);
            restricted.clear().await;
        }
    }
}

fn set(locks: &LockManager) -> LockRequest<MultiGuard> {
    locks.lock_all(["order:42", "order:43"]).expire(LONG).wait_time(SOON)
}

#[tokio::test]
async fn a_lock_of_several_keys_needs_the_rights_of_a_plain_lock() {
    let restricted = Restricted::start(Dialect::Plain, None).await;
    let (one, other) = (restricted.manager().await, restricted.manager().await);
    let guard = set(&one).fenced().acquire().await.unwrap();
    let waiting = tokio::spawn(set(&other).min_hold(Duration::from_millis(20)).acquire());
    guard.extend(LONG * 2).await.unwrap();
    eventually("the waiter listens", SOON, async || {
        let channel = format!("{PREFIX}order:42");
        let counted: (String, u64) =
            restricted.probe.clone().command(["PUBSUB", "NUMSUB", &channel]).await;
        (counted.1 > 0).then_some(())
    })
    .await;
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

/// A script that lacks a right leaves no key half done.
#[tokio::test]
async fn a_lock_of_several_keys_is_not_acquired_without_a_right() {
    for missing in ["+set", "+pttl", "+evalsha"] {
        let mut restricted = Restricted::start(Dialect::Plain, Some(missing)).await;
        let error = set(&restricted.manager().await).acquire().await.unwrap_err();
        let LockError::Unavailable { votes, .. } = error else { panic!("{missing}: {error:?}") };
        restricted.assert_not_permitted(&votes);
        assert_eq!(restricted.probe.keys().await, [""; 0], "{missing}");
    }
}

/// A reader that several writers have passed asks for a turn, for which the server has to be asked for its time. The
/// lock is free by then.
#[tokio::test]
async fn a_release_succeeds_although_the_turn_of_the_readers_is_not_permitted() {
    let lock = format!("{PREFIX}{KEY}");
    for missing in [None, Some("+time"), Some("+hset"), Some("+pexpireat")] {
        let mut restricted = Restricted::start(Dialect::Plain, missing).await;
        let client = redis::Client::open(restricted.server.url()).unwrap();
        let mut reader = client.get_async_pubsub().await.unwrap();
        reader.subscribe(&[&lock, &format!("{lock}:readers")]).await.unwrap();
        let locks = restricted.manager().await;
        let turn: Vec<&String> = missing.is_none().then_some(&lock).into_iter().collect();
        // A set is not acquired without the time of the server.
        let kinds = if missing == Some("+time") { &[false][..] } else { &[false, true] };
        for is_set in kinds {
            if *is_set {
                let set = locks.lock_all([KEY, "order:43"]).wait_time(SOON);
                set.acquire().await.unwrap().release().await.unwrap();
            } else {
                locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
            }
            let keys = restricted.probe.keys().await;
            assert_eq!(keys.iter().collect::<Vec<_>>(), turn, "without {missing:?}, set: {is_set}");
        }
    }
}

/// A downgrade removes the exclusive lock before it adds the shared one.
#[tokio::test]
async fn a_downgrade_that_is_not_permitted_leaves_the_lock_exclusive() {
    let lock = format!("{PREFIX}{KEY}");
    for missing in ["+hset", "+pexpireat"] {
        let mut restricted = Restricted::start(Dialect::Plain, Some(missing)).await;
        let locks = restricted.manager().await;
        let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
        let error = guard.downgrade().await.unwrap_err();
        restricted.assert_not_permitted(error.votes().unwrap());
        let left: i64 = restricted.probe.command(["PTTL", &lock]).await;
        let kind: String = restricted.probe.command(["TYPE", &lock]).await;
        assert_eq!(kind, "string", "without {missing}");
        assert!(left > 0, "without {missing}: {left}");
        error.into_guard().unwrap().release().await.unwrap();
        assert!(restricted.probe.keys().await.is_empty());
    }
}

/// The rights of one application give no access to the locks of another application.
#[tokio::test]
async fn other_prefixes_are_out_of_reach() {
    for dialect in [Dialect::Plain, Dialect::Redisson] {
        let restricted = Restricted::start(dialect, None).await;
        for prefix in ["", "shop:", "loc"] {
            let locks = restricted.builder().prefix(prefix).connect().await.unwrap();
            let error = locks.lock(KEY).try_acquire().await.unwrap_err();
            let LockError::Unavailable { votes, .. } = &error else { panic!("{error}") };
            restricted.assert_not_permitted(votes);
            let diagnostics = error.diagnostics().to_string();
            assert!(diagnostics.contains("key"), "{diagnostics}");
        }
    }
}

/// Redisson adds no braces to a key that has braces, so the name of its channel begins differently.
#[tokio::test]
async fn a_key_with_braces_has_its_own_channel_in_the_redisson_dialect() {
    let mut restricted = Restricted::start(Dialect::Redisson, None).await;
    let rule = ["ACL", "SETUSER", "app", "&redisson_lock__channel:lock:*"];
    restricted.probe.command::<()>(rule).await;
    let (one, other) = (restricted.manager().await, restricted.manager().await);
    let guard = one.lock("{order}:42").expire(LONG).try_acquire().await.unwrap();
    let waiting = tokio::spawn(other.lock("{order}:42").wait_forever().acquire());
    eventually("the waiter listens", SOON, async || {
        let channels: Vec<String> = restricted.probe.command(["PUBSUB", "CHANNELS"]).await;
        (channels == ["redisson_lock__channel:lock:{order}:42"]).then_some(())
    })
    .await;
    guard.release().await.unwrap();
    let next = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    assert!(next.is_valid());
    assert!(!restricted.has_warned("cannot subscribe to releases"));
}

/// If the URL names another database than the first, each new connection sends `SELECT`.
#[tokio::test]
async fn a_database_other_than_the_first_needs_select() {
    let mut restricted = Restricted::start(Dialect::Plain, None).await;
    let url = format!("{}/3", restricted.server.url_at("app:s3cret@127.0.0.1"));
    let builder = || LockManager::builder().url(&url).prefix(PREFIX).node_timeout(SOON);
    let error = builder().connect().await.unwrap_err();
    assert!(error.to_string().contains("not permitted"), "{error}");
    assert!(error.to_string().contains("select"), "{error}");
    restricted.probe.command::<()>(["ACL", "SETUSER", "app", "+select"]).await;
    let locks = builder().connect().await.unwrap();
    locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
}
