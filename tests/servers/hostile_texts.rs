//! Servers whose errors repeat the password or are very long.

use redlock_core::ConnectError;
use redlock_tests::{Logs, Servers};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::builder;

const PASSWORD: &str = "s3cr3thostile";

/// Plays a server that repeats the password in a long error, and returns its URL.
async fn play() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let error = format!("-WRONGPASS bad '{PASSWORD}' {}\r\n", PASSWORD.repeat(20_000));
                while let Ok(1..) = client.read(&mut [0; 4096]).await {
                    let _ = client.write_all(error.as_bytes()).await;
                }
            });
        }
    });
    format!("redis://app:{PASSWORD}@{address}")
}

#[tokio::test]
async fn the_text_of_a_server_is_cut_and_does_not_show_the_password() {
    let logs = Logs::collect();
    let refused = builder([play().await]).connect().await.unwrap_err();
    let ConnectError::Unavailable { votes, .. } = &refused else { panic!("{refused:?}") };
    let mut texts = vec![refused.to_string(), format!("{refused:?}"), format!("{votes:?}")];

    // The hostile server is a minority, until another one is gone.
    let mut servers = Servers::start(2).await;
    let urls = [servers[0].url(), servers[1].url(), play().await];
    let locks = builder(urls).connect().await.unwrap();
    servers[0].kill();
    let error = locks.lock("order:42").try_acquire().await.unwrap_err();
    texts.extend([format!("{error:?}"), error.diagnostics().to_string()]);
    for text in &texts {
        assert!(text.contains("WRONGPASS bad '***' ***") && text.len() < 2000, "{text}");
    }
    for text in texts.into_iter().chain(logs.lines()) {
        assert!(!text.contains(PASSWORD), "{text}");
    }
}
