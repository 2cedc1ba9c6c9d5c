//! Status and break on servers with values of every kind, and the costs of a label.

use std::collections::BTreeMap;

use redlock_core::node::FoundKind;
use redlock_core::{BreakError, Dialect, ForeignKind, KeyState, LockManager, LockStatus, Vote};
use redlock_tests::{Logs, Probe, Servers, find_secret};

use super::kind::{ALL, Kind};
use super::{LONG, builder, connect, start};

const KEY: &str = "order:42";
/// A part of each value of another program.
const SECRET: &str = "open-sesame";
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

async fn labelled(servers: &Servers, label: &str) -> LockManager {
    builder(servers.urls()).owner_label(label).connect().await.unwrap()
}

async fn status(locks: &LockManager, dialect: Dialect) -> LockStatus {
    locks.status(KEY).dialect(dialect).await.unwrap()
}

/// The status reads no member, so that no break can name a holder.
#[tokio::test]
async fn a_value_that_is_no_lock_is_foreign_and_has_no_holders() {
    use ForeignKind::{NoTimeToLive, TimeToLiveTooLong, TooManyHolders, WrongType};
    let (servers, locks) = start(1).await;
    let mut probe = servers[0].probe().await;
    let fill = |command: &str| {
        format!(
            "for batch = 0, 999 do local words = {{}} \
             for index = 1, 1000 do words[2 * index - 1] = {command}; \
             words[2 * index] = '{SECRET}' .. batch * 1000 + index end "
        )
    };
    let set = fill("9999999999999") + "redis.call('ZADD', KEYS[1], unpack(words)) end ";
    let shared = set.clone()
        + "redis.call('ZADD', KEYS[1], 0, 'shared') redis.call('PEXPIRE', KEYS[1], 300000)";
    let hash = fill("'1' .. batch * 1000 + index")
        + "redis.call('HSET', KEYS[1], unpack(words)) end redis.call('PEXPIRE', KEYS[1], 300000)";
    let secret = format!("{SECRET}@x/1234567890");
    let value = format!("{TOKEN}@shop/1234567890");
    // The finding of the plain dialect, and of that of Redisson.
    for (command, plain, redisson) in [
        (&["SET", KEY, &secret][..], NoTimeToLive, WrongType),
        (&["SET", KEY, &value], NoTimeToLive, WrongType),
        (&["SET", KEY, &secret, "PX", "777600000"], TimeToLiveTooLong, WrongType),
        (&["RPUSH", KEY, &secret], WrongType, WrongType),
        (&["SADD", KEY, &secret], WrongType, WrongType),
        (&["HSET", KEY, &secret, "1"], WrongType, NoTimeToLive),
        (&["HSET", KEY, &secret, "1", "other", "1"], WrongType, WrongType),
        (&["ZADD", KEY, "9999999999999", &secret], WrongType, WrongType),
        (&["ZADD", KEY, "0", "shared", "9999999999999", &secret], NoTimeToLive, WrongType),
        (&["EVAL", &set, "1", KEY], WrongType, WrongType),
        (&["EVAL", &shared, "1", KEY], TooManyHolders, WrongType),
        (&["EVAL", &hash, "1", KEY], WrongType, WrongType),
    ] {
        probe.command::<redis::Value>(command).await;
        let before: u64 = probe.command(["MEMORY", "USAGE", KEY]).await;
        probe.reset_calls().await;
        for (dialect, found) in [(Dialect::Plain, plain), (Dialect::Redisson, redisson)] {
            let seen = status(&locks, dialect).await;
            let what = &command[..2];
            let kind = seen.nodes()[0].found().map(|found| found.kind);
            assert_eq!(kind, Some(FoundKind::Foreign(found)), "{what:?} {dialect:?}");
            assert_eq!((seen.state(), seen.holders().len()), (KeyState::Foreign, 0), "{what:?}");
            let text = format!("{seen:?}{seen:#?}");
            assert!(!text.contains(SECRET), "{what:?} {dialect:?}: {text}");
            assert_eq!(find_secret(&text), None, "{what:?} {dialect:?}");
        }
        if command[0] == "EVAL" {
            assert_eq!(probe.calls().await.get("hgetall"), None);
        }
        assert_eq!(probe.command::<u64>(["MEMORY", "USAGE", KEY]).await, before);
        probe.command::<()>(["DEL", KEY]).await;
    }
}

