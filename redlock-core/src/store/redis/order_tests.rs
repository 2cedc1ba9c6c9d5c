//! Commands are sent in the order of their first polls (an abandoned attempt leaves nothing
//! behind).

use std::collections::HashSet;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bb8_redis::redis::{Cmd, cmd};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};

use super::link::BATCH_FROM;
use super::server::connection::Connection;
use super::server::played_server::played_connection;

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
    let (connection, mut server) = played_connection();
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
    let (connection, mut server) = played_connection();
    let commands: Vec<Cmd> = (0..COMMANDS).map(|number| cmd("GET").arg(number).clone()).collect();
    let mut replies: Vec<_> =
        commands.iter().map(|command| Box::pin(connection.send(command))).collect();
    for reply in &mut replies {
        assert!(futures_util::poll!(reply).is_pending());
    }
    assert_arrives(&mut server, &commands.iter().map(packed).collect::<String>()).await;
}

type Sent = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Returns a future that sends a command by its first poll, and completes with the reply.
fn send(connection: &Arc<Connection>, command: &Cmd) -> Sent {
    let (connection, command) = (Arc::clone(connection), command.clone());
    Box::pin(async move { drop(connection.send(&command).await) })
}

/// Sends so many commands that each later write waits once for further commands. They have arrived, and are
/// never answered.
async fn crowd(connection: &Arc<Connection>, server: &mut DuplexStream) -> Vec<Sent> {
    let ping = cmd("PING");
    let mut awaited: Vec<_> = (0..BATCH_FROM).map(|_| send(connection, &ping)).collect();
    for command in &mut awaited {
        assert!(futures_util::poll!(command).is_pending());
    }
    assert_arrives(server, &packed(&ping).repeat(BATCH_FROM)).await;
    awaited
}

/// Runs a task after the driver of the connection was polled once, and before it is polled again.
async fn before_the_next_poll_of_the_driver<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> T {
    // The current-thread runtime runs its tasks in the order in which they are woken: the driver first, which
    // wakes itself, then this task.
    tokio::spawn(task).await.unwrap()
}

fn assert_nothing_arrives(server: &mut DuplexStream) {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let mut byte = [0];
    let read = pin!(server.read(&mut byte)).poll(&mut cx);
    assert!(read.is_pending(), "the write did not wait");
}

/// The caller of an acquisition goes away while the write waits for further commands. The acquisition was
/// taken into the write, so its clean-up must follow it in the same one.
#[tokio::test(start_paused = true)]
async fn a_command_whose_caller_goes_while_the_write_waits_is_sent_before_its_clean_up() {
    let (connection, mut server) = played_connection();
    let connection = Arc::new(connection);
    let _crowd = crowd(&connection, &mut server).await;
    let (set, delete) = (cmd("SET"), cmd("DEL"));
    let (mut setting, mut deleting) = (send(&connection, &set), send(&connection, &delete));
    assert!(futures_util::poll!(&mut setting).is_pending());
    let (mut server, _deleting) = before_the_next_poll_of_the_driver(async move {
        assert_nothing_arrives(&mut server);
        drop(setting);
        assert!(futures_util::poll!(&mut deleting).is_pending());
        (server, deleting)
    })
    .await;
    assert_arrives(&mut server, &(packed(&set) + &packed(&delete))).await;
}

/// The other commands are answered while the write waits, so that few are left in flight.
#[tokio::test(start_paused = true)]
async fn a_write_that_waits_is_sent_although_the_other_commands_are_answered_meanwhile() {
    let (connection, mut server) = played_connection();
    let connection = Arc::new(connection);
    let crowd = crowd(&connection, &mut server).await;
    let (set, delete) = (cmd("SET"), cmd("DEL"));
    let (mut setting, mut deleting) = (send(&connection, &set), send(&connection, &delete));
    assert!(futures_util::poll!(&mut setting).is_pending());
    let (mut server, setting, deleting) = before_the_next_poll_of_the_driver(async move {
        assert_nothing_arrives(&mut server);
        drop(crowd);
        assert!(futures_util::poll!(&mut deleting).is_pending());
        (server, setting, deleting)
    })
    .await;
    assert_arrives(&mut server, &(packed(&set) + &packed(&delete))).await;
    server.write_all("+OK\r\n".repeat(BATCH_FROM + 2).as_bytes()).await.unwrap();
    let replies = async { futures_util::join!(setting, deleting) };
    tokio::time::timeout(Duration::from_secs(5), replies).await.unwrap();
}

