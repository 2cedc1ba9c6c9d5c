//! `redlock watch` without a terminal.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use redlock_tests::{Nodes, Running, Servers, eventually, on_each_kind_of_nodes, redlock};
use rustix::process::Signal;

use super::{KEY, SOON, finish, held, labelled};

async fn shown(watch: &Running, words: &str) {
    eventually(words, SOON, async || watch.log().contains(words).then_some(())).await;
}

async fn a_watch_prints_a_line_for_each_change_until_ctrl_c(nodes: Nodes) {
    let urls = nodes.urls();
    let mut watch = Running::start(&urls, &["watch", KEY]);
    shown(&watch, " order:42 free\n").await;
    let locks = labelled(&urls, "shop-7f9c").await;
    let guard = held(&locks, KEY).await;
    shown(&watch, " order:42 exclusive ").await;
    shown(&watch, "shop-7f9c; ").await;
    guard.release().await.unwrap();
    eventually("free again", SOON, async || {
        (watch.log().matches(" order:42 free\n").count() == 2).then_some(())
    })
    .await;
    watch.signal(Signal::INT);
    assert_eq!(watch.ended().await.code(), Some(0), "{}", watch.log());
}

on_each_kind_of_nodes! {
    [redis: Nodes::redis(1).await,]
    if_all_kinds [
        redis_x5: Nodes::redis(5).await,
        postgres: Nodes::postgres(1, 0).await,
        zookeeper: Nodes::zookeeper().await,
    ]
    [a_watch_prints_a_line_for_each_change_until_ctrl_c,]
}

#[tokio::test]
async fn a_watch_goes_on_through_an_outage_and_ends_at_sigterm() {
    let mut servers = Servers::start(1).await;
    let mut watch = Running::start(&servers.urls(), &["watch", KEY, "--json"]);
    shown(&watch, r#""state":"free""#).await;
    let before = watch.log().lines().count();
    servers[0].kill();
    shown(&watch, "no quorum of nodes answered").await;
    servers[0].restart().await;
    eventually("the state is shown again", SOON, async || {
        (watch.log().matches(r#""state":"free""#).count() > 1).then_some(())
    })
    .await;
    assert_eq!(before, 1, "a line without a change");
    watch.signal(Signal::TERM);
    assert_eq!(watch.ended().await.code(), Some(0));
}

/// As in `redlock watch a | head -1`. Nothing changes afterwards, so that no write fails.
#[tokio::test]
async fn a_watch_ends_quietly_when_nobody_reads_it() {
    let servers = Servers::start(1).await;
    let mut command = redlock(&servers.urls());
    command.args(["watch", KEY]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut watch = command.spawn().unwrap();
    let mut output = BufReader::new(watch.stdout.take().unwrap());
    let mut errors = watch.stderr.take().unwrap();
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert!(line.ends_with(" order:42 free\n"), "{line}");
    drop(output);
    let ended = eventually("the watch ends", SOON, async || watch.try_wait().unwrap()).await;
    let mut printed = String::new();
    errors.read_to_string(&mut printed).unwrap();
    assert_eq!((ended.code(), &*printed), (Some(0), ""));
}

/// The exit status is an answer, too.
#[tokio::test]
async fn a_status_that_nobody_reads_is_no_error() {
    let servers = Servers::start(1).await;
    for arguments in [&["status", KEY][..], &["nodes", "--json"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = redlock(&servers.urls());
        command.args(arguments).stdout(writer);
        let unread = finish(command).await;
        assert_eq!((unread.status, &*unread.err), (0, ""), "{arguments:?}");
    }
}
