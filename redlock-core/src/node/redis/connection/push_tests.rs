//! Push messages never shift the replies of a connection.

use bb8_redis::redis::cmd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::played_server::played_connection_with_pushes;

/// Four `SET .. NX` were answered OK, nil, OK, nil, and the redis crate (1.8.1) reported the third reply for the fourth
/// command: two callers had one lock.
#[tokio::test]
async fn an_unasked_push_does_not_turn_a_refusal_into_a_grant() {
    for kind in ["sunsubscribe", "ssubscribe", "punsubscribe", "psubscribe"] {
        let (connection, mut server) = played_connection_with_pushes().await;
        let keys = ["k1", "k2", "k3", "k4"];
        let commands = keys.map(|key| {
            let mut command = cmd("SET");
            command.arg(key).arg("token").arg("NX");
            command
        });
        let sent: usize = commands.iter().map(|command| command.get_packed_command().len()).sum();
        let replies =
            futures_util::future::join_all(commands.iter().map(|command| connection.send(command)));
        let answer = async {
            server.read_exact(&mut vec![0; sent]).await.unwrap();
            let push = format!(">3\r\n${}\r\n{kind}\r\n$7\r\nchannel\r\n:0\r\n", kind.len());
            let answers = format!("+OK\r\n{push}_\r\n+OK\r\n_\r\n");
            server.write_all(answers.as_bytes()).await.unwrap();
        };
        let (replies, ()) = tokio::join!(replies, answer);
        for (key, reply) in keys.iter().zip(&replies).skip(1) {
            assert!(
                reply.as_ref().is_err_and(bb8_redis::redis::RedisError::is_io_error),
                "{kind} {key}: {reply:?}"
            );
        }
        assert!(!connection.is_alive(), "{kind}");
    }
}
