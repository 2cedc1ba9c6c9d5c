//! A former master of a cluster stays for its pending operations, and leaves nothing behind.

use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::error::Vote;
use crate::lock::{Dialect, Token};
use crate::node::{NodeStatus, Op, StatusSender};
use crate::store::kit::url::HostPort;
use crate::store::redis::played_node::{HELD, LEASE, RELEASE, settings, spec};
use crate::store::redis::server::ServerSettings;
use crate::store::redis::server::played_redis::PlayedRedis;
use crate::store::redis::state::RedisState;
use crate::store::redis::url::RedisUrl;

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// The server may execute the acquisition after the slot has moved. So the release follows it over the same connection.
#[tokio::test]
async fn a_former_master_stays_until_the_release_of_a_pending_operation() {
    let masters = [PlayedRedis::new(), PlayedRedis::new()];
    let [first, second] = &masters;
    second.change(|fields| fields.run_id = "second");
    let mut addresses = Vec::new();
    for master in &masters {
        addresses.push(HostPort { host: "127.0.0.1".into(), port: master.listen().await });
    }
    let listening = tasks();
    let url = RedisUrl::parse("redis-cluster://a,b").unwrap();
    let settings = ServerSettings::for_tests(settings(None));
    let status = StatusSender::new(NodeStatus::Connecting);
    let state = RedisState::new(url, settings, status.clone(), &Handle::current());
    let own_all = |owner: usize| state.map.replace(&vec![(0..=16_383, addresses[owner].clone())]);
    own_all(0);
    timeout(LEASE, status.subscribe().wait_for(NodeStatus::is_up)).await.unwrap();
    let (with_one, former) = (tasks(), Arc::downgrade(&state.map.all()[0]));

    let (spec, token) = (spec(), Token::random(Dialect::Plain));
    first.change(|fields| fields.is_silent = true);
    let mut acquire = Arc::clone(&state).execute(Op::new(&spec, token, HELD)).unwrap();
    assert!(poll!(&mut acquire).is_pending());
    own_all(1);
    let is_up = state.map.masters()[0].status();
    timeout(LEASE, is_up.wait_for(NodeStatus::is_up)).await.unwrap();
    let release = Op::new(&spec, token, RELEASE);
    let mut release = Box::pin(Arc::clone(&state).release(release));
    assert!(poll!(&mut release).is_pending());
    first.change(|fields| fields.is_silent = false);
    let both = async { tokio::join!(acquire, release) };
    let (acquired, released) = timeout(LEASE, both).await.unwrap();
    assert_eq!((acquired.vote, released.vote), (Vote::Agreed, Vote::Agreed));
    let mut answered = first.answered();
    answered.retain(|name| matches!(&**name, "SET" | "EVALSHA"));
    // The first two scripts check the rights of the connection.
    assert_eq!(answered, ["EVALSHA", "EVALSHA", "SET", "EVALSHA"]);
    assert_eq!(first.attempts().borrow().len(), 1, "over one connection");

    assert!(former.upgrade().is_none());
    let ended = async {
        first.connections().wait_for(|count| *count == 0).await.unwrap();
        while tasks() > with_one {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LEASE, ended).await.unwrap();
    assert_eq!(tasks(), with_one);
    // The last server goes with the node.
    drop(state);
    let ended = async {
        second.connections().wait_for(|count| *count == 0).await.unwrap();
        while tasks() > listening {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LEASE, ended).await.unwrap();
}
