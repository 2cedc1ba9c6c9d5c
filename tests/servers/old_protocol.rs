//! Servers that speak RESP2 only.

use redlock_core::{ConnectError, NodeError, Vote};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::builder;

/// Plays a server that replies to `HELLO 3` with this error, and returns its URL.
async fn play(error: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut commands = [0; 4096];
                while let Ok(1..) = client.read(&mut commands).await {
                    // The replies to `HELLO` and to two `CLIENT SETINFO`.
                    let replies = format!("-{error}\r\n+OK\r\n+OK\r\n");
                    let _ = client.write_all(replies.as_bytes()).await;
                }
            });
        }
    });
    format!("redis://app:s3cr3tresp2@{address}")
}

#[tokio::test]
async fn a_server_without_resp3_is_refused_with_the_versions_that_have_it() {
    for error in [
        // Redis 5.
        "ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `app`, `s3cr3tresp2`, ",
        "ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'app' 's3cr3tresp2'",
        "ERR unknown command 'hello'",
        "NOPROTO unsupported protocol version",
    ] {
        let refused = builder([play(error).await]).connect().await.unwrap_err();
        let ConnectError::Unavailable { votes, .. } = &refused else { panic!("{refused:?}") };
        let vote = votes.iter().next().unwrap().1;
        let Some(Vote::Failed(NodeError::NotSetUp(reason))) = vote else { panic!("{refused:?}") };
        assert!(reason.starts_with("the server does not speak RESP3"), "{reason}");
        assert!(reason.contains("version 6.0"), "{reason}");
        assert!(!refused.to_string().contains("s3cr3tresp2"), "{refused}");
        assert!(!refused.to_string().contains("is Redis running"), "{refused}");
    }
}
