//! Imitates a slow network between client and server by the [proxy](Proxy) of the tests.

use std::time::Duration;

use redlock_tests::{Peer, Proxy, Traffic};

use crate::child;

/// A proxy in front of one server. It is a process of its own, so that its processor time does not count as the
/// client's.
pub(crate) struct Away {
    _process: Peer,
    pub(crate) url: String,
}

impl Away {
    /// Starts a proxy that adds `round_trip` to each round trip to the server at `url`.
    pub(crate) fn by(round_trip: Duration, url: &str) -> Self {
        let one_way = (round_trip / 2).as_micros().to_string();
        let mut process = child::start_with("proxy", [&one_way, url]);
        let url = process.answer();
        Self { _process: process, url }
    }
}

/// Runs the proxy process: forwards until its standard input ends.
pub(crate) async fn run(one_way: &str, url: &str) {
    let port = url.rsplit(':').next().and_then(|port| port.parse().ok());
    let proxy = Proxy::to_port(port.expect("a URL that ends with a port")).await;
    let one_way = one_way.parse().map(Duration::from_micros).expect("microseconds");
    if !one_way.is_zero() {
        proxy.set_both(Traffic::Delay(one_way));
    }
    println!("{}", proxy.url());
    let end = tokio::task::spawn_blocking(child::order);
    end.await.expect("a thread that does not panic");
}
