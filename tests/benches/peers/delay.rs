//! Imitates a slow network between client and server: a proxy that delays every byte.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use redlock_tests::Peer;

use crate::child;

/// A proxy in front of one server. It is a process of its own, so that its processor time does not count
/// as the client's.
pub(crate) struct Delay {
    _process: Peer,
    port: String,
}

impl Delay {
    /// Starts a proxy that adds `round_trip` to each round trip to the server at `url`.
    pub(crate) fn before(url: &str, round_trip: Duration) -> Self {
        let server = url.strip_prefix("redis://").expect("a URL that begins with redis://");
        let one_way = (round_trip / 2).as_micros().to_string();
        let mut process = child::start("delay", &[("SERVER", server), ("ONE_WAY_US", &one_way)]);
        let port = process.answer();
        Self { _process: process, port }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

/// Starts a proxy in front of each server, adds it to `delays`, and returns the URLs of the proxies.
pub(crate) fn delayed(
    delays: &mut Vec<Delay>,
    urls: &[String],
    round_trip: Duration,
) -> Vec<String> {
    let first = delays.len();
    delays.extend(urls.iter().map(|url| Delay::before(url, round_trip)));
    delays[first..].iter().map(Delay::url).collect()
}

/// Runs the proxy process: forwards until its standard input ends.
pub(crate) fn run() {
    let server = std::env::var("SERVER").expect("SERVER is set");
    let one_way: u64 = std::env::var("ONE_WAY_US")
        .ok()
        .and_then(|us| us.parse().ok())
        .expect("ONE_WAY_US is a number");
    let one_way = Duration::from_micros(one_way);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    println!("{}", listener.local_addr().expect("an address").port());
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(&server) else { continue };
            forward(&client, &server, one_way);
            forward(&server, &client, one_way);
        }
    });
    child::wait_for_end_of_input();
}

/// Forwards one direction. Uses threads, because the timers of the async runtime have a resolution of
/// 1 ms.
fn forward(from: &TcpStream, to: &TcpStream, one_way: Duration) {
    let (mut from, mut to) =
        (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
    to.set_nodelay(true).expect("TCP_NODELAY");
    let (sender, late): (_, Receiver<(Instant, Vec<u8>)>) = channel();
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            if sender.send((Instant::now() + one_way, buffer[..read].to_vec())).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in late {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        // Fails if the other side has closed the connection already.
        let _ = to.shutdown(Shutdown::Both);
    });
}
