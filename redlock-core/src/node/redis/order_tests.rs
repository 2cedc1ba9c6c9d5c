//! What is asked first is sent first (invariant 6).

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bb8_redis::redis::{Cmd, cmd};
use tokio::io::{AsyncReadExt, DuplexStream};

use super::connection::played_server::link;

/// Reads what the server is sent, until it is as long as what is expected.
async fn arrives(server: &mut DuplexStream, expected: &str) {
    let mut arrived = vec![0; expected.len()];
    let count = tokio::time::timeout(Duration::from_secs(5), server.read_exact(&mut arrived));
    let count = count.await.expect("a question was not sent by its first poll").unwrap();
    assert_eq!(String::from_utf8_lossy(&arrived[..count]), expected);
}

fn packed(command: &Cmd) -> String {
    String::from_utf8(command.get_packed_command()).unwrap()
}

/// The answer to a lock that is asked for may be polled next after its clean-up, in another task. A
/// task that has done much without a pause finds nothing ready, but what it asks has its place.
#[tokio::test(start_paused = true)]
async fn a_clean_up_does_not_overtake_what_a_task_without_budget_has_asked() {
    let (link, mut server) = link().await;
    let (set, delete) = (cmd("SET"), cmd("DEL"));
    let (mut setting, mut deleting) = (pin!(link.ask(&set)), pin!(link.ask(&delete)));
    let first = std::future::poll_fn(|cx| {
        while pin!(tokio::task::consume_budget()).poll(cx).is_ready() {}
        Poll::Ready(setting.as_mut().poll(cx))
    });
    assert!(first.await.is_pending());
    tokio::task::yield_now().await;
    assert!(futures_util::poll!(&mut deleting).is_pending());
    assert!(futures_util::poll!(&mut setting).is_pending());
    arrives(&mut server, &(packed(&set) + &packed(&delete))).await;
}

/// Whatever waits for a place in a queue could be overtaken by its clean-up.
#[tokio::test(start_paused = true)]
async fn a_question_is_sent_by_its_first_poll_however_many_came_before() {
    const QUESTIONS: usize = 10_000;
    let (link, mut server) = link().await;
    let commands: Vec<Cmd> = (0..QUESTIONS).map(|number| cmd("GET").arg(number).clone()).collect();
    let mut questions: Vec<_> =
        commands.iter().map(|command| Box::pin(link.ask(command))).collect();
    for question in &mut questions {
        assert!(futures_util::poll!(question).is_pending());
    }
    arrives(&mut server, &commands.iter().map(packed).collect::<String>()).await;
}
