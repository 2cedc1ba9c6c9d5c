//! No reply reaches another command than its own, and no caller waits for a reply that cannot come.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::{Cmd, RedisError, Value, cmd};
use futures_util::FutureExt;
use futures_util::future::join_all;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex,
};
use tokio::time::timeout;

use super::driver::{BATCH_FROM, KEPT_BATCH, SLICES, emptied};
use super::socket::Socket;
use super::{Event, Link, Prefix};

const SOON: Duration = Duration::from_secs(120);
const OK: &str = "+OK\r\n";
const NIL: &str = "_\r\n";

fn link(capacity: usize) -> (Link, DuplexStream) {
    let (client, server) = duplex(capacity);
    (Link::start(Socket::played(client), true, |_| {}), server)
}

/// The events that a link has handed on.
#[derive(Default)]
struct Seen {
    pushes: usize,
    /// The replies to subscriptions, by their IDs.
    subscribed: HashMap<u64, Result<(), RedisError>>,
}

/// Returns a link, the end of its server, and the events that the link hands on.
fn link_with_events(capacity: usize) -> (Link, DuplexStream, Arc<Mutex<Seen>>) {
    let (client, server) = duplex(capacity);
    let seen = Arc::new(Mutex::new(Seen::default()));
    let events = Arc::clone(&seen);
    let on_event = move |event| {
        let mut seen = events.lock();
        match event {
            Event::Push(..) => seen.pushes += 1,
            Event::Subscribed { id, channel, result } => {
                assert!(*channel == *format!("c{id}") || *channel == *"hot", "{channel}: {id}");
                assert!(seen.subscribed.insert(id, result).is_none(), "{id} is confirmed twice");
            }
            Event::TrackingRefused(_) | Event::Read { .. } | Event::AllRead => {}
        }
    };
    (Link::start(Socket::played(client), true, on_event), server, seen)
}

fn set(key: &str) -> Cmd {
    cmd("SET").arg(key).arg("token").arg("NX").clone()
}

fn push(kind: &str, channel: &str) -> String {
    format!(">3\r\n${}\r\n{kind}\r\n${}\r\n{channel}\r\n:0\r\n", kind.len(), channel.len())
}

