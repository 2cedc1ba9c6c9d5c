//! Releases and acquisitions by commands of newer servers, and what follows if a server, or a proxy, replies otherwise.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::encode::NativeCommand;
use super::played_node::{HELD, LEASE, PlayedCluster, PlayedNode, RELEASE, call, spec};
use super::server::native::NativeCommands;
use super::server::played_server::serve;
use crate::error::{ForeignKind, NodeError, Vote};
use crate::key::LockKey;
use crate::lock::{Dialect, Keys, LockSpec, Mode, Token};
use crate::node::{Action, Ask, Node, Op, Reply};

const BOTH: [NativeCommand; 2] = [NativeCommand::DelIfEq, NativeCommand::DelEx];
/// The last words of the commands in place of the script.
const PUBLISH: &str = "$7\r\nPUBLISH\r\n$8\r\norder:42\r\n$1\r\n0\r\n";

fn played(delete: NativeCommand) -> PlayedNode {
    let mut played = PlayedNode::new(LEASE);
    played.connect_with_native(NativeCommands::only(Some(delete), false));
    played
}

fn agreed(subscribers: usize) -> Reply {
    Reply::new(Vote::Agreed).with_subscribers(subscribers)
}

impl PlayedNode {
    /// Releases a lock. The server gets commands with these words, and sends these replies.
    async fn release(&mut self, steps: &[(&str, &str)]) -> Reply {
        self.call(&spec(), RELEASE, steps).await
    }

    async fn call(&mut self, spec: &LockSpec, release: Action, steps: &[(&str, &str)]) -> Reply {
        let op = Op::new(spec, Token::random(spec.dialect()), release);
        let (reply, server) = (self.node.call(op), &mut self.server);
        let play = async {
            for (words, reply) in steps {
                serve(server, words, reply, || {}).await;
            }
        };
        let both = async { tokio::join!(reply, play).0 };
        timeout(LEASE, both).await.unwrap_or_else(|_| panic!("{steps:?}"))
    }
}

/// The caller waits for one round trip, and the server needs no script.
#[tokio::test(start_paused = true)]
async fn a_release_is_two_commands_in_one_write() {
    for (delete, begin) in [
        (NativeCommand::DelIfEq, "*3\r\n$7\r\nDELIFEQ\r\n$8\r\norder:42\r\n$32\r\n"),
        (NativeCommand::DelEx, "*4\r\n$5\r\nDELEX\r\n$8\r\norder:42\r\n$4\r\nIFEQ\r\n$32\r\n"),
    ] {
        let mut played = played(delete);
        let op = Op::new(&spec(), Token::random(Dialect::Plain), RELEASE);
        let (reply, mut bytes) = (played.node.call(op.clone()), vec![0; 1024]);
        let play = async {
            let count = played.server.read(&mut bytes).await.unwrap();
            played.server.write_all(b":1\r\n:0\r\n").await.unwrap();
            count
        };
        let (reply, count) = timeout(LEASE, async { tokio::join!(reply, play) }).await.unwrap();
        let expected = format!("{begin}{}\r\n*3\r\n{PUBLISH}", &*op.token.text());
        assert_eq!(std::str::from_utf8(&bytes[..count]).unwrap(), expected);
        assert_eq!(reply, agreed(0));
    }
}

/// The script finds out why: the lock has expired, another holder has it, or the key holds something else.
#[tokio::test(start_paused = true)]
async fn a_key_that_was_not_deleted_is_left_to_the_script() {
    let foreign = Vote::Foreign { found: ForeignKind::WrongType };
    for delete in BOTH {
        let mut played = played(delete);
        for (replies, by_script, expected) in [
            (":0\r\n:0\r\n", ":0\r\n", Reply::new(Vote::NotHeld)),
            (
                ":0\r\n:2\r\n",
                ":-1\r\n",
                Reply::new(Vote::Foreign { found: ForeignKind::NoTimeToLive }),
            ),
            ("-WRONGTYPE Operation against\r\n:0\r\n", ":-3\r\n", Reply::new(foreign.clone())),
            // Another command of the attempt has come meanwhile.
            (":0\r\n:0\r\n", ":1\r\n", agreed(0)),
        ] {
            let reply = played.release(&[(PUBLISH, replies), ("release", by_script)]).await;
            assert_eq!(reply, expected, "{delete:?} {replies}");
        }
        assert_eq!(played.release(&[(PUBLISH, ":1\r\n:0\r\n")]).await, agreed(0));
    }
}

