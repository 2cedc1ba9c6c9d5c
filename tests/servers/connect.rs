//! Connecting a manager: faults that fail it, faults that are only logged, faults that it tolerates.

use std::time::{Duration, Instant};

use redlock_core::{ConnectError, LockManager, NodeError, Vote};
#[cfg(target_os = "linux")]
use redlock_tests::keepalive_timer;
use redlock_tests::{Logs, Play, PlayedServer, Probe, Proxy, RedisServer, Servers, eventually};

use super::{SOON, builder, connect};

const KEY: &str = "order:42";

#[tokio::test]
async fn an_invalid_url_is_refused_with_its_position_and_the_allowed_scheme() {
    let good = "redis://127.0.0.1";
    for wrong in ["", "127.0.0.1", "http://127.0.0.1", "redis://", "redis://h:port", "redis://h/x"]
    {
        let error = LockManager::connect([good, wrong]).await.unwrap_err();
        assert!(matches!(error, ConnectError::InvalidUrl { position: 2, .. }), "{wrong}: {error}");
        assert!(error.to_string().contains("redis://"), "{wrong}: {error}");
    }
    let error = LockManager::connect([""; 0]).await.unwrap_err();
    assert!(matches!(error, ConnectError::NoNodes), "{error}");
}

/// Otherwise one server would have two votes.
#[tokio::test]
async fn a_server_listed_twice_is_refused_even_under_two_names() {
    let servers = Servers::start(2).await;
    let names = [
        servers[0].url(),
        servers[0].url_at("localhost"),
        format!("{}/7", servers[0].url()),
        format!("unix://{}", servers[0].socket().display()),
    ];
    for again in names {
        let urls = [servers[0].url(), servers[1].url(), again.clone()];
        let error = builder(urls).connect().await.unwrap_err();
        let ConnectError::SameServer { first, second, .. } = &error else {
            panic!("{again}: {error}")
        };
        assert!(first.contains(&servers[0].port().to_string()) || first.contains("sock"));
        assert!(error.to_string().contains(&**second), "{error}");
    }
}

/// The node drops the connection to the wrong server, which would otherwise stay open as long as that server.
#[tokio::test]
async fn a_node_whose_url_led_to_another_nodes_server_is_used_again() {
    let servers = Servers::start(2).await;
    let second = Proxy::to(&servers[1]).await;
    let locks = connect([servers[0].url(), second.url()]).await;
    second.lead_to(&servers[0]);
    second.reset();
    eventually("the node is refused", SOON, async || {
        let error = locks.lock(KEY).try_acquire().await.err()?;
        let (_, refused) = error.votes()?.iter().nth(1)?;
        matches!(refused, Some(Vote::Failed(NodeError::SameServer(_)))).then_some(())
    })
    .await;
    second.lead_to(&servers[1]);
    let used = async || locks.lock(KEY).try_acquire().await.ok();
    eventually("the node is used again", SOON * 2, used).await.release().await.unwrap();
}

/// A pool that replaces the refused connection by itself would connect again at once.
#[tokio::test]
async fn a_server_that_another_node_uses_is_tried_rarely() {
    let servers = Servers::start(2).await;
    let second = PlayedServer::before(&servers[1]).await;
    let _locks = connect([servers[0].url(), second.url()]).await;
    // The second node now leads to the first server, as far as its manager sees.
    let first: String = servers[0].probe().await.command(["INFO"]).await;
    let reply = format!("${}\r\n{first}\r\n", first.len());
    second.play(
        move |command| {
            if command.is(&["INFO"]) { Play::Reply(reply.clone()) } else { Play::Pass }
        },
    );
    let attempts = || second.commands(&["HELLO"]).len();
    let (before, begun) = (attempts(), Instant::now());
    second.set_away(true);
    second.set_away(false);
    eventually("the server is refused, and tried again", SOON * 2, async || {
        (attempts() >= before + 2).then_some(())
    })
    .await;
    assert!(begun.elapsed() > Duration::from_secs(3), "{:?}", begun.elapsed());
}