async fn read_exactly(server: &mut DuplexStream, count: usize) -> String {
    let mut bytes = vec![0; count];
    timeout(SOON, server.read_exact(&mut bytes)).await.expect("commands").unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Reads commands to the end of the last one.
async fn read_until(server: &mut DuplexStream, end: &str) {
    let mut commands = String::new();
    while !commands.ends_with(end) {
        commands.push_str(&read_exactly(server, 1).await);
    }
}

/// The kinds of pushes of the servers, kinds that no server has, and a push that contains another one.
fn unasked_pushes() -> Vec<String> {
    let kinds = [
        "subscribe",
        "unsubscribe",
        "psubscribe",
        "punsubscribe",
        "ssubscribe",
        "sunsubscribe",
        "message",
        "smessage",
        "invented",
    ];
    let mut pushes: Vec<_> = kinds.iter().map(|kind| push(kind, "channel")).collect();
    pushes.extend([
        ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n".to_owned(),
        ">4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$7\r\nchannel\r\n$1\r\n0\r\n".to_owned(),
        format!(">2\r\n$5\r\nouter\r\n{}", push("subscribe", "channel")),
        format!("|1\r\n+ttl\r\n:1\r\n{}", push("subscribe", "channel")),
        ">1\r\n$9\r\nsubscribe\r\n".to_owned(),
    ]);
    pushes
}

/// The redis crate (1.8.1) takes such a push for the reply to the oldest command, and each later reply for the reply to the
/// next command: half of 2,000 callers had a lock that another one had.
#[tokio::test]
async fn an_unasked_push_does_not_turn_a_refusal_into_a_grant() {
    const COMMANDS: usize = 2000;
    for unasked in unasked_pushes() {
        let (link, mut server, seen) = link_with_events(4096);
        let commands: Vec<Cmd> = (0..COMMANDS).map(|number| set(&number.to_string())).collect();
        let length: usize = commands.iter().map(|command| command.get_packed_command().len()).sum();
        let answers = async {
            read_exactly(&mut server, length).await;
            for number in 0..COMMANDS {
                if number == COMMANDS / 4 {
                    server.write_all(unasked.as_bytes()).await.unwrap();
                }
                let answer = if number % 2 == 0 { OK } else { NIL };
                server.write_all(answer.as_bytes()).await.unwrap();
            }
        };
        let replies = join_all(commands.iter().map(|command| link.send(command)));
        let (replies, ()) =
            timeout(SOON, futures_util::future::join(replies, answers)).await.unwrap();
        for (number, reply) in replies.into_iter().enumerate() {
            let expected = if number % 2 == 0 { Value::Okay } else { Value::Nil };
            assert_eq!(reply.unwrap(), expected, "{unasked:?}: reply {number}");
        }
        assert_eq!(seen.lock().pushes, 1, "{unasked:?}");
    }
}

/// The answer of the server in the random test.
enum Answer {
    Reply(Value),
    Error,
}

/// Returns the answer to the command with this number, and its bytes.
fn answer_to(seed: u64, number: u64) -> (Answer, String) {
    let mut choices = StdRng::seed_from_u64(seed << 32 | number);
    let number = i64::try_from(number).unwrap();
    let text = "x".repeat(choices.random_range(0..200));
    match choices.random_range(0..6) {
        0 => (Answer::Error, "-ERR no\r\n".to_owned()),
        1 => (Answer::Reply(Value::Nil), NIL.to_owned()),
        2 => (Answer::Reply(Value::Int(number)), format!(":{number}\r\n")),
        3 => {
            let bytes = format!("${}\r\n{text}{number}\r\n", text.len() + number.to_string().len());
            (Answer::Reply(Value::BulkString(format!("{text}{number}").into_bytes())), bytes)
        }
        // Beside a reply, a server may send an attribute.
        4 => {
            let values = vec![Value::Int(number), Value::Nil];
            (
                Answer::Reply(Value::Array(values)),
                format!("|1\r\n+ttl\r\n:1\r\n*2\r\n:{number}\r\n_\r\n"),
            )
        }
        _ => (Answer::Reply(Value::Okay), OK.to_owned()),
    }
}

/// Returns whether the server permits the change of the subscription with this number, and its answer.
fn confirmation_of(seed: u64, number: u64) -> (bool, String) {
    if (seed + number).is_multiple_of(5) {
        return (false, "-NOPERM no\r\n".to_owned());
    }
    let kind = if number.is_multiple_of(2) { "subscribe" } else { "unsubscribe" };
    (true, push(kind, &format!("c{number}")))
}

/// Reads the words of the next command; `None` at the end.
async fn next_command(commands: &mut (impl AsyncBufRead + Unpin)) -> Option<Vec<String>> {
    let mut line = String::new();
    commands.read_line(&mut line).await.unwrap();
    let count = line.strip_prefix('*')?.trim_end().parse().unwrap();
    let mut words = Vec::new();
    for _ in 0..count {
        let mut length = String::new();
        commands.read_line(&mut length).await.unwrap();
        let mut word = String::new();
        commands.read_line(&mut word).await.unwrap();
        assert_eq!(format!("${}", word.trim_end().len()), length.trim_end());
        words.push(word.trim_end().to_owned());
    }
    Some(words)
}

/// Answers all commands in pieces of any length, with unasked pushes between them. Returns the number of these pushes.
async fn play(server: DuplexStream, seed: u64) -> usize {
    let choices = &mut StdRng::seed_from_u64(seed);
    let unasked = unasked_pushes();
    let (read, mut write) = tokio::io::split(server);
    let mut commands = BufReader::with_capacity(choices.random_range(16..600), read);
    let (mut answers, mut unasked_count, mut is_asking) = (Vec::new(), 0, false);
    while let Some(command) = next_command(&mut commands).await {
        while choices.random_range(0..4) == 0 {
            answers.extend(unasked[choices.random_range(0..unasked.len())].bytes());
            unasked_count += 1;
        }
        let number = |word: &str| word.trim_start_matches('c').parse().unwrap();
        let answer = match command[0].as_str() {
            "ASKING" => OK.to_owned(),
            "GET" => answer_to(seed, number(&command[1])).1,
            _ => confirmation_of(seed, number(&command[1])).1,
        };
        assert!(!is_asking || command[0] == "GET", "a command came between: {command:?}");
        is_asking = command[0] == "ASKING";
        answers.extend(answer.bytes());
        // If no further command is there, its caller may wait for these answers.
        if commands.buffer().is_empty() || choices.random_range(0..8) == 0 {
            for piece in std::mem::take(&mut answers).chunks(choices.random_range(1..100)) {
                write.write_all(piece).await.unwrap();
            }
        }
    }
    unasked_count
}

fn get(number: u64) -> Vec<u8> {
    cmd("GET").arg(number).get_packed_command()
}

/// Sends two commands as one, and returns the first reply.
fn call_pair(
    link: &Link,
    seed: u64,
    number: u64,
) -> impl Future<Output = Result<Value, RedisError>> {
    let replies = link.send_pair([get(number), get(number + 1000)].concat().into());
    async move {
        let [first, second] = replies.await?;
        match (second.extract_error(), answer_to(seed, number + 1000).0) {
            (Ok(second), Answer::Reply(expected)) => assert_eq!(second, expected),
            (second, answer) => {
                assert!(second.is_err() && matches!(answer, Answer::Error), "{second:?}");
            }
        }
        first.extract_error()
    }
}

/// Frames are cut, merged and mixed, and some callers drop their requests.
#[tokio::test]
async fn every_caller_gets_its_own_reply_however_the_frames_arrive() {
    for seed in 0..50 {
        let choices = &mut StdRng::seed_from_u64(seed);
        let (link, server, seen) = link_with_events(choices.random_range(16..600));
        let played = tokio::spawn(play(server, seed));
        let (mut calls, mut subscribed) = (Vec::new(), Vec::new());
        for number in 0..500 {
            if number < 499 && choices.random_range(0..5) == 0 {
                let channel = format!("c{number}").into();
                if number % 2 == 0 {
                    link.subscribe(&channel, number);
                    subscribed.push(number);
                } else {
                    link.unsubscribe(&channel);
                }
                continue;
            }
            let is_asking = choices.random_range(0..8) == 0;
            let prefix = if is_asking { Prefix::Asking } else { Prefix::None };
            let reply = if choices.random_range(0..4) == 0 {
                call_pair(&link, seed, number).boxed()
            } else {
                link.send_packed(get(number).into(), prefix).boxed()
            };
            let answer = answer_to(seed, number).0;
            match choices.random_range(0..8) {
                _ if number == 499 => calls.push((number, reply, answer)),
                0 => drop(reply),
                1 => {
                    tokio::task::yield_now().await;
                    drop(reply);
                }
                _ => calls.push((number, reply, answer)),
            }
        }
        let calls =
            calls.into_iter().map(async |(number, reply, answer)| (number, reply.await, answer));
        let replies = timeout(SOON, join_all(calls)).await.expect("all replies");
        for (number, reply, answer) in replies {
            match answer {
                Answer::Reply(expected) => assert_eq!(reply.unwrap(), expected, "{seed}: {number}"),
                Answer::Error => assert!(!reply.unwrap_err().is_io_error(), "{seed}: {number}"),
            }
        }
        drop(link);
        let unasked = timeout(SOON, played).await.expect("the end of the link").unwrap();
        let seen = seen.lock();
        assert_eq!(seen.pushes, unasked, "{seed}: pushes");
        // The last command was answered after all of them.
        assert_eq!(seen.subscribed.len(), subscribed.len(), "{seed}");
        for id in subscribed {
            let is_permitted = confirmation_of(seed, id).0;
            assert_eq!(seen.subscribed[&id].is_ok(), is_permitted, "{seed}: {id}");
        }
    }
}

/// Sends a change of a subscription, or otherwise a command, and then another command. The server answers with these
/// bytes when both have arrived. Returns the reply to the first command, unless it has none, and to the second one.
async fn answered_by(
    first: Option<&str>,
    bytes: String,
) -> (Link, DuplexStream, Option<Result<(), RedisError>>, Result<Value, RedisError>) {
    let (link, mut server, seen) = link_with_events(4096);
    let (first, second) = {
        let ping = cmd("PING");
        let first = match first {
            Some(change) => {
                match change {
                    "subscribe" => link.subscribe(&"hot".into(), 7),
                    _ => link.unsubscribe(&"hot".into()),
                }
                async { None }.boxed()
            }
            None => link.send(&ping).map(|reply| Some(reply.map(drop))).boxed(),
        };
        let second = link.send(&set("k"));
        let answer = async {
            let mut commands = String::new();
            while !commands.ends_with("$2\r\nNX\r\n") {
                commands.push_str(&read_exactly(&mut server, 1).await);
            }
            server.write_all(bytes.as_bytes()).await.unwrap();
        };
        let all = async { futures_util::join!(first, second, answer) };
        let (first, second, ()) = timeout(SOON, all).await.expect("both are answered");
        (first, second)
    };
    let first = first.or_else(|| seen.lock().subscribed.remove(&7));
    (link, server, first, second)
}

#[tokio::test]
async fn a_subscription_is_answered_by_its_own_confirmation_or_by_an_error() {
    for kind in ["subscribe", "unsubscribe"] {
        let is_subscription = kind == "subscribe";
        let other = if is_subscription { "unsubscribe" } else { "subscribe" };
        let ignored = push(kind, "cold") + &push(other, "hot") + &push("message", "hot");
        let confirmed = ignored.clone() + &push(kind, "hot") + OK;
        let (link, _server, first, second) = answered_by(Some(kind), confirmed).await;
        assert_eq!(first, is_subscription.then_some(Ok(())));
        assert!(second.unwrap() == Value::Okay && link.is_alive());
        let denied = ignored + "-NOPERM no\r\n" + OK;
        let (link, _server, first, second) = answered_by(Some(kind), denied).await;
        let code = first.map(|first| first.unwrap_err().code().map(str::to_owned));
        assert_eq!(code, is_subscription.then_some(Some("NOPERM".to_owned())));
        assert!(second.unwrap() == Value::Okay && link.is_alive());
    }
}

#[tokio::test]
async fn a_frame_that_does_not_fit_ends_the_link_and_wakes_all_callers() {
    let subscribe = Some("subscribe");
    for (first, bytes, reason) in [
        (subscribe, format!("{OK}{OK}"), "a reply in place of a confirmation"),
        (subscribe, format!("*3\r\n$9\r\nsubscribe\r\n$3\r\nhot\r\n:1\r\n{OK}"), "in place of"),
        (None, "no RESP\r\n".to_owned(), "Parse"),
    ] {
        let (link, mut server, reply, second) = answered_by(first, bytes.clone()).await;
        assert!(reply.is_none_or(|reply| reply.unwrap_err().is_io_error()), "{bytes:?}");
        assert!(second.unwrap_err().is_io_error(), "{bytes:?}");
        let why = link.ended().await;
        assert!(why.contains(reason), "{bytes:?}: {why}");
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0, "the socket is closed");
    }
    for (bytes, reason) in [
        (OK, "a reply to no command"),
        ("-ERR max number of clients reached\r\n", "ERR max number"),
    ] {
        let (link, mut server) = link(4096);
        server.write_all(bytes.as_bytes()).await.unwrap();
        let why = timeout(SOON, link.ended()).await.unwrap();
        assert!(why.contains(reason), "{why}");
    }
}