/// The right is missing, the command is unknown or renamed, a proxy refuses it, or the reply is not that of the documentation.
#[tokio::test(start_paused = true)]
async fn a_refused_command_is_not_sent_again_over_its_connection() {
    let logs = redlock_logs::Logs::collect();
    for refusal in [
        "-NOPERM User app has no permissions to run the 'delifeq' command\r\n",
        "-ERR unknown command 'DELIFEQ', with args beginning with: 'order:42' \r\n",
        "-ERR wrong number of arguments for 'delex' command\r\n",
        "-DENIED by policy\r\n",
        "+OK\r\n",
        ":2\r\n",
        ":-1\r\n",
        "_\r\n",
        "#t\r\n",
        "$1\r\n1\r\n",
        "*1\r\n:1\r\n",
    ] {
        for delete in BOTH {
            let mut played = played(delete);
            let replies = format!("{refusal}:0\r\n");
            let first = played.release(&[(PUBLISH, &replies), ("release", ":1\r\n")]).await;
            assert_eq!(first, agreed(0), "{refusal}");
            assert_eq!(played.release(&[("release", ":1\r\n")]).await, agreed(0), "{refusal}");
            // The server was replaced, or the user has got the right.
            played.connect_with_native(NativeCommands::only(Some(delete), false));
            assert_eq!(played.release(&[(PUBLISH, ":1\r\n:0\r\n")]).await, agreed(0), "{refusal}");
        }
    }
    assert_eq!(logs.lines(), [""; 0]);
}

/// The state of the server passes, and another key, or another slot, is not concerned.
#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_delete_now_is_asked_again() {
    for error in [
        "WRONGTYPE",
        "MOVED",
        "ASK",
        "TRYAGAIN",
        "CLUSTERDOWN",
        "MASTERDOWN",
        "READONLY",
        "LOADING",
        "BUSY",
        "OOM",
        "MISCONF",
        "NOREPLICAS",
        "NOAUTH",
    ] {
        let mut played = played(NativeCommand::DelIfEq);
        let replies = format!("-{error} not now\r\n:0\r\n");
        let reply = played.release(&[(PUBLISH, &replies), ("release", ":1\r\n")]).await;
        assert_eq!(reply, agreed(0), "{error}");
        assert_eq!(played.release(&[(PUBLISH, ":1\r\n:0\r\n")]).await, agreed(0), "{error}");
    }
    let mut played = played(NativeCommand::DelIfEq);
    let steps = [(PUBLISH, "-OOM not now\r\n:0\r\n"), ("release", "-OOM no\r\n")];
    let reply = played.release(&steps).await;
    assert!(matches!(reply.vote, Vote::Failed(NodeError::Server(_))), "{reply:?}");
}

/// Readers that several writers have overtaken get their turn, as by the script. From then on the script does both in one step.
#[tokio::test(start_paused = true)]
async fn a_release_that_notifies_subscribers_is_followed_by_the_turn_of_the_readers() {
    let mut played = played(NativeCommand::DelIfEq);
    for turn in [":1\r\n", ":0\r\n", "-NOPERM no\r\n"] {
        assert_eq!(played.release(&[(PUBLISH, ":1\r\n:2\r\n"), ("turn", turn)]).await, agreed(2));
        // While anybody waits, the script.
        assert_eq!(played.release(&[("release", ":4\r\n")]).await, agreed(3));
        assert_eq!(played.release(&[("release", ":1\r\n")]).await, agreed(0));
    }
    assert_eq!(played.release(&[(PUBLISH, ":1\r\n:0\r\n")]).await, agreed(0));
}

/// The user may not publish.
#[tokio::test(start_paused = true)]
async fn a_denied_message_does_not_fail_the_release() {
    let mut played = played(NativeCommand::DelIfEq);
    for _ in 0..2 {
        let reply = played.release(&[(PUBLISH, ":1\r\n-NOPERM no\r\n")]).await;
        assert_eq!(reply, agreed(0));
    }
}

/// A refused caller may wait, and the clean-up of its attempt must not wake the waiters in vain.
#[tokio::test(start_paused = true)]
async fn a_refused_acquisition_is_released_by_the_script() {
    let mut played = played(NativeCommand::DelIfEq);
    let refused = serve(&mut played.server, "SET", "_\r\n", || {});
    let (refused, ()) = tokio::join!(call(&played.node, HELD), refused);
    assert!(matches!(refused.vote, Vote::Held { .. }), "{refused:?}");
    assert_eq!(played.release(&[("release", ":0\r\n")]).await.vote, Vote::NotHeld);
    assert_eq!(played.release(&[("release", ":1\r\n")]).await, agreed(0));
    assert_eq!(played.release(&[(PUBLISH, ":1\r\n:0\r\n")]).await, agreed(0));
}

