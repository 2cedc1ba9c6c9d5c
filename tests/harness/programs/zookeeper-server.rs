//! A server of ZooKeeper that several test processes share, each test in a folder of its own.
//!
//! Prints the port when the server accepts connections. The server ends with this process, and this process ends with the
//! process that started it.

use redlock_tests::{ZookeeperServer, end_with_parent};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), String> {
    end_with_parent();
    let server = ZookeeperServer::options().independent().start().await?;
    println!("{}", server.port());
    std::future::pending().await
}
