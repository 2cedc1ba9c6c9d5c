//! Commands are sent in the order of their first polls (an abandoned attempt leaves nothing
//! behind).

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bb8_redis::redis::{Cmd, cmd};
use tokio::io::{AsyncReadExt, DuplexStream};

use super::connection::played_server::played_connection;

/// Reads from the server end as many bytes as expected, and compares them.
async fn assert_arrives(server: &mut DuplexStream, expected: &str) {
    let mut arrived = vec![0; expected.len()];
    let count = tokio::time::timeout(Duration::from_secs(5), server.read_exact(&mut arrived));
    let count = count.await.expect("a command was not sent by its first poll").unwrap();
    assert_eq!(String::from_utf8_lossy(&arrived[..count]), expected);
}

fn packed(command: &Cmd) -> String {
    String::from_utf8(command.get_packed_command()).unwrap()
}

/// An acquisition may be polled again only after its clean-up, which runs in another task. A task
/// without budget finds nothing ready, but its command must already have its place in the queue.
#[tokio::test(start_paused = true)]
async fn a_clean_up_does_not_overtake_the_command_of_a_task_without_budget() {
    let (connection, mut server) = played_connection().await;
    let (set, delete) = (cmd("SET"), cmd("DEL"));
    let (mut setting, mut deleting) = (pin!(connection.send(&set)), pin!(connection.send(&delete)));
    let first = std::future::poll_fn(|cx| {
        while pin!(tokio::task::consume_budget()).poll(cx).is_ready() {}
        Poll::Ready(setting.as_mut().poll(cx))
    });
    assert!(first.await.is_pending());
    tokio::task::yield_now().await;
    assert!(futures_util::poll!(&mut deleting).is_pending());
    assert!(futures_util::poll!(&mut setting).is_pending());
    assert_arrives(&mut server, &(packed(&set) + &packed(&delete))).await;
}

/// A command that waited for a place in a queue could be overtaken by its clean-up.
#[tokio::test(start_paused = true)]
async fn a_command_is_sent_by_its_first_poll_however_many_came_before() {
    const COMMANDS: usize = 10_000;
    let (connection, mut server) = played_connection().await;
    let commands: Vec<Cmd> = (0..COMMANDS).map(|number| cmd("GET").arg(number).clone()).collect();
    let mut replies: Vec<_> =
        commands.iter().map(|command| Box::pin(connection.send(command))).collect();
    for reply in &mut replies {
        assert!(futures_util::poll!(reply).is_pending());
    }
    assert_arrives(&mut server, &commands.iter().map(packed).collect::<String>()).await;
}
