//! The permissions (Redis ACL rules) that the servers' user needs, and the abilities that are missing without
//! each of them.
//!
//! The tables document the permissions. A change that sends a new command must add a row; otherwise these
//! tests fail, because the command is not permitted.

use std::collections::BTreeSet;
use std::time::Duration;

use redlock_core::{
    BreakError, ConnectError, Dialect, HoldError, LockError, LockManager, LockManagerBuilder,
    LockRequest, NodeError, ReleaseError, StatusError, Vote, Votes,
};
use redlock_tests::{Logs, Probe, RedisServer, eventually, skip};

use crate::{LONG, SOON};

const PREFIX: &str = "lock:";
const KEY: &str = "order:42";
const LOCK: &str = "lock:order:42";
const DIALECTS: [Dialect; 2] = [Dialect::Plain, Dialect::Redisson];
const PAGE: &str = include_str!("../../redlock-axum/docs/production.md");

/// An operation on a lock. Each variant documents the result for a caller without permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ability {
    /// `ConnectError::Unavailable`, with `NotPermitted`. The other abilities of the row are missing if the right is revoked
    /// after the connection was made.
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
    /// `LockError::Contended` does not name the holder.
    NameHolder,
    /// `HoldError::Unavailable`, with `NotPermitted`; the lock is held until its lease runs out.
    Extend,
    /// `ReleaseError::Unavailable`, with `NotPermitted`; the lock stays until its lease runs out.
    Release,
    /// `ReleaseError::Unavailable`, with `NotPermitted`, for a lock with `min_hold`.
    ReleaseLater,
    /// `LockError::Unavailable`, with `NotPermitted`, for a shared lock and for one with permits.
    Share,
    /// `LockError::Unavailable`, with `NotPermitted`, for a shared lock, although an exclusive holder has the lock.
    RefuseReader,
    /// `HoldError::Unavailable`, with `NotPermitted`, for a shared lock; it is held until its lease runs out.
    ExtendShared,
    /// `ReleaseError::Unavailable`, with `NotPermitted`, for a shared lock. It stays until its lease runs out.
    StopSharing,
    /// A warning in the log. This user's waiters are not woken by releases, and poll instead.
    Listen,
    /// No waiter of any user is woken by this user's releases; the waiters notice them by polling. A warning in the log, except
    /// on Redis 6.2.
    Announce,
    /// `StatusError::Unavailable`, with `NotPermitted`.
    Look,
    /// `BreakError::Unavailable`, with `NotPermitted`.
    Break,
    /// A line in the log for debugging. A holder learns of a loss at its next renewal, except of a break, which is published.
    /// Waiters behind a lock of another library poll.
    HintLoss,
    /// No effect on callers: the server continues to send messages without a subscriber.
    StopListening,
}

use Ability::{
    Acquire, Announce, Break, Connect, Extend, ExtendShared, Fence, HintLoss, Identify, Listen,
    Look, NameHolder, Refuse, RefuseReader, Release, ReleaseLater, Share, StopListening,
    StopSharing, TellRemaining, WatchClock,
};

/// A rule of the ACL, and the abilities that are missing without it.
type Right = (&'static str, &'static [Ability]);

const PLAIN: &[Right] = &[
    ("~lock:*", &[Acquire]),
    ("&lock:*", &[Listen, Announce]),
    ("+set", &[Connect, Acquire]),
    ("+time", &[Fence, Share, WatchClock]),
    (
        "+get",
        &[
            Connect,
            Fence,
            TellRemaining,
            NameHolder,
            Extend,
            Release,
            ReleaseLater,
            RefuseReader,
            Look,
            Break,
        ],
    ),
    ("+del", &[Connect, Release, StopSharing, Break]),
    ("+pexpire", &[Connect, Extend, ReleaseLater]),
    (
        "+pttl",
        &[Connect, TellRemaining, NameHolder, Extend, ReleaseLater, RefuseReader, Look, Break],
    ),
    ("+zadd", &[Share]),
    ("+zrem", &[StopSharing, Break]),
    ("+zscore", &[ExtendShared, StopSharing]),
    ("+zrange", &[Share]),
    ("+zremrangebyscore", &[ExtendShared]),
    ("+pexpireat", &[Share]),
    ("+publish", &[Announce]),
    (
        "+evalsha",
        &[
            Connect,
            Fence,
            Share,
            TellRemaining,
            NameHolder,
            Extend,
            Release,
            ReleaseLater,
            Look,
            Break,
        ],
    ),
    ("+script|load", &[Connect]),
    ("+subscribe", &[Listen]),
    ("+unsubscribe", &[StopListening]),
    ("+info", &[Identify]),
    ("+client|tracking", &[HintLoss]),
    ("+client|caching", &[HintLoss]),
];