/// A server could otherwise fill the memory of its clients.
#[tokio::test]
async fn a_reply_of_more_than_a_mebibyte_ends_the_link() {
    const MEBIBYTE: usize = 1024 * 1024;
    // The buffer of the link may already hold the beginning of the next reply.
    for (length, is_read) in [(MEBIBYTE - 10_000, true), (MEBIBYTE + 1, false)] {
        let (link, mut server) = link(4096);
        let replies = join_all((0..3).map(|_| link.send(&cmd("INFO"))));
        let answers = async {
            let reply = format!("${length}\r\n{}\r\n", "x".repeat(length)).repeat(3);
            // Fails if the link ends.
            let _ = server.write_all(reply.as_bytes()).await;
        };
        let (replies, ()) =
            timeout(SOON, futures_util::future::join(replies, answers)).await.unwrap();
        for reply in replies {
            match reply {
                Ok(Value::BulkString(text)) => assert!(is_read && text.len() == length),
                other => assert!(!is_read, "{other:?}"),
            }
        }
        assert_eq!(link.is_alive(), is_read);
        if !is_read {
            assert!(link.ended().await.contains("1048576"));
        }
    }
}

/// The socket takes no bytes, so that the driver is in the middle of a write.
#[tokio::test]
async fn the_end_interrupts_a_write_to_a_server_that_reads_nothing() {
    let (link, _server) = link(16);
    let commands: Vec<Cmd> = (0..2000).map(|number| set(&number.to_string())).collect();
    let replies = join_all(commands.iter().map(|command| link.send(command)));
    let end = async {
        tokio::task::yield_now().await;
        link.end("the test ends it");
        link.stopped().await;
    };
    let all = futures_util::future::join(replies, end);
    let (replies, ()) = timeout(SOON, all).await.expect("the link ends");
    for reply in replies {
        assert!(reply.unwrap_err().to_string().contains("the test ends it"));
    }
}