#[tokio::test(start_paused = true)]
async fn other_releases_need_the_script() {
    let mut played = played(NativeCommand::DelIfEq);
    let key = |name| LockKey::new(name).unwrap();
    let one = |mode, dialect| LockSpec::new(key("order:42"), mode, dialect);
    let min_hold = Action::Release { min_hold: Some(Duration::from_secs(1)) };
    let permits = Mode::Shared { permits: std::num::NonZeroU32::new(3) };
    for (spec, release, words) in [
        (one(Mode::Exclusive, Dialect::Plain), min_hold, "release"),
        (one(Mode::SHARED, Dialect::Plain), RELEASE, "release"),
        (one(permits, Dialect::Plain), RELEASE, "release"),
        (one(Mode::Exclusive, Dialect::Redisson), RELEASE, "redisson/release"),
        (set(), RELEASE, "release"),
    ] {
        let reply = played.call(&spec, release, &[(words, ":1\r\n")]).await;
        assert_eq!(reply, agreed(0), "{spec:?}");
    }
}

/// The server has executed the commands, or only the first of them. The repetition publishes again.
#[tokio::test(start_paused = true)]
async fn a_release_whose_reply_is_lost_fails_and_its_repetition_publishes() {
    for arrived in ["", ":1\r\n"] {
        let mut played = played(NativeCommand::DelIfEq);
        let op = Op::new(&spec(), Token::random(Dialect::Plain), RELEASE);
        let release = played.node.call(op.clone());
        let play = async {
            serve(&mut played.server, PUBLISH, arrived, || {}).await;
            played.server = tokio::io::duplex(1).0;
        };
        let (reply, ()) = timeout(LEASE, async { tokio::join!(release, play) }).await.unwrap();
        assert!(matches!(reply.vote, Vote::Failed(NodeError::ConnectionBroke(_))), "{reply:?}");
        played.connect_with_native(NativeCommands::only(Some(NativeCommand::DelIfEq), false));
        let (again, server) = (played.node.call(op), &mut played.server);
        let play = async {
            serve(server, PUBLISH, ":0\r\n:1\r\n", || {}).await;
            serve(server, "release", ":0\r\n", || {}).await;
        };
        let (reply, ()) = timeout(LEASE, async { tokio::join!(again, play) }).await.unwrap();
        assert_eq!(reply.vote, Vote::NotHeld);
    }
}

/// A caller that is gone has not sent the commands, or has sent both.
#[tokio::test(start_paused = true)]
async fn a_release_that_is_dropped_before_it_is_sent_sends_nothing() {
    let mut played = played(NativeCommand::DelIfEq);
    let mut release = call(&played.node, RELEASE);
    assert!(futures_util::poll!(&mut release).is_pending());
    drop(release);
    assert_eq!(played.release(&[(PUBLISH, ":1\r\n:0\r\n")]).await, agreed(0));
}

/// The slot has moved, or is moving. `ASKING` would concern one of the two commands only.
#[tokio::test(start_paused = true)]
async fn a_release_of_a_slot_that_has_moved_is_left_to_the_script() {
    for (kind, by_other) in [("MOVED", ":1\r\n"), ("ASK", "+OK\r\n:1\r\n")] {
        let mut cluster = PlayedCluster::new();
        cluster.connect_with_native(NativeCommand::DelIfEq);
        let (release, redirect) = (cluster.call(RELEASE), cluster.redirect(kind));
        let [first, second] = &mut cluster.masters;
        let play = async {
            serve(first, PUBLISH, &format!("{redirect}:0\r\n"), || {}).await;
            serve(first, "release", &redirect, || {}).await;
            serve(second, "release", by_other, || {}).await;
        };
        let (reply, ()) = timeout(LEASE, async { tokio::join!(release, play) }).await.unwrap();
        assert_eq!(reply, agreed(0), "{kind}");
    }
}