const REDISSON: &[Right] = &[
    ("~lock:*", &[Acquire]),
    ("&redisson_lock__channel:{lock:*", &[Listen, Announce]),
    ("+get", &[Fence]),
    ("+set", &[Fence]),
    ("+time", &[Fence, WatchClock]),
    ("+hset", &[Connect, Acquire]),
    ("+hscan", &[NameHolder]),
    ("+hlen", &[Look, Break]),
    ("+hgetall", &[Look, Break]),
    ("+hexists", &[Connect, Refuse, Extend, Release, ReleaseLater]),
    ("+exists", &[Connect, Acquire]),
    ("+del", &[Connect, Release, Break]),
    ("+pexpire", &[Connect, Acquire]),
    ("+pttl", &[Connect, Refuse, Extend, ReleaseLater, Look, Break]),
    ("+publish", &[Announce]),
    ("+evalsha", &[Connect, Acquire]),
    ("+script|load", &[Connect]),
    ("+subscribe", &[Listen]),
    ("+unsubscribe", &[StopListening]),
    ("+info", &[Identify]),
    ("+client|tracking", &[HintLoss]),
    ("+client|caching", &[HintLoss]),
];

fn rights(dialect: Dialect) -> &'static [Right] {
    match dialect {
        Dialect::Redisson => REDISSON,
        _ => PLAIN,
    }
}

/// Returns the rules of a line of the page: for each dialect, and for fair locks in addition.
fn listed(line: usize) -> BTreeSet<&'static str> {
    let mut lines = PAGE.lines().filter(|line| line.trim().starts_with("ACL SETUSER app"));
    let words = lines.nth(line).unwrap().split_whitespace();
    words.filter(|word| word.starts_with(['~', '&', '+'])).collect()
}

/// A server whose user `app` has all rights that a dialect needs, except the missing ones.
struct Restricted {
    dialect: Dialect,
    rules: BTreeSet<&'static str>,
    /// The name of the first command that is not permitted.
    missing: &'static str,
    server: RedisServer,
    probe: Probe,
    logs: Logs,
}

/// Returns the value of an operation. If the server did not permit the operation, checks its error and returns `None`.
macro_rules! permitted {
    ($restricted:ident, $error:ident, $result:expr) => {
        match $result {
            Ok(value) => Some(value),
            Err($error::Unavailable { votes, .. }) => {
                $restricted.assert_not_permitted(&votes);
                None
            }
            Err(error) => panic!("{error}"),
        }
    };
}