/// The buffers of both directions are full: the server reads no command before its replies are read.
#[tokio::test(start_paused = true)]
async fn replies_are_read_while_the_server_takes_no_commands() {
    const COMMANDS: usize = 1000;
    let (connection, mut server) = played_connection();
    let (connection, ping) = (Arc::new(connection), cmd("PING"));
    let length = packed(&ping).len();
    let reply = format!("${}\r\n{}\r\n", 300, "-".repeat(300));
    let mut awaited =
        futures_util::future::join_all((0..COMMANDS).map(|_| send(&connection, &ping)));
    assert!(futures_util::poll!(&mut awaited).is_pending());
    let server = async {
        for _ in 0..COMMANDS {
            server.read_exact(&mut vec![0; length]).await.unwrap();
            server.write_all(reply.as_bytes()).await.unwrap();
        }
    };
    let all = async { futures_util::join!(server, awaited) };
    tokio::time::timeout(Duration::from_secs(10), all).await.expect("all are answered");
}

/// Reads the keys of `SET` and `DEL` until `count` keys were deleted, and checks that no key is set after it was
/// deleted. Returns how many keys were set.
async fn assert_no_key_is_set_after_its_clean_up(server: &mut DuplexStream, count: usize) -> usize {
    let (mut set, mut deleted) = (HashSet::new(), HashSet::new());
    let mut lines = BufReader::new(server).lines();
    while deleted.len() < count {
        let line = lines.next_line().await.unwrap().unwrap();
        if line != "SET" && line != "DEL" {
            continue;
        }
        let _length = lines.next_line().await.unwrap();
        let key = lines.next_line().await.unwrap().unwrap();
        if line == "SET" {
            assert!(!deleted.contains(&key), "the clean-up of {key} has overtaken it");
            assert!(set.insert(key));
        } else {
            assert!(deleted.insert(key));
        }
    }
    set.len()
}

/// Callers on several threads send an acquisition and then its clean-up. Some of them abandon the acquisition at
/// once. The driver leaves a command out if its caller is gone before the driver takes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_clean_up_overtakes_on_a_connection_with_many_callers() {
    const CALLERS: usize = 64;
    const ROUNDS: usize = 50;
    let (connection, mut server) = played_connection();
    let connection = Arc::new(connection);
    let _crowd = crowd(&connection, &mut server).await;
    let call = |caller: usize| {
        let connection = Arc::clone(&connection);
        async move {
            let mut deletions = Vec::new();
            for round in 0..ROUNDS {
                let key = format!("{caller}-{round}");
                let mut setting = send(&connection, cmd("SET").arg(&key));
                assert!(futures_util::poll!(&mut setting).is_pending());
                if round % 2 == 0 {
                    // The driver may run meanwhile.
                    tokio::task::yield_now().await;
                }
                drop(setting);
                let mut deleting = send(&connection, cmd("DEL").arg(&key));
                assert!(futures_util::poll!(&mut deleting).is_pending());
                deletions.push(deleting);
                tokio::task::yield_now().await;
            }
            deletions
        }
    };
    let callers: Vec<_> = (0..CALLERS).map(|caller| tokio::spawn(call(caller))).collect();
    let arrive = assert_no_key_is_set_after_its_clean_up(&mut server, CALLERS * ROUNDS);
    let set = tokio::time::timeout(Duration::from_secs(60), arrive).await.unwrap();
    assert!(set > 0, "no acquisition was sent");
    for caller in callers {
        caller.await.unwrap();
    }
}