/// The acquisition may be executed by the former owner of the slot.
#[tokio::test(start_paused = true)]
async fn a_release_without_a_script_follows_its_acquisition_to_both_masters() {
    let mut cluster = PlayedCluster::new();
    cluster.connect_with_native(NativeCommand::DelIfEq);
    let mut acquire = cluster.call(HELD);
    assert!(futures_util::poll!(&mut acquire).is_pending());
    cluster.move_slot();
    let mut release = cluster.call(RELEASE);
    assert!(futures_util::poll!(&mut release).is_pending());
    let [first, second] = &mut cluster.masters;
    let play = async {
        serve(second, PUBLISH, ":0\r\n:0\r\n", || {}).await;
        serve(second, "release", ":0\r\n", || {}).await;
        // The acquisition comes first on its connection.
        serve(first, "SET", "+OK\r\n:1\r\n:0\r\n", || {}).await;
    };
    let all = async { tokio::join!(acquire, release, play) };
    let (acquired, released, ()) = timeout(LEASE, all).await.unwrap();
    assert_eq!((acquired.vote, released.vote), (Vote::Agreed, Vote::Agreed));
}

fn set() -> LockSpec {
    let keys = Keys::collect(["a", "b"].map(LockKey::new)).unwrap();
    LockSpec::new(keys, Mode::Exclusive, Dialect::Plain)
}

fn acquire(fenced: bool, ask: Ask) -> Action {
    Action::Acquire { lease: LEASE, fenced, ask }
}

const SET: &str = "*9\r\n$6\r\nMSETEX\r\n$1\r\n2\r\n$1\r\na\r\n";

fn played_set() -> PlayedNode {
    let mut played = PlayedNode::new(LEASE);
    played.connect_with_native(NativeCommands::only(None, true));
    played
}

#[tokio::test(start_paused = true)]
async fn several_free_keys_are_acquired_by_one_command() {
    let mut played = played_set();
    let op = Op::new(&set(), Token::random(Dialect::Plain), acquire(false, Ask::FIRST));
    let (reply, mut bytes) = (played.node.call(op.clone()), vec![0; 1024]);
    let play = async {
        let count = played.server.read(&mut bytes).await.unwrap();
        played.server.write_all(b":1\r\n").await.unwrap();
        count
    };
    let (reply, count) = timeout(LEASE, async { tokio::join!(reply, play) }).await.unwrap();
    let text = op.token.text();
    let token = format!("$32\r\n{}\r\n", &*text);
    let expected = format!("{SET}{token}$1\r\nb\r\n{token}$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n30000\r\n");
    assert_eq!(std::str::from_utf8(&bytes[..count]).unwrap(), expected);
    assert_eq!(reply.vote, Vote::Agreed);
}

/// The script names the holder, and sets the keys if they were freed meanwhile, or if the token has some of them already.
#[tokio::test(start_paused = true)]
async fn the_script_follows_a_set_that_is_refused() {
    let ask = acquire(false, Ask::FIRST);
    for refusal in [":0\r\n", "-OOM no\r\n", "-ERR unknown command 'MSETEX'\r\n", "+OK\r\n"] {
        let mut played = played_set();
        let steps = [(SET, refusal), ("acquire", "+OK\r\n")];
        assert_eq!(played.call(&set(), ask, &steps).await.vote, Vote::Agreed, "{refusal}");
        let is_sent_again = matches!(refusal, ":0\r\n" | "-OOM no\r\n");
        let steps: &[_] = if is_sent_again { &[(SET, ":1\r\n")] } else { &steps[1..] };
        assert_eq!(played.call(&set(), ask, steps).await.vote, Vote::Agreed, "{refusal}");
    }
    let mut played = played_set();
    let steps = [(SET, ":0\r\n"), ("acquire", "*2\r\n:1\r\n:1500\r\n")];
    let held = Reply::new(Vote::held(Some(Duration::from_millis(1500)))).with_refused_key(1);
    assert_eq!(played.call(&set(), ask, &steps).await, held);
    // The refused key has a holder, until a release finds that nobody waits.
    assert_eq!(played.call(&set(), ask, &steps[1..]).await, held);
    assert_eq!(played.call(&set(), RELEASE, &[("release", ":1\r\n")]).await, agreed(0));
    let granted = played.call(&set(), ask, &[(SET, ":1\r\n")]).await;
    assert_eq!(granted.vote, Vote::Agreed);
    // Somebody waits for one of the keys, and the other one would need the script in vain.
    assert_eq!(played.call(&set(), RELEASE, &[("release", ":2\r\n")]).await, agreed(1));
    let granted = played.call(&set(), ask, &[(SET, ":1\r\n")]).await;
    assert_eq!(granted.vote, Vote::Agreed);
}