/// Other programs may have any text at a key that ends. No part of it is a label, unless it has the form of one of this library.
#[tokio::test]
async fn no_part_of_the_value_of_another_library_is_shown() {
    let logs = Logs::collect();
    let (servers, locks) = start(1).await;
    let mut probe = servers[0].probe().await;
    let values = [
        SECRET.to_owned(),
        format!("{SECRET}@x/1234567890"),
        format!("{TOKEN}{SECRET}@x/1234567890"),
        format!("{TOKEN}@{SECRET}"),
        format!("{TOKEN}@{SECRET}/123456789"),
        format!("{TOKEN}@{SECRET}/12345678901"),
        format!("{TOKEN}@{SECRET} b/1234567890"),
        format!("{TOKEN}@{}{SECRET}/1234567890", "x".repeat(60)),
        format!("{}@{SECRET}/1234567890", TOKEN.to_uppercase()),
        format!("{TOKEN}@{SECRET}\u{e9}/1234567890"),
        format!("{TOKEN}@{SECRET}/1234567890\n"),
        TOKEN.to_owned(),
    ];
    // An entry of this library begins with `r:` or `p:`.
    let labelled = format!("{TOKEN}@{SECRET}/1234567890");
    let entries = values.iter().map(|value| format!("r:{value}"));
    let entries = entries.chain(["x:", "rp", "r", ""].map(|begin| format!("{begin}{labelled}")));
    let exclusive = values.iter().map(|value| (value.clone(), false));
    let all: Vec<_> = exclusive.chain(entries.map(|entry| (entry, true))).collect();
    for (value, is_shared) in &all {
        if *is_shared {
            let till = "redis.call('TIME')[1] * 1000 + 300000";
            share(&mut probe, till, value).await;
        } else {
            probe.command::<()>(["SET", KEY, value, "PX", "300000"]).await;
        }
        let refused = locks.lock(KEY).try_acquire().await.unwrap_err();
        assert_eq!(refused.holder(), None);
        let seen = status(&locks, Dialect::Plain).await;
        let [holder] = seen.holders() else { panic!("{} bytes: {seen:?}", value.len()) };
        assert_eq!((holder.label(), holder.since()), (None, None));
        let broken = locks.break_lock(KEY, holder).await.unwrap();
        let again = locks.break_lock(KEY, holder).await.unwrap_err();
        assert!(matches!(again, BreakError::NotHeld { .. }), "{again:?}");
        assert_eq!(probe.keys().await, [""; 0]);
        let text = format!(
            "{refused:?}{refused}{}{seen:?}{broken:?}{}{again:?}{again}",
            refused.diagnostics(),
            broken.votes(),
        );
        for text in std::iter::once(text).chain(logs.lines()) {
            assert!(!text.contains(SECRET), "{text}");
            assert_eq!(find_secret(&text), None, "{} bytes", value.len());
        }
    }
    assert_eq!(logs.count("WARN", "an operator breaks a lock"), 2 * all.len());
}

/// Writes a shared lock with one entry, whose end is this expression, for five minutes.
async fn share(probe: &mut Probe, till: &str, entry: &str) {
    let script = format!(
        "redis.call('ZADD', KEYS[1], 0, 'shared', {till}, ARGV[1]) \
         return redis.call('PEXPIRE', KEYS[1], 300000)"
    );
    probe.command::<u64>(["EVAL", &script, "1", KEY, entry]).await;
}

/// Another program may write any score. Each answer names the state, and none is unexpected.
#[tokio::test]
async fn an_entry_without_an_end_is_foreign() {
    let (servers, locks) = start(1).await;
    let mut probe = servers[0].probe().await;
    let is_foreign = |vote: Option<&Vote>| {
        matches!(vote, Some(Vote::Foreign { found: ForeignKind::TimeToLiveTooLong, .. }))
    };
    for till in ["'inf'", "'1e300'", "'9e15'"] {
        share(&mut probe, till, &format!("p:{TOKEN}")).await;
        for request in [locks.lock(KEY), locks.lock(KEY).shared(true), locks.lock(KEY).permits(1)] {
            let refused = request.expire(LONG).try_acquire().await.unwrap_err();
            let mut votes = refused.votes().unwrap().iter();
            assert!(votes.all(|(_, vote)| is_foreign(vote)), "{till}: {}", refused.diagnostics());
        }
        let seen = status(&locks, Dialect::Plain).await;
        assert_eq!((seen.state(), seen.holders().len()), (KeyState::Foreign, 0), "{till}");
        probe.command::<()>(["DEL", KEY]).await;

        // Beside another reader, the key lives as long as both.
        share(&mut probe, till, &format!("r:{TOKEN}")).await;
        let guard = locks.lock(KEY).shared(true).expire(LONG).try_acquire().await.unwrap();
        guard.extend(LONG * 2).await.unwrap();
        guard.release().await.unwrap();
        probe.command::<()>(["DEL", KEY]).await;
    }
}