/// A bb8 pool alone would report "timed out" after 30 s.
#[tokio::test]
async fn a_wrong_password_fails_at_once_with_the_servers_message() {
    let server = RedisServer::options().password("opensesame").start().await;
    for (url, words) in [
        (server.url_at(":wrong@127.0.0.1").replace(":opensesame@", ""), "WRONGPASS"),
        (format!("redis://127.0.0.1:{}", server.port()), "NOAUTH"),
    ] {
        let connecting = builder([url]).connect_timeout(SOON * 3).connect();
        let error = tokio::time::timeout(SOON, connecting).await.unwrap().unwrap_err();
        assert!(matches!(error, ConnectError::Unavailable { connected: 0, .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(!error.to_string().contains("wrong@"), "{error}");
    }
}

#[tokio::test]
async fn without_a_quorum_the_error_has_the_reason_of_each_node() {
    let mut servers = Servers::from(vec![
        RedisServer::start().await,
        RedisServer::options().password("opensesame").start().await,
        RedisServer::start().await,
        RedisServer::start().await,
    ]);
    servers[2].kill();
    servers[3].freeze();
    let mut urls = servers.urls();
    urls[1] = format!("redis://127.0.0.1:{}", servers[1].port());
    urls.push("redis://no-such-host.invalid".to_owned());
    let error = builder(urls).connect_timeout(Duration::from_secs(5)).connect().await.unwrap_err();
    let ConnectError::Unavailable { connected: 1, quorum: 3, votes, .. } = &error else {
        panic!("{error}");
    };
    let votes: Vec<_> = votes.iter().collect();
    let text = error.to_string();
    for (index, server) in servers.iter().enumerate() {
        assert_eq!(votes[index].0, format!("127.0.0.1:{}", server.port()));
        assert!(text.contains(votes[index].0), "{text}");
    }
    assert_eq!(votes[0].1, Some(&Vote::Agreed));
    let refused = matches!(votes[1].1, Some(Vote::Failed(NodeError::Credentials(_))));
    assert!(refused, "{text}");
    for (_, vote) in &votes[2..] {
        assert!(matches!(vote, Some(Vote::Failed(NodeError::NotConnected(_)))), "{text}");
    }
    assert!(text.to_lowercase().contains("refused"), "{text}");
}

/// The first mistake of a newcomer.
#[tokio::test]
async fn without_a_server_the_error_asks_whether_redis_is_running_there() {
    let mut servers = Servers::start(1).await;
    servers[0].kill();
    let error = builder(servers.urls()).connect().await.unwrap_err();
    let question = format!("; is Redis running at 127.0.0.1:{}?", servers[0].port());
    assert!(error.to_string().ends_with(&question), "{error}");
}

#[tokio::test]
async fn connect_succeeds_without_a_minority_that_votes_when_it_is_up() {
    let mut servers = Servers::start(5).await;
    servers[0].kill();
    servers[4].freeze();
    let locks = builder(servers.urls()).connect_timeout(SOON / 5).connect().await.unwrap();
    locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();

    servers[0].restart().await;
    servers[4].thaw();
    eventually("all nodes vote", SOON, async || {
        let guard = locks.lock(KEY).try_acquire().await.unwrap();
        let keys = servers.keys().await.len();
        guard.release().await.unwrap();
        (keys == servers.len()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_even_number_of_nodes_needs_more_than_half() {
    for (count, may_be_down) in [(2, 0), (4, 1)] {
        let mut servers = Servers::start(count).await;
        for server in &mut servers[..may_be_down] {
            server.kill();
        }
        let locks = connect(servers.urls()).await;
        locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
        servers[may_be_down].kill();
        let error = LockManager::connect(servers.urls()).await.unwrap_err();
        let quorum = count / 2 + 1;
        let expected = matches!(error, ConnectError::Unavailable { quorum: q, .. } if q == quorum);
        assert!(expected, "{error}");
    }
}

/// A full server with such a policy was seen to evict all lock keys.
#[tokio::test]
async fn connect_warns_of_an_eviction_policy_by_its_name() {
    let logs = Logs::collect();
    let evicting = RedisServer::options().directive("maxmemory-policy", "allkeys-lru");
    let evicting = evicting.start().await;
    connect([evicting.url()]).await;
    let count = |words: &str| logs.count("WARN", words);
    assert_eq!((count("allkeys-lru"), count(&evicting.port().to_string())), (1, 1));

    let before = count("");
    let server = RedisServer::start().await;
    connect([server.url()]).await;
    assert_eq!(count(""), before, "{:?}", logs.lines());
}

/// Returns how many connections the server has accepted.
async fn connections(probe: &mut Probe) -> u64 {
    let info: String = probe.command(["INFO", "stats"]).await;
    let count = info.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    count.unwrap().trim().parse().unwrap()
}

/// Runs `commands`, after which the server refuses the user. From then on the manager tries the server only
/// every few seconds, to spare the server and its log.
async fn is_tried_rarely_after(commands: &[&[&str]]) {
    let server = RedisServer::options().user("app", "knock-knock").start().await;
    let locks = connect([server.url_at("app:knock-knock@127.0.0.1")]).await;
    locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
    let mut probe = server.probe().await;
    let before = connections(&mut probe).await;
    let begun = Instant::now();
    for command in commands {
        probe.command::<redis::Value>(command).await;
    }
    eventually("the attempt is refused", SOON, async || {
        let error = locks.lock(KEY).try_acquire().await.err()?;
        error.diagnostics().to_string().contains("WRONGPASS").then_some(())
    })
    .await;
    eventually("the manager connects again", SOON * 2, async || {
        (connections(&mut probe).await >= before + 2).then_some(())
    })
    .await;
    // This was the second attempt. A server that is merely down would have been tried many times by now.
    assert!(begun.elapsed() > Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_server_with_a_changed_password_is_tried_rarely() {
    let password = ["ACL", "SETUSER", "app", "resetpass", ">another"];
    is_tried_rarely_after(&[&password, &["CLIENT", "KILL", "USER", "app"]]).await;
}

#[tokio::test]
async fn a_server_that_deleted_the_user_is_tried_rarely() {
    is_tried_rarely_after(&[&["ACL", "DELUSER", "app"]]).await;
}

/// A machine that vanishes sends nothing. So the kernel probes an idle connection after 5 s, instead of its
/// default of two hours.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_idle_connection_is_kept_alive_by_the_kernel() {
    let server = RedisServer::start().await;
    let _locks = connect([server.url()]).await;
    let left =
        eventually("the keepalive timer runs", SOON, async || keepalive_timer(server.port())).await;
    assert!(left <= Duration::from_secs(5), "{left:?}");
}

/// A paused clock moves to the end of a time limit as soon as all tasks wait, also for a server.
#[tokio::test(start_paused = true)]
async fn the_error_of_a_test_with_paused_time_names_it() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let error = LockManager::connect([format!("redis://{address}")]).await.unwrap_err().to_string();
    assert!(error.contains("no connection within"), "{error}");
    assert!(error.contains("the time of this Tokio runtime is paused"), "{error}");
}
