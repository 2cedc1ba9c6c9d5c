//! Subscriptions whose server refuses them, and the connections that they follow.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use super::played_node::{LEASE, PlayedCluster, PlayedNode, spec};
use super::server::Observer;
use super::server::played_server::serve;
use super::subscriptions::RETRY_PAUSE;
use crate::error::NodeError;
use crate::node::{Node, Subscription};

const BUSY: &str = "-BUSY Redis is busy running a script.\r\n";
const DENIED: &str = "-NOPERM No permissions to access a channel\r\n";
const LONG: Duration = Duration::from_secs(60);

fn confirmed(what: &str, channel: &str) -> String {
    format!(">3\r\n${}\r\n{what}\r\n${}\r\n{channel}\r\n:1\r\n", what.len(), channel.len())
}

fn listen(played: &PlayedNode, name: &str) -> Subscription {
    listen_with(played, name, || {})
}

fn listen_with(
    played: &PlayedNode,
    name: &str,
    notify: impl Fn() + Send + Sync + 'static,
) -> Subscription {
    played.state.subscriptions.subscribe(&name.into(), 0, false, Arc::new(notify))
}

/// Without a second attempt, a key that always has waiters, such as a hot key, would never get its
/// subscription.
#[tokio::test(start_paused = true)]
async fn a_server_that_was_busy_is_asked_again_after_a_pause() {
    let mut played = PlayedNode::new(LEASE);
    let mut subscription = listen(&played, "hot");
    let play = async {
        serve(&mut played.server, "SUBSCRIBE", BUSY, || {}).await;
        subscription.take_ready().unwrap().await;
        for reply in [BUSY, &confirmed("subscribe", "hot")] {
            let refused = Instant::now();
            serve(&mut played.server, "SUBSCRIBE", reply, || {}).await;
            assert!(refused.elapsed() + Duration::from_millis(10) >= RETRY_PAUSE);
        }
        let silence = timeout(LONG, played.server.read_u8()).await;
        assert!(silence.is_err(), "the subscription is confirmed, so nothing else is sent");
        drop(subscription);
        let reply = confirmed("unsubscribe", "hot");
        serve(&mut played.server, "UNSUBSCRIBE", &reply, || {}).await;
    };
    timeout(2 * LONG, play).await.expect("the test ends in time");
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_channel_does_not_affect_the_others() {
    let mut played = PlayedNode::new(LEASE);
    let (mut one, mut two) = (listen(&played, "denied"), listen(&played, "permitted"));
    let play = async {
        let mut commands = String::new();
        while !commands.ends_with("permitted\r\n") {
            commands.push(char::from(played.server.read_u8().await.unwrap()));
        }
        assert_eq!(commands.matches("SUBSCRIBE").count(), 2, "{commands}");
        let replies = DENIED.to_owned() + &confirmed("subscribe", "permitted");
        played.server.write_all(replies.as_bytes()).await.unwrap();
        one.take_ready().unwrap().await;
        two.take_ready().unwrap().await;
        let silence = timeout(LONG, played.server.read_u8()).await;
        assert!(silence.is_err(), "the forbidden channel is not requested again");
        drop(one);
        let silence = timeout(LONG, played.server.read_u8()).await;
        assert!(silence.is_err(), "there is no subscription to end");
        drop(two);
        let reply = confirmed("unsubscribe", "permitted");
        serve(&mut played.server, "UNSUBSCRIBE", &reply, || {}).await;
    };
    timeout(3 * LONG, play).await.expect("the test ends in time");
}

/// A subscription that was made while the node was down, or over an earlier connection, must not be lost.
#[tokio::test(start_paused = true)]
async fn a_new_connection_has_the_subscriptions_of_the_earlier_one() {
    let mut played = PlayedNode::new(LEASE);
    let notified = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&notified);
    let notify = move || {
        count.fetch_add(1, Ordering::Relaxed);
    };
    let _before = listen_with(&played, "before", notify);
    serve(&mut played.server, "before", &confirmed("subscribe", "before"), || {}).await;
    played.set(Err(NodeError::NotConnected("gone".into())));
    let mut meanwhile = listen(&played, "meanwhile");
    let ready = meanwhile.take_ready().unwrap();
    played.connect();
    let mut commands = String::new();
    while !(commands.contains("before") && commands.contains("meanwhile")) {
        commands.push(char::from(played.server.read_u8().await.unwrap()));
    }
    // The server confirms them in the order of the commands.
    let mut names = ["before", "meanwhile"];
    names.sort_by_key(|name| commands.find(name));
    let replies = names.map(|name| confirmed("subscribe", name)).concat();
    let message = ">3\r\n$7\r\nmessage\r\n$6\r\nbefore\r\n$1\r\n1\r\n";
    played.server.read_exact(&mut [0; 2]).await.unwrap();
    played.server.write_all((replies + message).as_bytes()).await.unwrap();
    timeout(LONG, ready).await.expect("the subscription is confirmed");
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(notified.load(Ordering::Relaxed), 1);
}

