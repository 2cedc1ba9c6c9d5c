//! Tests of the harness. If it did not make the faults that it claims to make, the other tests would pass
//! without testing anything.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process};

use crate::scratch::scratch_in_memory;
use crate::{Direction, Monitor, Probe, Proxy, RedisServer, Servers, Traffic, eventually};

const SOON: Duration = Duration::from_secs(60);

async fn answers(server: &RedisServer) -> bool {
    let ping = async {
        let mut probe = Probe::connect(&server.url()).await?;
        probe.try_command::<String>(["PING"]).await
    };
    matches!(tokio::time::timeout(Duration::from_millis(300), ping).await, Ok(Ok(_)))
}

#[tokio::test]
async fn servers_are_independent_of_each_other() {
    let servers = Servers::start(5).await;
    for server in servers.iter() {
        assert!(server.probe().await.keys().await.is_empty());
    }
    servers[3].probe().await.command::<()>(["SET", "a", "1"]).await;
    assert_eq!(servers.keys().await, [format!("{}/a", servers[3].port())]);
}

#[tokio::test]
async fn a_dropped_server_is_gone_with_its_files() {
    let server = RedisServer::start().await;
    let (socket, port) = (server.socket(), server.port());
    assert!(socket.exists());
    drop(server);
    assert!(!socket.parent().unwrap().exists());
    std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
}

#[tokio::test]
async fn a_frozen_server_accepts_but_does_not_answer_until_thawed() {
    let mut server = RedisServer::start().await;
    server.freeze();
    tokio::net::TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
    assert!(!answers(&server).await);
    server.thaw();
    eventually("the server answers", SOON, async || answers(&server).await.then_some(())).await;
}

#[tokio::test]
async fn a_frozen_server_can_be_killed_and_restarted() {
    let mut server = RedisServer::start().await;
    server.probe().await.command::<()>(["SET", "a", "1"]).await;
    server.freeze();
    server.kill();
    assert!(!answers(&server).await);
    let port = server.port();
    server.restart().await;
    assert_eq!(server.port(), port);
    assert_eq!(server.probe().await.get("a").await, None, "nothing is persisted by default");
}

#[tokio::test]
async fn a_server_with_persistence_keeps_its_data_over_kill_and_stop() {
    let options = RedisServer::options().directive("appendonly", "yes");
    let mut server = options.directive("appendfsync", "always").start().await;
    server.probe().await.command::<()>(["SET", "a", "1"]).await;
    server.kill();
    server.restart().await;
    assert_eq!(server.probe().await.get("a").await, Some(b"1".to_vec()));
    server.stop();
    server.restart().await;
    assert_eq!(server.probe().await.get("a").await, Some(b"1".to_vec()));
}

#[tokio::test]
async fn a_server_with_a_password_refuses_clients_without_it() {
    let server = RedisServer::options().password("open sesame").start().await;
    let without = format!("redis://127.0.0.1:{}", server.port());
    let mut probe = Probe::connect(&without).await.unwrap();
    probe.try_command::<String>(["PING"]).await.unwrap_err();
}

#[tokio::test]
async fn the_unix_socket_belongs_to_the_same_server() {
    let server = RedisServer::start().await;
    server.probe().await.command::<()>(["SET", "a", "1"]).await;
    let url = format!("unix://{}", server.socket().display());
    assert_eq!(Probe::connect(&url).await.unwrap().get("a").await, Some(b"1".to_vec()));
}

#[tokio::test]
async fn a_probe_reads_times_to_live_and_counts_of_calls() {
    let server = RedisServer::start().await;
    let mut probe = server.probe().await;
    probe.reset_calls().await;
    probe.command::<()>(["SET", "a", "1", "PX", "60000"]).await;
    let left = probe.time_to_live("a").await.unwrap();
    assert!(left > Duration::from_secs(50) && left <= Duration::from_secs(60), "{left:?}");
    assert_eq!(probe.time_to_live("b").await, None);
    assert_eq!(probe.calls().await.get("set"), Some(&1));
}