/// A proxy may know one of them only.
#[tokio::test(start_paused = true)]
async fn a_refused_command_does_not_end_the_use_of_the_other_one() {
    let ask = acquire(false, Ask::FIRST);
    let both = || NativeCommands::only(Some(NativeCommand::DelIfEq), true);
    let denied = "-DENIED by policy\r\n";
    let release: &[_] = &[("DELIFEQ", &*format!("{denied}:0\r\n")), ("release", ":1\r\n")];
    let mut played = PlayedNode::new(LEASE);
    played.connect_with_native(both());
    assert_eq!(played.release(release).await, agreed(0));
    assert_eq!(played.call(&set(), ask, &[(SET, ":1\r\n")]).await.vote, Vote::Agreed);
    played.connect_with_native(both());
    let steps = [(SET, denied), ("acquire", "+OK\r\n")];
    assert_eq!(played.call(&set(), ask, &steps).await.vote, Vote::Agreed);
    assert_eq!(played.release(&[(PUBLISH, ":1\r\n:0\r\n")]).await, agreed(0));
}

/// The command gives no numbers, and knows no marks.
#[tokio::test(start_paused = true)]
async fn other_sets_need_the_script() {
    let mut played = played_set();
    let met_marks = Ask { met_marks: true, ..Ask::FIRST };
    for (action, reply) in
        [(acquire(true, Ask::FIRST), "$1\r\n7\r\n"), (acquire(false, met_marks), "+OK\r\n")]
    {
        let reply = played.call(&set(), action, &[("acquire", reply)]).await;
        assert_eq!(reply.vote, Vote::Agreed, "{action:?}");
    }
}

/// The second acquisition would follow the release (an abandoned attempt leaves nothing behind).
#[tokio::test(start_paused = true)]
async fn the_script_does_not_follow_a_set_that_is_released_meanwhile() {
    let PlayedNode { node, state, mut server } = played_set();
    let op = Op::new(&set(), Token::random(Dialect::Plain), acquire(false, Ask::FIRST));
    let release = || drop(state.pending.release(&op.token));
    let play = serve(&mut server, SET, ":0\r\n", release);
    let both = async { tokio::join!(node.call(op.clone()), play).0 };
    let reply = timeout(LEASE, both).await.expect("nothing else is sent");
    assert!(matches!(reply.vote, Vote::Failed(NodeError::Server(_))), "{reply:?}");
    assert!(state.pending.release(&op.token).is_empty());
}

/// The release may overtake the script that follows the command.
#[tokio::test(start_paused = true)]
async fn a_set_that_is_granted_after_its_release_is_released_again() {
    let PlayedNode { node, state, mut server } = played_set();
    let op = Op::new(&set(), Token::random(Dialect::Plain), acquire(false, Ask::FIRST));
    let play = async {
        serve(&mut server, SET, ":0\r\n", || {}).await;
        let release = || drop(state.pending.release(&op.token));
        serve(&mut server, "acquire", "+OK\r\n", release).await;
        serve(&mut server, "release", ":1\r\n", || {}).await;
    };
    let both = async { tokio::join!(node.call(op.clone()), play) };
    timeout(LEASE, both).await.expect("the lock is released again");
}

#[tokio::test(start_paused = true)]
async fn a_set_whose_reply_is_lost_fails() {
    let mut played = played_set();
    let op = Op::new(&set(), Token::random(Dialect::Plain), acquire(false, Ask::FIRST));
    let play = async {
        serve(&mut played.server, SET, "", || {}).await;
        played.server = tokio::io::duplex(1).0;
    };
    let both = async { tokio::join!(played.node.call(op), play).0 };
    let reply = timeout(LEASE, both).await.unwrap();
    assert!(matches!(reply.vote, Vote::Failed(NodeError::ConnectionBroke(_))), "{reply:?}");
}

/// The server tracks the keys that the set has changed from this read on.
#[tokio::test(start_paused = true)]
async fn the_keys_of_a_watched_lock_are_read_behind_the_set_that_restores_it() {
    let PlayedNode { node, mut server, .. } = played_set();
    let op = Op::new(&set(), Token::random(Dialect::Plain), acquire(false, Ask::FIRST));
    let _watch = node.loss_hints().unwrap().watch(&op.spec, op.token, Arc::new(|| {}));
    let (acquired, mut commands) = (node.call(op), Vec::new());
    let play = async {
        loop {
            server.read_buf(&mut commands).await.unwrap();
            let text = String::from_utf8_lossy(&commands);
            let behind = text.split_once(SET).map(|(_, behind)| behind.matches("GET\r\n").count());
            if behind == Some(2) {
                return;
            }
        }
    };
    let both = async {
        tokio::select! {
            reply = acquired => panic!("{reply:?}"),
            () = play => {}
        }
    };
    timeout(LEASE, both).await.expect("both keys are read");
}