/// Another connection may have replaced the link, and its server may have started anew.
#[tokio::test(start_paused = true)]
async fn a_reply_that_has_arrived_does_not_count_after_the_end() {
    let (link, mut server) = link(4096);
    let command = set("k");
    let mut reply = Box::pin(link.send(&command));
    assert!(futures_util::poll!(&mut reply).is_pending());
    read_exactly(&mut server, command.get_packed_command().len()).await;
    server.write_all(OK.as_bytes()).await.unwrap();
    // The driver reads the reply.
    tokio::time::sleep(Duration::from_millis(1)).await;
    link.end("the test ends it");
    assert!(reply.await.unwrap_err().to_string().contains("the test ends it"));
}

/// A command that is sent at the moment of the end must not stay in the queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_caller_waits_on_a_link_that_ends_at_the_same_time() {
    for _ in 0..300 {
        let (link, server) = link(64);
        let link = Arc::new(link);
        let callers: Vec<_> = (0..4)
            .map(|_| {
                let link = Arc::clone(&link);
                tokio::spawn(async move { while link.send(&cmd("PING")).await.is_ok() {} })
            })
            .collect();
        drop(server);
        timeout(SOON, join_all(callers)).await.expect("every caller returns");
    }
}

/// Otherwise each attempt to connect to a server that has stopped would leave a socket and a task.
#[tokio::test]
async fn a_link_that_is_dropped_ends_at_once() {
    for capacity in [16, 4096] {
        let (link, mut server) = link(capacity);
        let command = set("k");
        let mut reply = Box::pin(link.send(&command));
        assert!(futures_util::poll!(&mut reply).is_pending());
        // The driver writes. The server of the first link takes a part of the command only.
        tokio::task::yield_now().await;
        drop(reply);
        drop(link);
        let mut commands = Vec::new();
        timeout(SOON, server.read_to_end(&mut commands)).await.expect("the end").unwrap();
        assert!(!commands.is_empty());
    }
}

