//! The network of one server of an ensemble.
//!
//! Java sends its outgoing connections through a SOCKS proxy. This one leads each of them through a [`Proxy`] for its
//! target, so that a test can cut two servers off from each other. The addresses in the servers' settings stay the real
//! ones, because a server also connects to the address that another one has sent.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::proxy::{Proxy, Traffic};

/// The outgoing connections of one server.
#[derive(Debug)]
pub(super) struct Outgoing {
    port: u16,
    /// The proxies in front of the ports of the other servers, by port.
    proxies: Arc<HashMap<u16, Proxy>>,
    _end: DropGuard,
}

impl Outgoing {
    /// Starts a proxy for connections to these ports of other servers.
    pub(super) async fn to(ports: impl IntoIterator<Item = u16>) -> Self {
        let mut proxies = HashMap::new();
        for port in ports {
            proxies.insert(port, Proxy::to_port(port).await);
        }
        let proxies = Arc::new(proxies);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let end = CancellationToken::new();
        tokio::spawn(end.clone().run_until_cancelled_owned(listen(listener, Arc::clone(&proxies))));
        Self { port, proxies, _end: end.drop_guard() }
    }

    /// Returns the options of Java that lead the connections of a server through this proxy. Without the empty list, Java
    /// would leave out those to 127.0.0.1.
    pub(super) fn options(&self) -> [String; 3] {
        let port = format!("-DsocksProxyPort={}", self.port);
        ["-DsocksProxyHost=127.0.0.1".to_owned(), port, "-DsocksNonProxyHosts=".to_owned()]
    }

    /// Sets the traffic of the connections to these ports, in both directions.
    pub(super) fn set(&self, ports: &[u16], traffic: Traffic) {
        for port in ports {
            self.proxies[port].set_both(traffic);
        }
    }
}

async fn listen(listener: TcpListener, proxies: Arc<HashMap<u16, Proxy>>) {
    while let Ok((client, _)) = listener.accept().await {
        let proxies = Arc::clone(&proxies);
        tokio::spawn(async move {
            // Either side may end the connection.
            let _ = serve(client, &proxies).await;
        });
    }
}

/// Serves version 5 of the protocol, with an IPv4 address and without a login.
async fn serve(mut client: TcpStream, proxies: &HashMap<u16, Proxy>) -> io::Result<()> {
    let [_version, methods] = read(&mut client).await?;
    let mut offered = vec![0; usize::from(methods)];
    client.read_exact(&mut offered).await?;
    client.write_all(&[5, 0]).await?;
    let [_version, _command, _reserved, kind, ..] = read::<8>(&mut client).await?;
    let port = client.read_u16().await?;
    let proxy = proxies.get(&port).filter(|_| kind == 1);
    let proxy = proxy.ok_or_else(|| io::Error::other("no port of another server"))?;
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).await?;
    server.set_nodelay(true)?;
    client.set_nodelay(true)?;
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}

async fn read<const N: usize>(client: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes).await?;
    Ok(bytes)
}
