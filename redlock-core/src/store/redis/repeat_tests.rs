//! A clean-up follows the acquisition to every master that may execute it (an abandoned attempt leaves nothing behind).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::poll;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, timeout};

use super::encode;
use super::played_node::{HELD, LEASE, PlayedCluster, RELEASE, spec};
use super::script::Script;
use super::server::played_server::{played_connection, serve};
use crate::error::{NodeError, Vote};
use crate::lock::{Dialect, Token};
use crate::node::{Action, Ask, Remote};
use crate::store::kit::gate::Closures;
use crate::store::kit::url::HostPort;

#[tokio::test(start_paused = true)]
async fn a_release_goes_to_the_master_of_its_acquisition_and_to_the_new_owner() {
    let mut cluster = PlayedCluster::new();
    let mut acquire = cluster.call(HELD);
    assert!(poll!(&mut acquire).is_pending());
    cluster.move_slot();
    let mut release = cluster.call(RELEASE);
    assert!(poll!(&mut release).is_pending());
    let [first, second] = &mut cluster.masters;
    let play = async {
        serve(second, "release", ":0\r\n", || {}).await;
        // The acquisition comes first on its connection.
        serve(first, "SET", "+OK\r\n:1\r\n", || {}).await;
    };
    let both = async { tokio::join!(acquire, release, play) };
    let (acquired, released, ()) = timeout(LEASE, both).await.unwrap();
    assert_eq!((acquired.vote, released.vote), (Vote::Agreed, Vote::Agreed));
    // A later release goes to the owner alone.
    let release = cluster.call(RELEASE);
    let played = serve(&mut cluster.masters[1], "release", ":0\r\n", || {});
    let (released, ()) = timeout(LEASE, async { tokio::join!(release, played) }).await.unwrap();
    assert_eq!(released.vote, Vote::NotHeld);
}

/// The caller has dropped the acquisition, so nobody knows whether the first master executes it.
#[tokio::test(start_paused = true)]
async fn a_release_follows_a_dropped_acquisition() {
    let mut cluster = PlayedCluster::new();
    let mut acquire = cluster.call(HELD);
    assert!(poll!(&mut acquire).is_pending());
    drop(acquire);
    cluster.move_slot();
    let release = cluster.call(RELEASE);
    let [first, second] = &mut cluster.masters;
    let play = async {
        serve(second, "release", ":0\r\n", || {}).await;
        // The driver skips a command whose caller is gone, or has sent it before.
        serve(first, "release", ":0\r\n", || {}).await;
    };
    timeout(LEASE, async { tokio::join!(release, play) }).await.unwrap();
}

/// The other master has no lock to release. That says nothing about the master of the acquisition.
#[tokio::test(start_paused = true)]
async fn a_release_fails_until_the_master_of_a_dropped_acquisition_has_executed_it() {
    for is_reached in [true, false] {
        let mut cluster = PlayedCluster::new();
        let mut acquire = cluster.call(HELD);
        assert!(poll!(&mut acquire).is_pending());
        drop(acquire);
        cluster.move_slot();
        if !is_reached {
            let down = NodeError::NotConnected("gone".into());
            cluster.master(0).set(Err(down));
        }
        let release = cluster.call(RELEASE);
        let [first, second] = &mut cluster.masters;
        let play = async {
            serve(second, "release", ":0\r\n", || {}).await;
            if is_reached {
                serve(first, "release", "-MISCONF Errors writing to the AOF file\r\n", || {}).await;
            }
        };
        let both = async { tokio::join!(release, play) };
        let (released, ()) = timeout(LEASE, both).await.unwrap();
        assert!(matches!(released.vote, Vote::Failed(_)), "{is_reached}: {released:?}");
        let (connection, mut first) = played_connection();
        cluster.master(0).set(Ok(Arc::new(connection)));
        let release = cluster.call(RELEASE);
        let play = async {
            serve(&mut cluster.masters[1], "release", ":0\r\n", || {}).await;
            serve(&mut first, "release", ":1\r\n", || {}).await;
        };
        let both = async { tokio::join!(release, play) };
        let (released, ()) = timeout(LEASE, both).await.unwrap();
        assert_eq!(released.vote, Vote::Agreed, "{is_reached}");
    }
}