impl Restricted {
    async fn start(dialect: Dialect, missing: &[&'static str]) -> Self {
        let rules = rights(dialect).iter().map(|(rule, _)| *rule).collect();
        Self::start_with(dialect, rules, missing).await
    }

    /// Starts a server for a user with the rights of fair locks, too.
    async fn start_fair(dialect: Dialect, missing: &[&'static str]) -> Self {
        let rules = rights(dialect).iter().map(|(rule, _)| *rule).chain(listed(2)).collect();
        Self::start_with(dialect, rules, missing).await
    }

    async fn start_with(
        dialect: Dialect,
        rules: BTreeSet<&'static str>,
        missing: &[&'static str],
    ) -> Self {
        let logs = Logs::collect();
        redlock_logs::remember_password("s3cret");
        let server = RedisServer::start().await;
        let probe = server.probe().await;
        let mut restricted = Self { dialect, rules, missing: "", server, probe, logs };
        restricted.revoke(missing).await;
        restricted
    }

    /// Starts a server, and connects its user. Then revokes these rights.
    async fn start_and_revoke(
        dialect: Dialect,
        missing: &[&'static str],
    ) -> (Self, LockManager, LockManager) {
        let mut restricted = Self::start(dialect, &[]).await;
        let (locks, stranger) = (restricted.manager().await, restricted.manager().await);
        restricted.revoke(missing).await;
        (restricted, locks, stranger)
    }

    /// Gives the user all rights except these.
    async fn revoke(&mut self, missing: &[&'static str]) {
        // Redis 6.2 permits all channels by default.
        let mut user = vec!["ACL", "SETUSER", "app", "reset", "resetchannels", "on", ">s3cret"];
        user.extend(self.rules.iter().filter(|rule| !missing.contains(rule)));
        self.probe.command::<()>(&user).await;
        let missing = missing.first().and_then(|rule| rule.strip_prefix('+')).unwrap_or_default();
        // The errors of Redis 6.2 do not name the subcommand.
        self.missing = missing.split('|').next().unwrap_or_default();
    }

    fn builder(&self) -> LockManagerBuilder {
        let url = self.server.url_at("app:s3cret@127.0.0.1");
        crate::builder([url]).prefix(PREFIX).dialect(self.dialect)
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
        self.logs.count("WARN", words) > 0
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

    /// Returns the channels to which anybody has subscribed.
    async fn channels(&mut self) -> Vec<String> {
        self.probe.command(["PUBSUB", "CHANNELS"]).await
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

    /// Returns the locks on the server. Checks that no key but a fencing counter stays for ever: a script's effects stay
    /// when it fails (every lock has a deadline).
    async fn locks(&mut self) -> Vec<String> {
        let mut locks = self.probe.keys().await;
        locks.retain(|key| !key.contains(":fencing"));
        for lock in &locks {
            let left: i64 = self.probe.command(["PTTL", lock]).await;
            assert_ne!(left, -1, "without {}, {lock} stays for ever", self.missing);
        }
        locks
    }

    /// Tries every operation, and returns the operations that fail without this right.
    async fn lacks(&mut self, rule: &'static str) -> BTreeSet<Ability> {
        let mut lacking = BTreeSet::new();
        let connected = self.builder().connect().await;
        let (locks, stranger) = if let Some(locks) = permitted!(self, ConnectError, connected) {
            (locks, self.manager().await)
        } else {
            lacking.insert(Connect);
            self.revoke(&[]).await;
            let connected = (self.manager().await, self.manager().await);
            self.revoke(&[rule]).await;
            connected
        };
        if self.has_warned("may not publish releases") {
            lacking.insert(Announce);
        }
        if self.has_warned("run_id of the server is unknown") {
            assert!(self.has_warned("'info'"), "the words of the server: {:?}", self.logs.lines());
            lacking.insert(Identify);
        }
        if self.has_warned("time of the server is unknown") {
            lacking.insert(WatchClock);
        }
        let request = |locks: &LockManager| locks.lock(KEY).expire(LONG / 2);
        if permitted!(self, LockError, request(&locks).try_acquire().await).is_none() {
            assert_eq!(self.locks().await, [""; 0]);
            lacking.insert(Acquire);
            return lacking;
        }
        self.clear().await;

        if permitted!(self, LockError, request(&locks).fenced(true).try_acquire().await).is_none() {
            eventually("no lock is left", SOON, async || {
                self.locks().await.is_empty().then_some(())
            })
            .await;
            lacking.insert(Fence);
        }
        self.clear().await;

        let guard = request(&locks).try_acquire().await.unwrap();
        match request(&stranger).try_acquire().await.unwrap_err() {
            LockError::Contended { remaining, votes, .. } => {
                if remaining.is_none() {
                    lacking.insert(TellRemaining);
                }
                if votes.iter().all(|(_, vote)| vote.and_then(Vote::holder).is_none()) {
                    lacking.insert(NameHolder);
                }
            }
            LockError::Unavailable { votes, .. } => {
                self.assert_not_permitted(&votes);
                lacking.insert(Refuse);
            }
            error => panic!("{error}"),
        }
        match permitted!(self, HoldError, guard.extend(LONG).await) {
            Some(()) => assert!(guard.remaining() > LONG / 2),
            None => drop(lacking.insert(Extend)),
        }
        assert!(guard.is_valid());
        match permitted!(self, ReleaseError, guard.release().await) {
            Some(()) => assert_eq!(self.locks().await, [""; 0]),
            None => drop(lacking.insert(Release)),
        }
        self.clear().await;

        let guard = request(&locks).min_hold(SOON).try_acquire().await.unwrap();
        match permitted!(self, ReleaseError, guard.release().await) {
            Some(()) => assert!(self.probe.time_to_live(LOCK).await.unwrap() <= SOON),
            None => drop(lacking.insert(ReleaseLater)),
        }
        self.clear().await;

        if !lacking.contains(&Extend) {
            let guard = request(&locks).try_acquire().await.unwrap();
            drop(guard.lost());
            // The replies to the commands of the hints precede this one.
            guard.extend(LONG).await.unwrap();
            if self.logs.count("DEBUG", "does not track keys") > 0 {
                lacking.insert(HintLoss);
            }
            drop(guard);
            self.clear().await;
        }

        lacking.extend(self.operator_lacks(&locks, &stranger).await);
        if self.dialect == Dialect::Plain {
            lacking.extend(self.sharing_lacks(&locks, &stranger).await);
            self.clear().await;
        }
        if !lacking.contains(&Refuse) {
            lacking.extend(self.waiting_lacks(&locks, &stranger).await);
        }
        lacking
    }

    /// Tries to look at the holder of an exclusive and of a shared lock, and to break it.
    async fn operator_lacks(
        &mut self,
        locks: &LockManager,
        stranger: &LockManager,
    ) -> BTreeSet<Ability> {
        let mut lacking = BTreeSet::new();
        let admin = crate::builder([self.server.url()]).prefix(PREFIX).dialect(self.dialect);
        let admin = admin.connect().await.unwrap();
        let modes = if self.dialect == Dialect::Plain { &[false, true][..] } else { &[false] };
        for shared in modes {
            let request = locks.lock(KEY).expire(LONG).shared(*shared);
            let Some(guard) = permitted!(self, LockError, request.try_acquire().await) else {
                continue;
            };
            let seen = admin.status(KEY).await.unwrap();
            let asked = permitted!(self, StatusError, stranger.status(KEY).await);
            match asked {
                Some(asked) => assert_eq!(asked.holders()[0].id(), seen.holders()[0].id()),
                None => drop(lacking.insert(Look)),
            }
            let broken = stranger.break_lock(KEY, &seen.holders()[0]).await;
            if permitted!(self, BreakError, broken).is_some() {
                assert!(admin.status(KEY).await.unwrap().holders().is_empty());
            } else {
                assert_eq!(admin.status(KEY).await.unwrap().holders().len(), 1);
                lacking.insert(Break);
            }
            guard.keep_until_expiry();
            self.clear().await;
        }
        lacking
    }

    /// Tries the operations on shared locks.
    async fn sharing_lacks(&mut self, locks: &LockManager, stranger: &LockManager) -> Vec<Ability> {
        let mut lacking = Vec::new();
        let request = |locks: &LockManager| locks.lock(KEY).expire(LONG);
        for shared in [request(locks).permits(3), request(locks).shared(true)] {
            let Some(guard) = permitted!(self, LockError, shared.clone().try_acquire().await)
            else {
                assert_eq!(self.locks().await, [""; 0]);
                return vec![Share];
            };
            let beside = shared.try_acquire().await.unwrap();
            if permitted!(self, HoldError, guard.extend(LONG * 2).await).is_none() {
                lacking.push(ExtendShared);
            }
            assert!(guard.is_valid());
            let refused = request(stranger).try_acquire().await.unwrap_err();
            assert!(refused.is_contended(), "{refused}");
            let released = permitted!(self, ReleaseError, guard.release().await);
            let last = permitted!(self, ReleaseError, beside.release().await);
            if released.and(last).is_some() {
                assert_eq!(self.locks().await, [""; 0]);
            } else {
                lacking.push(StopSharing);
            }
            self.clear().await;
        }
        let exclusive = request(locks).try_acquire().await.unwrap();
        match request(stranger).shared(true).try_acquire().await.unwrap_err() {
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
            assert!(!refused || self.has_warned("channel="), "{:?}", self.logs.lines());
            if self.channels().await.is_empty() { refused.then_some(false) } else { Some(true) }
        });
        if !listens.await {
            lacking.push(Listen);
        }
        let (published, _) = self.calls("publish").await;
        if guard.release().await.is_err() {
            // Without the right to release the lock, its lease runs out.
            self.probe.command::<()>(["PEXPIRE", LOCK, "1"]).await;
        } else if self.calls("publish").await.0 == published {
            lacking.push(Announce);
        }
        let guard = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
        drop(guard);
        let stops =
            eventually("the waiter's channel is given up, or cannot be", SOON, async || {
                if self.channels().await.is_empty() {
                    Some(true)
                } else {
                    (self.calls("unsubscribe").await.1 > 0).then_some(false)
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
    assert_eq!(Restricted::start(dialect, &[]).await.lacks("").await, BTreeSet::new());
    for (rule, lacking) in rights(dialect) {
        let found = Restricted::start(dialect, &[rule]).await.lacks(rule).await;
        assert_eq!(found, lacking.iter().copied().collect(), "without {rule}");
    }
}

#[test]
fn the_production_page_lists_these_rights() {
    for (line, dialect) in DIALECTS.into_iter().enumerate() {
        let needed: BTreeSet<_> = rights(dialect).iter().map(|(rule, _)| *rule).collect();
        assert_eq!(listed(line), needed, "{dialect:?}");
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

/// No fair caller gets a lock without its order, and no queue stays for ever. A ticket is removed with `ZREM`, and the
/// tickets of a killed process are found with `ZRANGE`: later than an acquisition.
#[tokio::test]
async fn without_a_right_a_fair_acquisition_fails_and_names_the_command() {
    for missing in ["+zadd", "+zrangebyscore", "+zscore", "+pexpireat", "+time"] {
        let mut restricted = Restricted::start_fair(Dialect::Plain, &[missing]).await;
        let request = restricted.manager().await.lock(KEY).fair(true).wait_time(SOON);
        let error = request.acquire().await.unwrap_err();
        restricted.assert_not_permitted(error.votes().unwrap());
        restricted.locks().await;
    }
}

/// Two processes wait. Without its channel a process is not notified, and asks whether it is next.
#[tokio::test]
async fn the_listed_rights_are_enough_for_fair_locks_and_the_channel_is_not_needed() {
    for dialect in DIALECTS {
        for missing in
            [&[][..], &["&lock:*", "&lock:redlock:fair*"], &["+publish"], &["+subscribe"]]
        {
            let restricted = Restricted::start_fair(dialect, missing).await;
            let (here, there) = (restricted.manager().await, restricted.manager().await);
            let holder = here.lock(KEY).try_acquire().await.unwrap();
            let callers = [&here, &there, &here, &there].map(|locks| {
                let request = locks.lock(KEY).expire(LONG).fair(true).wait_time(SOON);
                tokio::spawn(async { request.acquire().await.unwrap().release().await.unwrap() })
            });
            holder.release().await.unwrap();
            for caller in callers {
                caller.await.unwrap();
            }
        }
    }
}

/// A script's effects stay when it fails, and without `DEL` they could not be undone either (every lock has a
/// deadline).
#[tokio::test]
async fn without_pexpire_and_del_no_lock_is_left_without_a_deadline() {
    for dialect in DIALECTS {
        let revoked = ["+pexpire", "+del"];
        let (mut restricted, locks, _) = Restricted::start_and_revoke(dialect, &revoked).await;
        if restricted.is_older_than("7.0").await && dialect == Dialect::Redisson {
            return skip("this server cannot say beforehand what is not permitted");
        }
        let request = || locks.lock(KEY).expire(SOON);
        for is_fenced in [false, true] {
            let attempt = request().fenced(is_fenced).try_acquire().await;
            let guard = permitted!(restricted, LockError, attempt);
            // The plain dialect acquires with `SET` alone, and needs neither command until the release.
            assert_eq!(guard.is_some(), dialect == Dialect::Plain);
            assert_eq!(restricted.locks().await.is_empty(), dialect == Dialect::Redisson);
            if let Some(guard) = guard {
                guard.keep_until_expiry();
            }
            restricted.clear().await;
        }
    }
}

fn set(locks: &LockManager) -> LockRequest {
    locks.lock_all(["order:42", "order:43"]).expire(LONG).wait_time(SOON)
}

/// A script that lacks a right leaves no key half done.
#[tokio::test]
async fn a_lock_of_several_keys_needs_the_rights_of_a_plain_lock() {
    let mut restricted = Restricted::start(Dialect::Plain, &[]).await;
    let (one, other) = (restricted.manager().await, restricted.manager().await);
    let guard = set(&one).fenced(true).acquire().await.unwrap();
    let waiting = tokio::spawn(set(&other).min_hold(Duration::from_millis(20)).acquire());
    guard.extend(LONG * 2).await.unwrap();
    eventually("the waiter listens", SOON, async || {
        restricted.channels().await.contains(&LOCK.to_owned()).then_some(())
    })
    .await;
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();

    for missing in ["+set", "+get", "+evalsha"] {
        drop(restricted);
        let locks;
        (restricted, locks, _) = Restricted::start_and_revoke(Dialect::Plain, &[missing]).await;
        let error = set(&locks).acquire().await.unwrap_err();
        restricted.assert_not_permitted(error.votes().unwrap());
        assert_eq!(restricted.locks().await, [""; 0], "{missing}");
    }
}

/// A reader that several writers have passed asks for a turn, for which the server has to be asked for its time. The
/// lock is free by then.
#[tokio::test]
async fn a_release_succeeds_although_the_turn_of_the_readers_is_not_permitted() {
    for missing in [&[][..], &["+time"], &["+zadd"], &["+pexpireat"]] {
        let mut restricted = Restricted::start(Dialect::Plain, missing).await;
        let client = redis::Client::open(restricted.server.url()).unwrap();
        let mut reader = client.get_async_pubsub().await.unwrap();
        reader.subscribe(&[LOCK, &format!("{LOCK}:readers")]).await.unwrap();
        let locks = restricted.manager().await;
        for is_set in [false, true] {
            let (zadd, pexpireat) =
                (restricted.calls("zadd").await.0, restricted.calls("pexpireat").await.0);
            if is_set {
                let set = locks.lock_all([KEY, "order:43"]).wait_time(SOON);
                set.acquire().await.unwrap().release().await.unwrap();
            } else {
                locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
            }
            if missing.is_empty() {
                let turns =
                    (restricted.calls("zadd").await.0, restricted.calls("pexpireat").await.0);
                assert_eq!(turns, (zadd + 1, pexpireat + 1));
                eventually("the turn is over", SOON, async || {
                    restricted.locks().await.is_empty().then_some(())
                })
                .await;
            }
            assert_eq!(restricted.locks().await, [""; 0], "without {missing:?}, set: {is_set}");
        }
    }
}

/// A downgrade removes the exclusive lock before it adds the shared one.
#[tokio::test]
async fn a_downgrade_that_is_not_permitted_leaves_the_lock_exclusive() {
    for missing in ["+zadd", "+pexpireat", "+time"] {
        let mut restricted = Restricted::start(Dialect::Plain, &[missing]).await;
        let locks = restricted.manager().await;
        let guard = locks.lock(KEY).expire(LONG).try_acquire().await.unwrap();
        let error = guard.downgrade().await.unwrap_err();
        restricted.assert_not_permitted(error.votes().unwrap());
        let kind: String = restricted.probe.command(["TYPE", LOCK]).await;
        assert_eq!(kind, "string", "without {missing}");
        assert_eq!(restricted.locks().await, [LOCK]);
        guard.release().await.unwrap();
        assert_eq!(restricted.locks().await, [""; 0]);
    }
}

/// The rights of one application give no access to the locks of another application.
#[tokio::test]
async fn other_prefixes_are_out_of_reach() {
    for dialect in DIALECTS {
        let restricted = Restricted::start(dialect, &[]).await;
        for prefix in ["", "shop:", "loc"] {
            let locks = restricted.builder().prefix(prefix).connect().await.unwrap();
            let error = locks.lock(KEY).try_acquire().await.unwrap_err();
            restricted.assert_not_permitted(error.votes().unwrap());
            let diagnostics = error.diagnostics().to_string();
            assert!(diagnostics.contains("key"), "{diagnostics}");
        }
    }
}

/// Redisson adds no braces to a key that has braces, so the name of its channel begins differently.
#[tokio::test]
async fn a_key_with_braces_has_its_own_channel_in_the_redisson_dialect() {
    let mut restricted = Restricted::start(Dialect::Redisson, &[]).await;
    let rule = ["ACL", "SETUSER", "app", "&redisson_lock__channel:lock:*"];
    restricted.probe.command::<()>(rule).await;
    let (one, other) = (restricted.manager().await, restricted.manager().await);
    let guard = one.lock("{order}:42").expire(LONG).try_acquire().await.unwrap();
    let waiting = tokio::spawn(other.lock("{order}:42").wait_forever().acquire());
    eventually("the waiter listens", SOON, async || {
        (restricted.channels().await == ["redisson_lock__channel:lock:{order}:42"]).then_some(())
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
    let mut restricted = Restricted::start(Dialect::Plain, &[]).await;
    let url = format!("{}/3", restricted.server.url_at("app:s3cret@127.0.0.1"));
    let builder = || crate::builder([&url]).prefix(PREFIX);
    let error = builder().connect().await.unwrap_err();
    assert!(error.to_string().contains("not permitted"), "{error}");
    assert!(error.to_string().contains("select"), "{error}");
    restricted.probe.command::<()>(["ACL", "SETUSER", "app", "+select"]).await;
    let locks = builder().connect().await.unwrap();
    locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
}