#[test]
fn callers_learn_that_the_runtime_of_the_link_has_ended() {
    let (runtime, other) = (runtime(), runtime());
    let (link, _server) = runtime.block_on(async { link(4096) });
    let command = cmd("PING");
    let reply = link.send(&command);
    drop(runtime);
    let error = other.block_on(async { timeout(SOON, reply).await.expect("the end").unwrap_err() });
    assert!(error.to_string().contains("runtime") && !link.is_alive(), "{error}");
    other.block_on(async { timeout(SOON, link.stopped()).await.expect("the driver has stopped") });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[tokio::test]
async fn a_panic_of_the_driver_ends_the_link() {
    let (client, mut server) = duplex(4096);
    let link = Link::start(Socket::played(client), false, |_| panic!("the test panics"));
    let reply = link.send(&cmd("PING"));
    server.write_all(push("message", "hot").as_bytes()).await.unwrap();
    assert!(timeout(SOON, reply).await.unwrap().unwrap_err().is_io_error());
    timeout(SOON, link.stopped()).await.expect("the driver has stopped");
}

/// Nobody needs the reply. But the server must not keep a subscription without subscribers.
#[tokio::test]
async fn the_command_of_a_caller_that_is_gone_is_not_sent_unless_it_ends_a_subscription() {
    let (link, mut server) = link(4096);
    drop(link.send(&set("gone")));
    drop(link.send_packed(set("asking").get_packed_command().into(), Prefix::Asking));
    link.unsubscribe(&"hot".into());
    let ping = cmd("PING");
    let _reply = link.send(&ping);
    let expected = format!(
        "*2\r\n$11\r\nUNSUBSCRIBE\r\n$3\r\nhot\r\n{}",
        String::from_utf8(ping.get_packed_command()).unwrap()
    );
    assert_eq!(read_exactly(&mut server, expected.len()).await, expected);
}

/// A server that sends its replies byte by byte keeps no caller waiting: only a whole reply ends its silence.
#[tokio::test(start_paused = true)]
async fn a_part_of_a_reply_does_not_end_the_silence_of_a_server() {
    const LIMIT: Duration = Duration::from_millis(50);
    let (link, mut server) = link(4096);
    let replies = [link.send(&cmd("PING")), link.send(&cmd("PING"))];
    tokio::time::sleep(LIMIT).await;
    let is_silent = || link.silence(LIMIT).is_silent();
    for byte in b"$100\r\nabcdefgh" {
        server.write_all(&[*byte]).await.unwrap();
        tokio::time::sleep(LIMIT / 10).await;
        assert!(is_silent());
    }
    server.write_all(&[&[b'x'; 92][..], b"\r\n"].concat()).await.unwrap();
    tokio::time::sleep(LIMIT / 10).await;
    assert!(!is_silent(), "it has replied");
    tokio::time::sleep(LIMIT).await;
    assert!(is_silent(), "it owes another reply");
    server.write_all(push("message", "hot").as_bytes()).await.unwrap();
    tokio::time::sleep(LIMIT / 10).await;
    assert!(is_silent(), "a message is no reply");
    server.write_all(OK.as_bytes()).await.unwrap();
    tokio::time::sleep(LIMIT * 10).await;
    assert!(!is_silent(), "it owes nothing");
    drop(replies);
}

/// The read half of the driver always has something to do.
#[tokio::test]
async fn commands_are_written_during_an_endless_flow_of_pushes() {
    let (link, server) = link(1 << 20);
    let (mut commands, mut answers) = tokio::io::split(server);
    let flow = async {
        let pushes = push("message", "hot").repeat(1000);
        loop {
            answers.write_all(pushes.as_bytes()).await.unwrap();
        }
    };
    let _reply = link.send(&cmd("PING"));
    let mut command = vec![0; cmd("PING").get_packed_command().len()];
    tokio::select! {
        () = flow => unreachable!(),
        written = timeout(SOON, commands.read_exact(&mut command)) => {
            written.expect("the command").unwrap();
        }
    }
}

/// With several commands in flight, the callers of some replies run before the link reads the other replies.
#[tokio::test(start_paused = true)]
async fn the_replies_to_many_commands_are_read_in_slices() {
    const CALLERS: usize = 4 * BATCH_FROM;
    for in_slices in [true, false] {
        let (client, mut server) = duplex(1 << 16);
        let log = Arc::new(Mutex::new(String::new()));
        let read = Arc::clone(&log);
        let on_push = move |_| read.lock().push(' ');
        let link = Arc::new(Link::start(Socket::played(client), in_slices, on_push));
        let call = || {
            let (link, log) = (Arc::clone(&link), Arc::clone(&log));
            async move {
                link.send(&cmd("PING")).await.unwrap();
                log.lock().push('.');
            }
        };
        let callers: Vec<_> = (0..CALLERS).map(|_| tokio::spawn(call())).collect();
        read_exactly(&mut server, CALLERS * cmd("PING").get_packed_command().len()).await;
        let answers = ("+PONG\r\n".to_owned() + &push("message", "hot")).repeat(CALLERS);
        server.write_all(answers.as_bytes()).await.unwrap();
        timeout(SOON, join_all(callers)).await.expect("all replies");
        let log = log.lock();
        let slices: Vec<usize> = log.split_whitespace().map(str::len).collect();
        if in_slices {
            // Each second frame is a push, the first one is a reply.
            let first = CALLERS.div_ceil(SLICES).div_ceil(2);
            assert!(slices[0] == first && slices.iter().all(|slice| *slice <= first), "{log:?}");
        } else {
            assert_eq!(slices, [CALLERS], "{log:?}");
        }
    }
}

/// A large write is mostly that of the scripts of a new connection.
#[test]
fn a_batch_that_grew_by_a_large_write_gives_its_memory_back() {
    let mut batch = Vec::with_capacity(KEPT_BATCH);
    batch.push(0);
    let batch = emptied(batch);
    assert!(batch.is_empty() && batch.capacity() == KEPT_BATCH, "a small batch keeps its memory");
    let large = emptied(vec![0; 10 * KEPT_BATCH]);
    assert!(large.is_empty() && large.capacity() == 10 * KEPT_BATCH, "the next may be as large");
    let mut next = large;
    next.resize(2 * KEPT_BATCH, 0);
    let mut next = emptied(next);
    assert_eq!(next.capacity(), 10 * KEPT_BATCH, "a part of it was needed");
    next.push(0);
    assert_eq!(emptied(next).capacity(), 0);
}

/// The server has replied to one command, and takes only a part of the next one.
#[tokio::test(start_paused = true)]
async fn a_server_owes_a_reply_to_a_command_that_it_does_not_take() {
    const LIMIT: Duration = Duration::from_millis(50);
    let (link, mut server) = link(16);
    let ping = cmd("PING");
    let first = link.send(&ping);
    read_exactly(&mut server, ping.get_packed_command().len()).await;
    let second = link.send(&set(&"k".repeat(100)));
    tokio::time::sleep(LIMIT / 10).await;
    server.write_all(OK.as_bytes()).await.unwrap();
    first.await.unwrap();
    assert!(!link.silence(LIMIT).is_silent(), "it has replied a moment ago");
    tokio::time::sleep(LIMIT * 2).await;
    assert!(link.silence(LIMIT).is_silent());
    drop(second);
}

/// A server that keeps RESP2's rules for subscriptions is recognized, and no reply is shifted.
#[tokio::test]
async fn a_subscription_tests_the_rules_of_the_server() {
    let array = |kind: &str| push(kind, "test").replacen('>', "*", 1);
    let only = "-ERR Can't execute 'script': only (P)SUBSCRIBE / PING / QUIT are allowed in this context\r\n";
    let denied = "-NOPERM no channel\r\n";
    for (replies, takes) in [
        ([&*push("subscribe", "test"), OK, &push("unsubscribe", "test")], true),
        ([denied, OK, &push("unsubscribe", "test")], true),
        ([denied, "-NOPERM no script\r\n", denied], true),
        // fakeredis 2.41
        ([&array("subscribe"), only, &array("unsubscribe")], false),
        ([&array("subscribe"), OK, &array("unsubscribe")], false),
        // miniredis 2.40
        ([&push("subscribe", "test"), only, &push("unsubscribe", "test")], false),
    ] {
        let (link, mut server, seen) = link_with_events(4096);
        let (takes_it, reply, ()) = timeout(SOON, async {
            let test = link.takes_subscriptions(&"test".into(), &set("a"));
            let next = link.send(&cmd("TIME"));
            tokio::join!(test, next, async {
                read_until(&mut server, "TIME\r\n").await;
                server.write_all((replies.concat() + ":7\r\n").as_bytes()).await.unwrap();
            })
        })
        .await
        .expect("replies");
        assert_eq!((takes_it, reply.unwrap()), (takes, Value::Int(7)), "{replies:?}");
        assert!(link.is_alive() && seen.lock().pushes == 0, "{replies:?}");
    }
}

/// Only the expected confirmation may be an array. Another one is a reply to another command.
#[tokio::test]
async fn another_array_in_place_of_a_confirmation_ends_the_link() {
    let array = |kind: &str, channel: &str| push(kind, channel).replacen('>', "*", 1);
    let right = array("subscribe", "test");
    for replies in [
        array("subscribe", "other"),
        array("message", "test"),
        "*0\r\n".to_owned(),
        OK.to_owned(),
        right.clone() + OK + &right,
        right + OK + &array("unsubscribe", "other"),
    ] {
        let (link, mut server) = link(4096);
        let test = link.takes_subscriptions(&"test".into(), &set("a"));
        let answers = async {
            read_until(&mut server, "UNSUBSCRIBE\r\n$4\r\ntest\r\n").await;
            server.write_all(replies.as_bytes()).await.unwrap();
            link.ended().await
        };
        let (_, reason) = timeout(SOON, async { tokio::join!(test, answers) }).await.unwrap();
        assert!(reason.contains("in place of a confirmation"), "{reason}: {replies:?}");
    }
}