/// The slot has moved back, so that the owner is not the master that may still execute the acquisition.
#[tokio::test(start_paused = true)]
async fn a_release_follows_a_redirected_acquisition() {
    let mut cluster = PlayedCluster::new();
    let mut acquire = cluster.call(HELD);
    let moved = cluster.redirect("MOVED");
    let [first, second] = &mut cluster.masters;
    let play = async {
        serve(first, "SET", &moved, || {}).await;
        serve(second, "SET", "", || {}).await;
    };
    tokio::select! {
        acquired = &mut acquire => panic!("{acquired:?}"),
        played = timeout(LEASE, play) => played.unwrap(),
    }
    drop(acquire);
    cluster.state.map.insert_owner(cluster.slot, "a:1");
    let release = cluster.call(RELEASE);
    let [first, second] = &mut cluster.masters;
    let play = async {
        serve(first, "release", ":0\r\n", || {}).await;
        // The reply to the acquisition comes first.
        serve(second, "release", "+OK\r\n:1\r\n", || {}).await;
    };
    let (released, ()) = timeout(LEASE, async { tokio::join!(release, play) }).await.unwrap();
    assert_eq!(released.vote, Vote::Agreed);
}

#[tokio::test(start_paused = true)]
async fn a_redirected_acquisition_is_not_sent_again_after_its_release() {
    for kind in ["MOVED", "ASK"] {
        let mut cluster = PlayedCluster::new();
        let mut acquire = cluster.call(HELD);
        assert!(poll!(&mut acquire).is_pending());
        let mut release = cluster.call(RELEASE);
        assert!(poll!(&mut release).is_pending());
        let redirects = cluster.redirect(kind).repeat(2);
        let [first, second] = &mut cluster.masters;
        let play = async {
            serve(first, "SET", &redirects, || {}).await;
            // The release follows the redirect. No acquisition does.
            let reply = if kind == "ASK" { "+OK\r\n:0\r\n" } else { ":0\r\n" };
            serve(second, "release", reply, || {}).await;
        };
        let both = async { tokio::join!(acquire, release, play) };
        let (acquired, released, ()) = timeout(LEASE, both).await.unwrap();
        assert!(matches!(acquired.vote, Vote::Failed(NodeError::Server(_))), "{acquired:?}");
        assert_eq!(released.vote, Vote::NotHeld, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_redirected_acquisition_is_granted_by_the_other_master() {
    for (kind, reply) in [("MOVED", "+OK\r\n"), ("ASK", "+OK\r\n+OK\r\n")] {
        let mut cluster = PlayedCluster::new();
        let acquire = cluster.call(HELD);
        let redirect = cluster.redirect(kind);
        let [first, second] = &mut cluster.masters;
        let play = async {
            serve(first, "SET", &redirect, || {}).await;
            serve(second, if kind == "ASK" { "ASKING" } else { "SET" }, reply, || {}).await;
        };
        let (acquired, ()) = timeout(LEASE, async { tokio::join!(acquire, play) }).await.unwrap();
        assert_eq!(acquired.vote, Vote::Agreed, "{kind}");
    }
}

/// The caller learns at once that the cluster is down. A replica may be promoted at any time.
#[tokio::test(start_paused = true)]
async fn a_master_of_an_incomplete_cluster_has_no_vote() {
    const MESSAGE: &str = "CLUSTERDOWN The cluster is down";
    let mut cluster = PlayedCluster::new();
    // The test has set the owner by a redirect.
    timeout(LEASE, cluster.state.map.refresh_requested()).await.unwrap();
    let acquire = cluster.call(HELD);
    let reply = format!("-{MESSAGE}\r\n");
    let play = serve(&mut cluster.masters[0], "SET", &reply, || {});
    let (acquired, ()) = timeout(LEASE, async { tokio::join!(acquire, play) }).await.unwrap();
    let reason = format!("a:1 (announced by the cluster): {MESSAGE}");
    assert_eq!(acquired.vote, Vote::Failed(NodeError::Server(reason.into())));
    assert!(timeout(LEASE, cluster.state.map.refresh_requested()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_slots_are_read_again_only_after_an_error_that_an_owner_may_have_caused() {
    for (reply, is_read) in [
        ("-ERR unknown command\r\n", false),
        ("-OOM command not allowed\r\n", false),
        // Not a reply of Redis: the connection ends.
        ("HTTP/1.1 400 Bad Request\r\n", true),
    ] {
        let mut cluster = PlayedCluster::new();
        // The test has set the owner by a redirect.
        timeout(LEASE, cluster.state.map.refresh_requested()).await.unwrap();
        let acquire = cluster.call(HELD);
        let play = serve(&mut cluster.masters[0], "SET", reply, || {});
        let both = async { tokio::join!(acquire, play) };
        let (acquired, ()) = timeout(LEASE, both).await.unwrap();
        assert!(matches!(acquired.vote, Vote::Failed(_)), "{acquired:?}");
        let requested = timeout(LEASE, cluster.state.map.refresh_requested()).await;
        assert_eq!(requested.is_ok(), is_read, "{reply} {acquired:?}");
    }
}

/// A server that does not know its own host sends the port alone.
#[tokio::test(start_paused = true)]
async fn a_redirect_without_a_host_leads_to_the_host_of_its_sender() {
    let mut cluster = PlayedCluster::new();
    let acquire = cluster.call(HELD);
    let moved = format!("-MOVED {} :3\r\n", cluster.slot);
    let play = serve(&mut cluster.masters[0], "SET", &moved, || {});
    let waiting = async { tokio::join!(acquire, play) };
    assert!(timeout(LEASE, waiting).await.is_err(), "it waits for the new server");
    assert_eq!(**cluster.state.map.owner_of(cluster.slot).unwrap().name(), *"a:3");
}

const SPLIT: &str = "-TRYAGAIN Multiple keys request during rehashing of slot\r\n";

/// The first master has one of the keys, until the slot has moved.
#[tokio::test(start_paused = true)]
async fn an_operation_whose_keys_are_split_is_repeated() {
    let mut cluster = PlayedCluster::new();
    let acquire = cluster.call(HELD);
    let moved = cluster.redirect("MOVED");
    let [first, second] = &mut cluster.masters;
    let play = async {
        for reply in [SPLIT, SPLIT, &moved] {
            serve(first, "SET", reply, || {}).await;
        }
        serve(second, "SET", SPLIT, || {}).await;
        serve(second, "SET", "+OK\r\n", || {}).await;
    };
    let begun = Instant::now();
    let (acquired, ()) = timeout(LEASE, async { tokio::join!(acquire, play) }).await.unwrap();
    assert_eq!(acquired.vote, Vote::Agreed);
    let elapsed = begun.elapsed().as_millis();
    assert!((60..=160).contains(&elapsed), "{elapsed} ms");
}

#[tokio::test(start_paused = true)]
async fn an_operation_whose_keys_stay_split_fails_after_the_node_timeout() {
    let mut cluster = PlayedCluster::new();
    let acquire = cluster.call(HELD);
    let play = async {
        loop {
            serve(&mut cluster.masters[0], "SET", SPLIT, || {}).await;
        }
    };
    let begun = Instant::now();
    let acquired = tokio::select! {
        biased;
        acquired = acquire => acquired,
        () = play => unreachable!(),
    };
    assert!(matches!(acquired.vote, Vote::Failed(NodeError::Server(_))), "{acquired:?}");
    let elapsed = begun.elapsed();
    assert!(elapsed >= LEASE && elapsed < LEASE + Duration::from_secs(1), "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_whose_keys_are_split_is_not_repeated_after_its_release() {
    let mut cluster = PlayedCluster::new();
    let mut acquire = cluster.call(HELD);
    assert!(poll!(&mut acquire).is_pending());
    let replies = format!("{SPLIT}:0\r\n");
    let mut release = cluster.call(RELEASE);
    assert!(poll!(&mut release).is_pending());
    let play = serve(&mut cluster.masters[0], "SET", &replies, || {});
    let both = async { tokio::join!(acquire, release, play) };
    let (acquired, released, ()) = timeout(LEASE, both).await.unwrap();
    assert!(matches!(acquired.vote, Vote::Failed(NodeError::Server(_))), "{acquired:?}");
    assert_eq!(released.vote, Vote::NotHeld);
}

/// A pause needs a runtime.
#[tokio::test(start_paused = true)]
async fn an_operation_whose_keys_are_split_may_be_polled_outside_of_a_runtime() {
    let mut cluster = PlayedCluster::new();
    let mut acquire = cluster.call(HELD);
    assert!(poll!(&mut acquire).is_pending());
    serve(&mut cluster.masters[0], "SET", SPLIT, || {}).await;
    // The driver of the connection has read the reply.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let polled = std::thread::spawn(move || futures_util::FutureExt::now_or_never(acquire));
    assert!(matches!(polled.join().unwrap().unwrap().vote, Vote::Failed(NodeError::Server(_))));
}

/// Two masters that redirect to each other would keep the operation for ever, and busy.
#[tokio::test(start_paused = true)]
async fn redirects_in_a_circle_end_after_the_node_timeout() {
    let mut cluster = PlayedCluster::new();
    let acquire = cluster.call(HELD);
    let there = cluster.redirect("MOVED");
    let back = there.replace("b:2", "a:1");
    let count = AtomicUsize::new(0);
    let [first, second] = &mut cluster.masters;
    let received = || {
        count.fetch_add(1, Ordering::Relaxed);
    };
    let play = async |server: &mut DuplexStream, reply: &str| loop {
        serve(server, "SET", reply, received).await;
    };
    let acquired = tokio::select! {
        biased;
        acquired = timeout(2 * LEASE, acquire) => acquired.unwrap(),
        () = play(first, &there) => unreachable!(),
        () = play(second, &back) => unreachable!(),
    };
    assert!(matches!(acquired.vote, Vote::Failed(NodeError::Server(_))), "{acquired:?}");
    // Each pause of at least 20 ms is followed by four commands.
    let most = 4 * (1 + usize::try_from(LEASE.as_millis()).unwrap() / 20);
    let count = count.into_inner();
    assert!((8..=most).contains(&count), "{count} commands");
}

/// The servers do not agree on the owner for a moment, and then agree on another one.
#[tokio::test(start_paused = true)]
async fn after_a_pause_redirects_are_followed_again() {
    let mut cluster = PlayedCluster::new();
    let acquire = cluster.call(HELD);
    let there = cluster.redirect("MOVED");
    let back = there.replace("b:2", "a:1");
    let [first, second] = &mut cluster.masters;
    let play = async {
        for _ in 0..2 {
            serve(first, "SET", &there, || {}).await;
            serve(second, "SET", &back, || {}).await;
        }
        // After the pause.
        serve(second, "SET", &back, || {}).await;
        serve(first, "SET", "+OK\r\n", || {}).await;
    };
    let (acquired, ()) = timeout(LEASE, async { tokio::join!(acquire, play) }).await.unwrap();
    assert_eq!(acquired.vote, Vote::Agreed);
}

/// Every caller of a lock in quarantine would let the node read the slots again.
#[tokio::test(start_paused = true)]
async fn the_slots_are_read_again_only_if_the_owner_may_have_changed() {
    let cluster = PlayedCluster::new();
    let (server, map) = (cluster.master(0), &cluster.state.map);
    // The test has set the owner by a redirect.
    timeout(LEASE, map.refresh_requested()).await.unwrap();
    server.gate.close(Closures::after_restart(LEASE, None, None));
    assert!(cluster.call(HELD).as_ready().is_some());
    assert!(timeout(LEASE, map.refresh_requested()).await.is_err());
    server.set(Err(NodeError::NotConnected("gone".into())));
    // The end of a connection requests one reading, and an operation that fails later requests another one.
    assert!(timeout(LEASE, map.refresh_requested()).await.is_ok());
    assert!(cluster.call(HELD).as_ready().is_some());
    assert!(timeout(LEASE, map.refresh_requested()).await.is_ok());
}

/// In a process that reads its replies late, every lock would fail while one master is down.
#[tokio::test(start_paused = true)]
async fn a_master_that_is_down_does_not_make_the_node_silent() {
    const LIMIT: Duration = Duration::from_secs(1);
    let cluster = PlayedCluster::new();
    let down = Err(NodeError::NotConnected("gone".into()));
    cluster.master(1).set(down);
    assert!(!cluster.node.silence(LIMIT, 2 * LIMIT).is_silent());
    let mut acquire = cluster.call(HELD);
    assert!(poll!(&mut acquire).is_pending());
    tokio::time::sleep(2 * LIMIT).await;
    assert!(cluster.node.silence(LIMIT, 2 * LIMIT).is_silent());
}

/// The server has lost its slots, and may still execute the operation. Its caller must not wait until the lease ends.
#[tokio::test(start_paused = true)]
async fn a_server_that_only_an_open_operation_uses_makes_the_node_silent() {
    const LIMIT: Duration = Duration::from_secs(1);
    let cluster = PlayedCluster::new();
    let mut acquire = cluster.call(HELD);
    assert!(poll!(&mut acquire).is_pending());
    let owner = HostPort { host: "b".into(), port: 2 };
    cluster.state.map.replace(&vec![(0..=16_383, owner)]);
    assert_eq!(cluster.state.map.masters().len(), 1, "the other master has no slots");
    tokio::time::sleep(2 * LIMIT).await;
    assert!(!cluster.node.silence(LIMIT, LIMIT / 2).is_silent(), "the caller has not waited long");
    assert!(cluster.node.silence(LIMIT, 2 * LIMIT).is_silent());
}

/// The server that gets the slot was promoted while its reply was on the way.
#[tokio::test(start_paused = true)]
async fn a_grant_after_a_redirect_does_not_count_if_the_gate_has_closed() {
    for (kind, reply) in [("MOVED", "+OK\r\n"), ("ASK", "+OK\r\n+OK\r\n")] {
        for (action, word) in [(HELD, "SET"), (Action::Extend { lease: LEASE }, "extend")] {
            let mut cluster = PlayedCluster::new();
            let (redirect, second) = (cluster.redirect(kind), cluster.master(1));
            let acquire = cluster.call(action);
            let close =
                || second.gate.close(Closures::after_promotion(LEASE, LEASE, Instant::now()));
            let reply =
                if word == "SET" { reply.to_owned() } else { reply.replace("+OK\r\n", ":1\r\n") };
            let [first, other] = &mut cluster.masters;
            let play = async {
                serve(first, word, &redirect, || {}).await;
                serve(other, if kind == "ASK" { "ASKING" } else { word }, &reply, close).await;
            };
            let both = async { tokio::join!(acquire, play) };
            let (acquired, ()) = timeout(LEASE, both).await.unwrap();
            let reason = acquired.vote;
            assert!(
                matches!(reason, Vote::Failed(NodeError::Promoted { .. })),
                "{kind}: {reason:?}"
            );
        }
    }
}

/// An attempt is made at once, and a caller learns its end.
#[tokio::test(start_paused = true)]
async fn a_reconnection_ends_with_an_attempt_that_began_after_it() {
    let cluster = PlayedCluster::new();
    let owner = cluster.master(0);
    assert!(cluster.node.reconnect(&spec()).await, "it is connected");
    owner.connection().unwrap().link.end("the server has become a replica");
    let mut reconnection = cluster.node.reconnect(&spec());
    assert!(poll!(&mut reconnection).is_pending(), "its status says that it is up");
    let down = || Err(NodeError::NotConnected("refused".into()));
    owner.set(down());
    assert!(poll!(&mut reconnection).is_pending());
    owner.set(down());
    assert!(!timeout(LEASE, reconnection).await.unwrap());
    for is_back in [false, true] {
        let mut reconnection = cluster.node.reconnect(&spec());
        assert!(poll!(&mut reconnection).is_pending());
        // This attempt may have begun before.
        owner.set(down());
        assert!(poll!(&mut reconnection).is_pending());
        if is_back {
            let connection = super::server::played_server::played_connection().0;
            owner.set(Ok(Arc::new(connection)));
        } else {
            owner.set(down());
        }
        assert_eq!(timeout(LEASE, reconnection).await.unwrap(), is_back);
    }
}

/// An empty host is that of the server that sent the redirect, which may own no slots any more.
#[tokio::test(start_paused = true)]
async fn a_former_master_may_redirect_to_a_server_of_its_own_host() {
    let mut cluster = PlayedCluster::new();
    let moved = format!("-MOVED {} :2\r\n", cluster.slot);
    let mut acquire = cluster.call(HELD);
    assert!(poll!(&mut acquire).is_pending());
    let owner = HostPort { host: "b".into(), port: 2 };
    cluster.state.map.replace(&vec![(0..=16_383, owner)]);
    let waiting = async {
        let refuse = serve(&mut cluster.masters[0], "SET", &moved, || {});
        tokio::join!(&mut acquire, refuse)
    };
    assert!(timeout(LEASE, waiting).await.is_err(), "it waits for the new server");
    assert_eq!(**cluster.state.map.owner_of(cluster.slot).unwrap().name(), *"a:2");
}

/// The replica of the master was promoted.
#[tokio::test(start_paused = true)]
async fn a_reconnection_goes_on_with_the_new_owner_of_the_slot() {
    let cluster = PlayedCluster::new();
    let down = || Err(NodeError::NotConnected("refused".into()));
    let owner = cluster.master(0);
    owner.set(down());
    cluster.master(1).set(down());
    let mut reconnection = cluster.node.reconnect(&spec());
    assert!(poll!(&mut reconnection).is_pending());
    cluster.move_slot();
    owner.set(down());
    assert!(poll!(&mut reconnection).is_pending());
    owner.set(down());
    assert!(poll!(&mut reconnection).is_pending(), "it waits for the new owner");
    let (connection, _server) = played_connection();
    cluster.master(1).set(Ok(Arc::new(connection)));
    assert!(timeout(LEASE, reconnection).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_dead_master_is_forgotten_when_the_leases_of_its_open_operations_are_over() {
    let cluster = PlayedCluster::new();
    let mut acquire = cluster.call(HELD);
    assert!(poll!(&mut acquire).is_pending());
    let server = Arc::downgrade(&cluster.master(0));
    cluster.master(0).connection().unwrap().link.end("killed");
    assert!(matches!(acquire.await.vote, Vote::Failed(NodeError::ConnectionBroke(_))));
    let read_slots = || {
        let owner = HostPort { host: "b".into(), port: 2 };
        cluster.state.map.replace(&vec![(0..=16_383, owner)]);
    };
    read_slots();
    assert!(server.upgrade().is_some(), "it may have the lock");
    tokio::time::advance(LEASE).await;
    read_slots();
    assert!(server.upgrade().is_none());
}

/// Servers that leave must not keep others out.
#[tokio::test(start_paused = true)]
async fn all_of_many_masters_may_be_replaced_at_once() {
    let cluster = PlayedCluster::new();
    for name in ["x", "y"] {
        let masters =
            (0..60).map(|slot| (slot..=slot, HostPort { host: format!("{name}{slot}"), port: 1 }));
        cluster.state.map.replace(&masters.collect());
        let missing = (0..60).filter(|slot| cluster.state.map.owner_of(*slot).is_none()).count();
        assert_eq!(missing, 0, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_redirect_to_a_forged_host_cannot_forge_a_line_of_the_log() {
    let mut cluster = PlayedCluster::new();
    let acquire = cluster.call(HELD);
    let redirect = format!("-MOVED {} forged\u{1b}[2J:1\r\n", cluster.slot);
    let [first, _] = &mut cluster.masters;
    let play = serve(first, "SET", &redirect, || {});
    let begin = async { tokio::join!(acquire, play) };
    // Nothing connects to the forged server.
    assert!(timeout(Duration::from_secs(1), begin).await.is_err());
    let names: Vec<_> = cluster.state.map.all().iter().map(|one| one.name().to_string()).collect();
    assert!(names.contains(&r"forged\u{1b}[2J:1".to_owned()), "{names:?}");
}

/// The lock moves with its slot, so that the former master has nothing to release.
#[tokio::test(start_paused = true)]
async fn a_release_of_a_granted_lock_goes_to_the_owner_alone() {
    let mut cluster = PlayedCluster::new();
    let acquire = cluster.call(HELD);
    let play = serve(&mut cluster.masters[0], "SET", "+OK\r\n", || {});
    assert_eq!(tokio::join!(acquire, play).0.vote, Vote::Agreed);
    cluster.move_slot();
    let release = cluster.call(RELEASE);
    let play = serve(&mut cluster.masters[1], "release", ":1\r\n", || {});
    // The first master would never reply.
    let (released, ()) = timeout(LEASE, async { tokio::join!(release, play) }).await.unwrap();
    assert_eq!(released.vote, Vote::Agreed);
}

/// The slot is still moving. Its locks that have not moved yet are on the former owner.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_asked_for_one_operation_does_not_become_the_owner() {
    for (kind, owner) in [("ASK", 0), ("MOVED", 1)] {
        let mut cluster = PlayedCluster::new();
        let redirect = cluster.redirect(kind);
        let acquire = cluster.call(HELD);
        let [first, second] = &mut cluster.masters;
        let play = async {
            serve(first, "SET", &redirect, || {}).await;
            let reply = if kind == "ASK" { "+OK\r\n+OK\r\n" } else { "+OK\r\n" };
            serve(second, "SET", reply, || {}).await;
        };
        let both = async { tokio::join!(acquire, play) };
        assert_eq!(timeout(LEASE, both).await.unwrap().0.vote, Vote::Agreed);
        let present = cluster.state.map.owner_of(cluster.slot).unwrap();
        assert!(Arc::ptr_eq(&present, &cluster.master(owner)), "{kind}: {}", present.name());
    }
}

/// The server that was asked votes, and not the owner of the slot. Its wall clock may be stepped before its reply.
#[tokio::test(start_paused = true)]
async fn a_grant_of_a_server_that_is_asked_does_not_count_if_that_server_has_stepped() {
    for (kind, stepped, granted) in
        [("ASK", 0, true), ("ASK", 1, false), ("MOVED", 0, true), ("MOVED", 1, false)]
    {
        let mut cluster = PlayedCluster::new();
        let redirect = cluster.redirect(kind);
        let acquire = cluster.call(HELD);
        let server = cluster.master(stepped);
        let step = || server.gate.close(Closures::after_clock_step(LEASE, LEASE / 10));
        let [first, second] = &mut cluster.masters;
        let play = async {
            serve(first, "SET", &redirect, || {}).await;
            let reply = if kind == "ASK" { "+OK\r\n+OK\r\n" } else { "+OK\r\n" };
            serve(second, "SET", reply, step).await;
        };
        let both = async { tokio::join!(acquire, play) };
        let vote = timeout(LEASE, both).await.unwrap().0.vote;
        assert_eq!(vote == Vote::Agreed, granted, "{kind} {stepped}: {vote}");
    }
}

/// Without `ASKING` the server would send the operation back to the owner of the slot.
#[tokio::test(start_paused = true)]
async fn a_script_that_is_loaded_on_the_way_of_a_moving_slot_is_asked_for_again() {
    let mut cluster = PlayedCluster::new();
    let ask = cluster.redirect("ASK");
    let extend = cluster.call(Action::Extend { lease: LEASE });
    let [first, second] = &mut cluster.masters;
    let play = async {
        serve(first, "extend", &ask, || {}).await;
        serve(second, "ASKING", "+OK\r\n-NOSCRIPT No matching script.\r\n", || {}).await;
        let mut load = encode::load(Script::Extend).get_packed_command();
        second.read_exact(&mut load).await.unwrap();
        second.write_all(b"$6\r\nextend\r\n").await.unwrap();
        serve(second, "ASKING", "+OK\r\n:1\r\n", || {}).await;
    };
    let both = async { tokio::join!(extend, play) };
    assert_eq!(timeout(LEASE, both).await.unwrap().0.vote, Vote::Agreed);
}

#[tokio::test(start_paused = true)]
async fn a_redirect_to_a_new_server_waits_for_its_first_connection() {
    for is_reached in [true, false] {
        let mut cluster = PlayedCluster::new();
        let moved = format!("-MOVED {} c:3\r\n", cluster.slot);
        let mut acquire = cluster.call(HELD);
        let waiting = async {
            let refuse = serve(&mut cluster.masters[0], "SET", &moved, || {});
            tokio::join!(&mut acquire, refuse)
        };
        assert!(timeout(LEASE, waiting).await.is_err(), "it waits for the new server");
        let server = cluster.state.map.owner_of(cluster.slot).unwrap();
        assert_eq!(**server.name(), *"c:3");
        if is_reached {
            let (connection, mut played) = played_connection();
            server.set(Ok(Arc::new(connection)));
            let grant = serve(&mut played, "SET", "+OK\r\n", || {});
            let both = async { tokio::join!(acquire, grant) };
            assert_eq!(timeout(LEASE, both).await.unwrap().0.vote, Vote::Agreed);
        } else {
            let refused = NodeError::NotConnected("refused".into());
            server.set(Err(refused.clone()));
            let vote = timeout(LEASE, acquire).await.unwrap().vote;
            assert_eq!(vote, Vote::Failed(refused));
        }
    }
}

/// The server that could not be reached has nothing to release. Otherwise the release would fail until it is back.
#[tokio::test(start_paused = true)]
async fn a_release_does_not_go_to_a_server_that_was_never_sent_the_operation() {
    let mut cluster = PlayedCluster::new();
    let down = NodeError::NotConnected("gone".into());
    cluster.master(1).set(Err(down.clone()));
    let moved = cluster.redirect("MOVED");
    let acquire = cluster.call(HELD);
    let refuse = serve(&mut cluster.masters[0], "SET", &moved, || {});
    let both = async { tokio::join!(acquire, refuse) };
    assert_eq!(timeout(LEASE, both).await.unwrap().0.vote, Vote::Failed(down));
    // The slot moves back.
    cluster.state.map.insert_owner(cluster.slot, "a:1");
    let release = cluster.call(RELEASE);
    let play = serve(&mut cluster.masters[0], "release", ":0\r\n", || {});
    let both = async { tokio::join!(release, play) };
    assert_eq!(timeout(LEASE, both).await.unwrap().0.vote, Vote::NotHeld);
}

/// An operation that still runs may be sent to another server at any time, unless it knows of the release.
#[tokio::test(start_paused = true)]
async fn a_release_forgets_only_operations_that_have_ended() {
    let cluster = PlayedCluster::new();
    let (pending, server) = (&cluster.state.pending, cluster.master(0));
    let token = Token::random(Dialect::Plain);
    let running = pending.begin(token, &server, LEASE);
    drop(pending.begin(token, &server, LEASE));
    for _ in 0..2 {
        assert_eq!(pending.release(&token).len(), 1);
        pending.released(&token, &server);
    }
    assert!(running.is_released() && !running.redirect(&cluster.master(1)));
    drop(running);
    assert_eq!(pending.release(&token).len(), 1, "its result is not certain");
    pending.released(&token, &server);
    assert_eq!(pending.release(&token).len(), 0);
}

/// The slot is still moving, so that the server would redirect a look-up without `ASKING` back.
#[tokio::test(start_paused = true)]
async fn a_refusal_on_the_way_of_a_moving_slot_is_looked_up_there() {
    let mut cluster = PlayedCluster::new();
    let redirect = cluster.redirect("ASK");
    let acquire = Action::Acquire { lease: LEASE, fenced: false, ask: Ask::FIRST };
    let acquire = cluster.call(acquire);
    let [first, second] = &mut cluster.masters;
    let play = async {
        serve(first, "SET", &redirect, || {}).await;
        serve(second, "ASKING", "+OK\r\n_\r\n", || {}).await;
        serve(second, "ASKING", "+OK\r\n*2\r\n:0\r\n:1500\r\n", || {}).await;
    };
    let (acquired, ()) = timeout(LEASE, async { tokio::join!(acquire, play) }).await.unwrap();
    assert_eq!(acquired.vote, Vote::held(Some(Duration::from_millis(1500))));
}

/// Servers learn of a new owner one after another.
#[tokio::test(start_paused = true)]
async fn three_redirects_are_followed_without_a_pause() {
    let mut cluster = PlayedCluster::new();
    let acquire = cluster.call(HELD);
    let there = cluster.redirect("MOVED");
    let back = there.replace("b:2", "a:1");
    let [first, second] = &mut cluster.masters;
    let play = async {
        serve(first, "SET", &there, || {}).await;
        serve(second, "SET", &back, || {}).await;
        serve(first, "SET", &there, || {}).await;
        serve(second, "SET", "+OK\r\n", || {}).await;
    };
    let begun = Instant::now();
    let (acquired, ()) = timeout(LEASE, async { tokio::join!(acquire, play) }).await.unwrap();
    assert_eq!(acquired.vote, Vote::Agreed);
    assert_eq!(begun.elapsed(), Duration::ZERO, "the clock stands still without a pause");
}