#[tokio::test]
async fn a_monitor_receives_the_executed_commands() {
    let server = RedisServer::start().await;
    let mut monitor = Monitor::connect(&server.url()).await.unwrap();
    let mut probe = server.probe().await;
    probe.command::<()>(["SET", "a", "1"]).await;
    probe.command::<()>(["SET", "b", "2"]).await;
    let lines = monitor.until(|line| line.contains(r#""b""#)).await;
    assert!(lines.iter().any(|line| line.contains(r#""SET" "a" "1""#)), "{lines:?}");
}

/// A test process that ends by a signal cannot drop its servers. Ctrl-C and test runners signal its whole group.
#[tokio::test]
async fn nothing_outlives_a_test_process_that_ends_by_a_signal() {
    const CHILD: &str = "REDLOCK_TEST_CHILD";
    if let Some(report) = std::env::var_os(CHILD) {
        let mut server = RedisServer::start().await;
        server.freeze();
        let memory = scratch_in_memory();
        let paths = [memory.path(), server.dir()].map(|path| path.display().to_string());
        std::fs::write(report, format!("{} {}\n", server.process_id(), paths.join(" "))).unwrap();
        std::future::pending::<()>().await;
    }

    for signal in [Signal::KILL, Signal::INT, Signal::TERM] {
        let dir = tempfile::tempdir().unwrap();
        let report = dir.path().join("report");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "self_tests::nothing_outlives_a_test_process_that_ends_by_a_signal"])
            .env(CHILD, &report)
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let (redis, memory, disk) = eventually("the child's server is up", SOON, async || {
            let text = std::fs::read_to_string(&report).ok()?;
            let mut words = text.strip_suffix('\n')?.split(' ');
            let redis = Pid::from_raw(words.next()?.parse().ok()?)?;
            Some((redis, PathBuf::from(words.next()?), PathBuf::from(words.next()?)))
        })
        .await;
        test_kill_process(redis).expect("the child's server runs");
        assert!(memory.exists() && disk.exists());

        kill_process_group(Pid::from_child(&child), signal).unwrap();
        child.wait().unwrap();

        eventually("the server is gone", SOON, async || {
            test_kill_process(redis).is_err().then_some(())
        })
        .await;
        // The directories of the whole process are gone, too.
        for dir in [memory.parent().unwrap(), disk.parent().unwrap()] {
            eventually("its files are gone", SOON, async || (!dir.exists()).then_some(())).await;
        }
    }
}

#[tokio::test]
#[should_panic(expected = "condition not met within 1ms: the impossible")]
async fn eventually_panics_at_the_deadline() {
    let begun = Instant::now();
    eventually("the impossible", Duration::from_millis(1), async || {
        assert!(begun.elapsed() < SOON);
        None::<()>
    })
    .await;
}

/// Held-back data arrives later, complete and in order.
#[tokio::test]
async fn a_proxy_holds_back_and_delays_each_direction_independently() {
    let server = RedisServer::start().await;
    let (mut direct, proxy) = (server.probe().await, Proxy::to(&server).await);
    let set = |value: &'static str| {
        let url = proxy.url();
        async move { Probe::connect(&url).await.unwrap().try_command::<()>(["SET", "a", value]).await }
    };
    set("1").await.unwrap();
    assert_eq!(direct.get("a").await.as_deref(), Some(&b"1"[..]));

    let mut probe = Probe::connect(&proxy.url()).await.unwrap();
    proxy.set(Direction::ToClient, Traffic::Hold);
    let answer = tokio::spawn(async move { probe.try_command::<()>(["SET", "a", "2"]).await });
    eventually("the request reaches the server", SOON, async || {
        (direct.get("a").await.as_deref() == Some(&b"2"[..])).then_some(())
    })
    .await;
    assert!(!answer.is_finished());
    proxy.set(Direction::ToClient, Traffic::Pass);
    answer.await.unwrap().unwrap();

    let delay = Duration::from_millis(50);
    let mut probe = Probe::connect(&proxy.url()).await.unwrap();
    proxy.set_both(Traffic::Delay(delay));
    let begun = Instant::now();
    probe.command::<String>(["PING"]).await;
    assert!(begun.elapsed() >= delay * 2, "{:?}", begun.elapsed());
}

/// Requests that the proxy holds back when it resets the client's side still arrive. A command that a
/// reset of both sides cuts off does not.
#[tokio::test]
async fn a_proxy_resets_one_side_or_both() {
    let server = RedisServer::start().await;
    let (mut direct, proxy) = (server.probe().await, Proxy::to(&server).await);
    let mut probe = Probe::connect(&proxy.url()).await.unwrap();
    let connection = proxy.connections()[0].clone();
    connection.set(Direction::ToServer, Traffic::Hold);
    let before = connection.received(Direction::ToServer);
    let answer = tokio::spawn(async move { probe.try_command::<()>(["SET", "a", "1"]).await });
    eventually("the proxy has received the request", SOON, async || {
        (connection.received(Direction::ToServer) > before).then_some(())
    })
    .await;
    connection.reset_client();
    answer.await.unwrap().unwrap_err();
    assert_eq!(direct.get("a").await, None);
    connection.set(Direction::ToServer, Traffic::Pass);
    eventually("the request arrives", SOON, async || direct.get("a").await).await;

    let mut probe = Probe::connect(&proxy.url()).await.unwrap();
    proxy.set(Direction::ToServer, Traffic::ResetAfter(20));
    probe.try_command::<()>(["SET", "b", "1"]).await.unwrap_err();
    assert_eq!(direct.get("b").await, None);
    eventually("no connection is left", SOON, async || {
        proxy.connections().is_empty().then_some(())
    })
    .await;
}
