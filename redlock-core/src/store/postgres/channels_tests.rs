use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::channels::Channels;
use super::link::{LinkDriver, LinkEvent, ServerLink};
use super::played_server::PlayedServer;
use super::sql::Statement;
use crate::clock::fake::RuntimeClock;
use crate::node::Subscription;

async fn connect(channels: &Arc<Channels>) -> (PlayedServer, Arc<ServerLink>) {
    let (server, connected) = PlayedServer::connect(false).await;
    let clock = Arc::new(RuntimeClock::new());
    let (link, driver) = LinkDriver::new(connected, Duration::from_secs(60), clock);
    let channels = Arc::clone(channels);
    tokio::spawn(driver.run(
        move |event| {
            if let LinkEvent::Notified(channel) = event {
                channels.notify(&channel);
            }
        },
        || true,
    ));
    (server, Arc::new(link))
}

/// Subscribes to a channel. The counter counts the notifications.
fn subscribe(channels: &Arc<Channels>, name: &str) -> (Subscription, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let notify = move || {
        counter.fetch_add(1, Ordering::Relaxed);
    };
    (channels.subscribe(name.into(), Arc::new(notify)), count)
}

/// Waits for a command, and answers it.
async fn executes(server: &mut PlayedServer, command: &str) {
    let request = server.operation().await;
    assert_eq!(request.sql, command);
    server.answer(&request, None).await;
}

#[tokio::test(start_paused = true)]
async fn a_channel_is_listened_to_while_it_has_subscribers() {
    let channels = Arc::<Channels>::default();
    let (mut server, link) = connect(&channels).await;
    channels.use_link(&link).await;
    let (mut first, _) = subscribe(&channels, "a");
    let (second, count) = subscribe(&channels, "a");
    executes(&mut server, "listen a").await;
    first.take_ready().unwrap().await;
    drop(first);
    server.notify("a").await;
    let (mut other, _) = subscribe(&channels, "b");
    executes(&mut server, "listen b").await;
    other.take_ready().unwrap().await;
    assert_eq!(count.load(Ordering::Relaxed), 1);
    drop(second);
    executes(&mut server, "unlisten a").await;
}

/// A release may have been notified while there was no connection.
#[tokio::test(start_paused = true)]
async fn a_new_connection_listens_again_and_then_wakes_each_waiter_once() {
    let channels = Arc::<Channels>::default();
    let (_subscription, count) = subscribe(&channels, "a");
    for connections in 0..2 {
        let (mut server, link) = connect(&channels).await;
        let listening = async {
            let request = server.operation().await;
            assert_eq!(request.sql, "listen a");
            assert_eq!(count.load(Ordering::Relaxed), connections, "it does not listen yet");
            server.answer(&request, None).await;
        };
        tokio::join!(channels.use_link(&link), listening);
        assert_eq!(count.load(Ordering::Relaxed), connections + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_notification_of_itself_is_noticed() {
    for is_lost in [false, true] {
        let channels = Arc::<Channels>::default();
        let (mut server, link) = connect(&channels).await;
        channels.use_link(&link).await;
        let play = async {
            let request = server.operation().await;
            let channel = request.sql.strip_prefix("listen ").unwrap().to_owned();
            server.answer(&request, None).await;
            let request = server.operation().await;
            assert!(request.is(Statement::Notify));
            if !is_lost {
                server.notify(&channel).await;
            }
            server.answer(&request, None).await;
            server
        };
        let (are_notified, _server) = tokio::join!(channels.are_notified(&link), play);
        assert_eq!(are_notified.unwrap(), !is_lost);
    }
}
