//! Servers that refuse subscriptions.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use super::connection::played_server::{played_connection, serve};
use super::subscriptions::{RETRY_PAUSE, Subscriptions};
use crate::log_limit::LogLimit;
use crate::node::Subscription;

const BUSY: &str = "-BUSY Redis is busy running a script.\r\n";
const DENIED: &str = "-NOPERM No permissions to access a channel\r\n";
const LONG: Duration = Duration::from_secs(60);

fn confirmed(what: &str, channel: &str) -> String {
    format!(">3\r\n${}\r\n{what}\r\n${}\r\n{channel}\r\n:1\r\n", what.len(), channel.len())
}

fn listen(channels: &Arc<Subscriptions>, name: &str) -> Subscription {
    channels.subscribe(&name.into(), false, Arc::new(|| {}))
}

/// Without a second attempt, a key that always has waiters, such as a hot key, would never get its
/// subscription.
#[tokio::test(start_paused = true)]
async fn a_server_that_was_busy_is_asked_again_after_a_pause() {
    let (connection, mut server) = played_connection();
    let channels = Arc::new(Subscriptions::default());
    let mut subscription = listen(&channels, "hot");
    let play = async {
        serve(&mut server, "SUBSCRIBE", BUSY, || {}).await;
        subscription.take_ready().unwrap().await;
        for reply in [BUSY, &confirmed("subscribe", "hot")] {
            let refused = Instant::now();
            serve(&mut server, "SUBSCRIBE", reply, || {}).await;
            assert!(refused.elapsed() + Duration::from_millis(10) >= RETRY_PAUSE);
        }
        let silence = timeout(LONG, server.read_u8()).await;
        assert!(silence.is_err(), "the subscription is confirmed, so nothing else is sent");
        drop(subscription);
        serve(&mut server, "UNSUBSCRIBE", &confirmed("unsubscribe", "hot"), || {}).await;
    };
    let log_limit = LogLimit::default();
    tokio::select! {
        biased;
        () = channels.serve(&connection, "", &log_limit) => unreachable!(),
        played = timeout(2 * LONG, play) => played.expect("the test ends in time"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_channel_does_not_affect_the_others() {
    let (connection, mut server) = played_connection();
    let channels = Arc::new(Subscriptions::default());
    let (mut one, mut two) = (listen(&channels, "denied"), listen(&channels, "permitted"));
    let play = async {
        let mut commands = String::new();
        while !commands.ends_with("permitted\r\n") {
            commands.push(char::from(server.read_u8().await.unwrap()));
        }
        assert_eq!(commands.matches("SUBSCRIBE").count(), 2, "{commands}");
        let replies = DENIED.to_owned() + &confirmed("subscribe", "permitted");
        server.write_all(replies.as_bytes()).await.unwrap();
        one.take_ready().unwrap().await;
        two.take_ready().unwrap().await;
        let silence = timeout(LONG, server.read_u8()).await;
        assert!(silence.is_err(), "the forbidden channel is not requested again");
        drop((one, two));
        serve(&mut server, "UNSUBSCRIBE", &confirmed("unsubscribe", "permitted"), || {}).await;
    };
    let log_limit = LogLimit::default();
    tokio::select! {
        biased;
        () = channels.serve(&connection, "", &log_limit) => unreachable!(),
        played = timeout(2 * LONG, play) => played.expect("the test ends in time"),
    }
}