/// Each call is a line, with the label, the key and the votes. The texts of locks with labels stay secret.
#[tokio::test]
async fn a_break_is_logged_with_the_label_and_without_the_token() {
    let logs = Logs::collect();
    let (servers, ops) = start(3).await;
    let shop = labelled(&servers, "shop-7f9c").await;
    let guard = shop.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    let token = String::from_utf8(servers[0].probe().await.get(KEY).await.unwrap()).unwrap();
    assert!(find_secret(&token).is_some());
    let seen = ops.status(KEY).await.unwrap();
    let broken = ops.break_lock(KEY, &seen.holders()[0]).await.unwrap();
    let again = ops.break_lock(KEY, &seen.holders()[0]).await.unwrap_err();
    let lines: Vec<_> = logs.lines().into_iter().filter(|line| line.contains("operator")).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    for words in ["shop-7f9c", KEY, "127.0.0.1"] {
        assert!(lines.iter().all(|line| line.contains(words)), "{words}: {lines:?}");
    }
    let lost = guard.extend(LONG).await.unwrap_err();
    let texts = [
        format!("{seen:?}"),
        format!("{seen:#?}"),
        format!("{broken:?}{}", broken.votes()),
        format!("{again:?}{again}"),
        format!("{lost:?}{lost}{guard:?}{shop:?}"),
    ];
    for text in texts.into_iter().chain(logs.lines()) {
        assert_eq!(find_secret(&text), None, "{text}");
    }
}

/// What a server has got for a grant, a refusal, an extension and a release of each kind of lock.
#[derive(Debug, PartialEq, Eq)]
struct Costs {
    /// How often it has executed each command.
    commands: BTreeMap<String, u64>,
    /// How often it has read from its clients for each step. They send nothing before the reply to the step before, so these
    /// are round trips.
    reads: BTreeMap<String, [u64; 4]>,
}

const ROUNDS: usize = 10;

async fn costs(servers: &Servers, probe: &mut Probe, label: &str) -> Costs {
    let (locks, stranger) = (labelled(servers, label).await, labelled(servers, label).await);
    // The first lock of a connection may cost more.
    Kind::Plain.acquire(&locks).await.unwrap().release().await.unwrap();
    let mut costs = Costs { commands: BTreeMap::new(), reads: BTreeMap::new() };
    for kind in ALL {
        probe.reset_calls().await;
        let mut least = [u64::MAX; 4];
        for _ in 0..ROUNDS {
            let mut reads = vec![probe.reads().await];
            let guard = kind.acquire(&locks).await.unwrap();
            reads.push(probe.reads().await);
            assert!(kind.acquire(&stranger).await.unwrap_err().is_contended());
            reads.push(probe.reads().await);
            guard.extend(LONG * 2).await.unwrap();
            reads.push(probe.reads().await);
            guard.release().await.unwrap();
            reads.push(probe.reads().await);
            // Background work of the connections only adds reads.
            for (least, reads) in least.iter_mut().zip(reads.windows(2)) {
                *least = (*least).min(reads[1] - reads[0] - 1);
            }
        }
        costs.reads.insert(format!("{kind:?}"), least);
        for (command, calls) in probe.calls().await {
            // Background work of the connections.
            if !["info", "time", "ping", "command"].contains(&command.as_str()) {
                costs.commands.insert(format!("{kind:?} {command}"), calls);
            }
        }
    }
    costs
}

#[tokio::test]
async fn a_label_costs_no_command_and_no_round_trip() {
    let (servers, _) = start(1).await;
    let mut probe = servers[0].probe().await;
    let without = costs(&servers, &mut probe, "off").await;
    assert_eq!(without.commands["Plain set"], 2 * ROUNDS as u64, "{without:?}");
    // An extension, the look-up of the refusal, and the release if the server has no command for it.
    let scripts = if probe.has_command("DELIFEQ").await { 2 } else { 3 };
    assert_eq!(without.commands["Plain evalsha"], scripts * ROUNDS as u64, "{without:?}");
    // A refusal is a `SET` and a script.
    assert_eq!(without.reads["Plain"], [1, 2, 1, 1], "{without:?}");
    for label in ["shop-7f9c:4121", &"#@/%".repeat(16)] {
        assert_eq!(costs(&servers, &mut probe, label).await, without);
    }
}

/// The hash of another program may be long, and its fields may be secrets.
#[tokio::test]
async fn a_holder_of_redisson_is_shown_without_its_owner() {
    let (servers, _) = start(1).await;
    let locks = builder(servers.urls()).dialect(Dialect::Redisson).connect().await.unwrap();
    let plain = connect(servers.urls()).await;
    let mut probe = servers[0].probe().await;
    let owner = "67e55044-10b1-426f-9247-bb680e5fe0c8:12";
    probe.command::<()>(["HSET", KEY, owner, "2"]).await;
    probe.command::<()>(["PEXPIRE", KEY, "300000"]).await;
    let seen = locks.status(KEY).await.unwrap();
    let [holder] = seen.holders() else { panic!("one holder") };
    assert_eq!((seen.state(), holder.label(), holder.since()), (KeyState::Exclusive, None, None));
    assert_eq!(find_secret(&format!("{seen:?}")), None);
    // The manager of another dialect breaks the holder, because the status has said which one it is.
    let broken = plain.break_lock(KEY, holder).await.unwrap();
    assert!(broken.may_be_valid_for().unwrap() > LONG / 2);
    assert_eq!(probe.keys().await, [""; 0]);
}
