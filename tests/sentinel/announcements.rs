//! A sentinel that announces failovers. The test plays it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redlock_tests::{RedisServer, eventually};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::{SOON, builder};

/// Without announcements, so many questions take longer than [`SOON`].
const QUESTIONS: usize = 60;

/// Answers the commands of a client, and announces a failover after each answered question.
async fn serve(client: TcpStream, master: u16, asked: Arc<AtomicUsize>) -> Option<()> {
    let (reader, mut writer) = client.into_split();
    let mut lines = BufReader::new(reader).lines();
    let announcement = ">3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$1\r\nx\r\n";
    while let Some(head) = lines.next_line().await.ok()? {
        let mut words = Vec::new();
        for _ in 0..head.strip_prefix('*')?.parse().ok()? {
            let _length = lines.next_line().await.ok()??;
            words.push(lines.next_line().await.ok()??);
        }
        let reply = match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["HELLO", ..] => "%0\r\n".to_owned(),
            ["SUBSCRIBE", ..] => {
                ">3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n".to_owned()
            }
            ["SENTINEL", "MASTER", ..] => "*2\r\n$12\r\nconfig-epoch\r\n$1\r\n1\r\n".to_owned(),
            ["SENTINEL", ..] => {
                let announcement = if asked.fetch_add(1, Ordering::SeqCst) < QUESTIONS {
                    announcement
                } else {
                    ""
                };
                format!("*2\r\n+127.0.0.1\r\n+{master}\r\n{announcement}")
            }
            _ => "+OK\r\n".to_owned(),
        };
        writer.write_all(reply.as_bytes()).await.ok()?;
    }
    None
}

#[tokio::test]
async fn a_failover_that_a_sentinel_announces_is_noticed_at_once() {
    let server = RedisServer::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis+sentinel://{}/shop", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let (count, port) = (Arc::clone(&asked), server.port());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(serve(client, port, Arc::clone(&count)));
        }
    });
    let _locks = builder(&url).connect().await.unwrap();
    eventually("the sentinel is asked after each announcement", SOON, async || {
        (asked.load(Ordering::SeqCst) > QUESTIONS).then_some(())
    })
    .await;
}
