//! A connection finds out which commands replace scripts: by the reply of its server to the check of the rights.

use tokio::runtime::Handle;
use tokio::time::timeout;

use super::played_redis::{Fields, PlayedRedis};
use super::server_tests::Played;
use super::{Role, Server, ServerSettings};
use crate::error::Vote;
use crate::lock::Dialect;
use crate::node::{Node, NodeSettings, NodeStatus};
use crate::store::redis::encode::NativeCommand::{self, DelEx, DelIfEq, MSetEx};
use crate::store::redis::played_node::{LEASE, RELEASE, call, node, settings};

fn commands(server: &Server) -> [Option<NativeCommand>; 2] {
    let connection = server.connection().unwrap();
    [connection.native.delete(), connection.native.set_several()]
}

/// The server is upgraded and downgraded while the process runs, is replaced by another product, and is one of a group.
#[tokio::test(start_paused = true)]
async fn each_connection_finds_out_which_commands_replace_scripts() {
    for (name, role) in [("alone", Role::Alone), ("member", super::server_tests::member())] {
        let played = Played::start_with(name, role, None, |_| {});
        played.connected(1).await;
        for (count, (missing, expected)) in [
            // No list: another product, or a proxy.
            (None, [None, None]),
            (Some(&["DELIFEQ", "DELEX", "MSETEX"][..]), [None, None]),
            // Valkey 9.0 and 9.1.
            (Some(&["DELEX", "MSETEX"]), [Some(DelIfEq), None]),
            (Some(&["DELEX"]), [Some(DelIfEq), Some(MSetEx)]),
            // Redis 8.4.
            (Some(&["DELIFEQ"]), [Some(DelEx), Some(MSetEx)]),
            (Some(&[]), [Some(DelIfEq), Some(MSetEx)]),
            (Some(&["DELIFEQ", "DELEX", "MSETEX"]), [None, None]),
        ]
        .into_iter()
        .enumerate()
        {
            played.redis.change(|fields| fields.missing = missing);
            played.redis.close();
            played.connected(count + 2).await;
            assert_eq!(commands(&played.server), expected, "{name}: {missing:?}");
        }
    }
}

/// The check of the rights asks only for the commands of the dialect. Others may be refused.
#[tokio::test(start_paused = true)]
async fn a_manager_in_another_dialect_uses_no_command_that_it_has_not_checked() {
    for (dialect, expected) in [(Dialect::Plain, Some(DelIfEq)), (Dialect::Redisson, None)] {
        let mut settings = ServerSettings::for_tests(NodeSettings::for_tests(LEASE));
        settings.locks.dialect = dialect;
        let change = |fields: &mut Fields| fields.missing = Some(&[][..]);
        let played = Played::start_server("alone", Role::Alone, settings, change);
        played.connected(1).await;
        assert_eq!(commands(&played.server)[0], expected);
    }
}

/// A server of a cluster would set keys of several slots, and no script could release them.
#[tokio::test(start_paused = true)]
async fn a_server_in_cluster_mode_sets_several_keys_by_the_script() {
    for (mode, set_several) in [("standalone", Some(MSetEx)), ("cluster", None), ("", None)] {
        let played = Played::start_with("alone", Role::Alone, None, |fields| {
            (fields.mode, fields.missing) = (mode, Some(&[][..]));
        });
        played.connected(1).await;
        assert_eq!(commands(&played.server), [Some(DelIfEq), set_several], "{mode}");
    }
}

/// A connection counts once, however many commands were in flight at its end, and not at all if one was answered before.
#[tokio::test(start_paused = true)]
async fn a_server_loses_its_commands_after_two_connections_that_answer_none() {
    const LASTS: &[bool] = &[true, false];
    let connections: [&[&[bool]]; 3] =
        [&[&[false; 3], &[false]], &[LASTS, &[false; 2], &[false]], &[LASTS; 4]];
    for (answers, lasts) in connections.into_iter().zip([false, false, true]) {
        let change = |fields: &mut Fields| fields.missing = Some(&[][..]);
        let played = Played::start_with("alone", Role::Alone, None, change);
        for (number, answers) in answers.iter().enumerate() {
            played.connected(number + 1).await;
            assert_eq!(commands(&played.server), [Some(DelIfEq), Some(MSetEx)], "{number}");
            let connection = played.server.connection().unwrap();
            answers.iter().for_each(|answer| played.server.record_native(&connection, *answer));
            drop(connection);
            played.redis.close();
        }
        played.connected(answers.len() + 1).await;
        assert_eq!(commands(&played.server)[0], Some(DelIfEq).filter(|_| lasts), "{answers:?}");
        // A server that was restarted may be another version.
        played.redis.change(|fields| fields.run_id = "another");
        played.redis.close();
        played.connected(answers.len() + 2).await;
        assert_eq!(commands(&played.server)[0], Some(DelIfEq), "after a restart");
    }
}

/// The server has the command, and its proxy ends each connection that sends it. The locks must not stay.
#[tokio::test]
async fn a_proxy_that_ends_connections_at_a_command_gets_scripts() {
    let redis = PlayedRedis::new();
    redis.change(|fields| (fields.missing, fields.ends_at) = (Some(&[][..]), Some("DELIFEQ")));
    let node = node(&format!("redis://127.0.0.1:{}", redis.listen().await));
    node.start(&Handle::current(), &settings(None));
    let release = async {
        let mut lost = 0;
        loop {
            node.status().wait_for(NodeStatus::is_up).await;
            match call(&node, RELEASE).await.vote {
                Vote::Agreed => return lost,
                Vote::Failed(_) => lost += 1,
                vote => panic!("{vote:?}"),
            }
        }
    };
    let lost = timeout(LEASE, release).await.unwrap();
    assert!(lost >= 2 && redis.attempts().borrow().len() == 3, "{lost}");
    for _ in 0..3 {
        assert_eq!(call(&node, RELEASE).await.vote, Vote::Agreed);
    }
}