/// The subscription on the former owner would stay as long as its connection.
#[tokio::test(start_paused = true)]
async fn a_subscription_follows_its_slot_to_the_new_owner() {
    let mut cluster = PlayedCluster::new();
    let _subscription = cluster.node.subscribe(&spec(), Arc::new(|| {}));
    serve(&mut cluster.masters[0], "\r\nSUBSCRIBE\r\n", "", || {}).await;
    cluster.move_slot();
    let [first, second] = &mut cluster.masters;
    let moved = async {
        serve(second, "\r\nSUBSCRIBE\r\n", "", || {}).await;
        serve(first, "\r\nUNSUBSCRIBE\r\n", "", || {}).await;
    };
    timeout(LONG, moved).await.expect("the subscription moves");
    // The present owner is named again.
    cluster.move_slot();
    cluster.state.status_changed(false);
    let [first, second] = &mut cluster.masters;
    let more = async {
        tokio::select! { _ = first.read_u8() => (), _ = second.read_u8() => () }
    };
    assert!(timeout(LONG, more).await.is_err(), "nothing else is sent");
}

/// A waiter that regards its subscription as confirmed may miss a release.
#[tokio::test(start_paused = true)]
async fn a_subscription_of_a_node_that_is_down_waits_for_the_next_connection() {
    let mut played = PlayedNode::new(LEASE);
    let mut before = listen(&played, "hot");
    serve(&mut played.server, "SUBSCRIBE", &confirmed("subscribe", "hot"), || {}).await;
    before.take_ready().unwrap().await;
    played.set(Err(NodeError::NotConnected("gone".into())));
    let mut meanwhile = listen(&played, "hot");
    let mut ready = meanwhile.take_ready().unwrap();
    assert!(futures_util::poll!(&mut ready).is_pending());
    played.connect();
    serve(&mut played.server, "SUBSCRIBE", &confirmed("subscribe", "hot"), || {}).await;
    timeout(LONG, ready).await.expect("the subscription is confirmed");
}

/// The confirmation of an earlier subscription says nothing about the present one: the server may execute the end of the
/// earlier one in between.
#[tokio::test(start_paused = true)]
async fn the_confirmation_of_an_ended_subscription_does_not_confirm_the_next_one() {
    let mut played = PlayedNode::new(LEASE);
    drop(listen(&played, "hot"));
    let mut subscription = listen(&played, "hot");
    let mut ready = subscription.take_ready().unwrap();
    let confirm = async |played: &mut PlayedNode, what: &str| {
        played.server.write_all(confirmed(what, "hot").as_bytes()).await.unwrap();
        // The driver of the connection reads it.
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    let mut commands = String::new();
    while commands.matches("\r\nhot\r\n").count() < 3 {
        commands.push(char::from(played.server.read_u8().await.unwrap()));
    }
    confirm(&mut played, "subscribe").await;
    confirm(&mut played, "unsubscribe").await;
    assert!(futures_util::poll!(&mut ready).is_pending());
    confirm(&mut played, "subscribe").await;
    timeout(LONG, ready).await.expect("the subscription is confirmed");
}

/// One attempt a second for each channel, although the server refuses each of them at another moment.
#[tokio::test(start_paused = true)]
async fn a_busy_server_gets_each_subscription_once_a_second() {
    const CHANNELS: usize = 20;
    let mut played = PlayedNode::new(LEASE);
    let _subscriptions: Vec<_> =
        (0..CHANNELS).map(|number| listen(&played, &format!("hot{number:03}"))).collect();
    let mut count = 0;
    let play = async {
        let mut command = String::new();
        loop {
            command.push(char::from(played.server.read_u8().await.unwrap()));
            if command.contains("hot") && command.ends_with("\r\n") {
                command.clear();
                count += 1;
                // The server takes a while for each command.
                tokio::time::sleep(Duration::from_millis(1)).await;
                played.server.write_all(BUSY.as_bytes()).await.unwrap();
            }
        }
    };
    tokio::select! {
        () = play => unreachable!(),
        () = tokio::time::sleep(10 * RETRY_PAUSE) => {}
    }
    assert!((9 * CHANNELS..=11 * CHANNELS).contains(&count), "{count} commands");
}

/// The commands of all callers would be refused while one of them waits (miniredis), or the replies shifted (fakeredis).
#[tokio::test(start_paused = true)]
async fn a_server_that_takes_no_subscriptions_gets_none_and_its_waiters_poll() {
    let mut played = PlayedNode::new(LEASE);
    played.connect_without_subscriptions();
    for _ in 0..2 {
        let mut subscription = listen(&played, "hot");
        timeout(LONG, subscription.take_ready().unwrap()).await.expect("waiters poll at once");
        drop(subscription);
    }
    let mut stays = listen(&played, "hot");
    let sent = timeout(LONG, played.server.read_u8()).await;
    assert!(sent.is_err(), "nothing is sent");
    // The next server takes subscriptions.
    played.connect();
    played.state.status_changed(false);
    serve(&mut played.server, "SUBSCRIBE", &confirmed("subscribe", "hot"), || {}).await;
    timeout(LONG, stays.take_ready().unwrap()).await.expect("the subscription is confirmed");
}
