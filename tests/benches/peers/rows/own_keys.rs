//! Callers that lock keys of their own, without contention.

use std::ffi::OsString;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use redlock_tests::{RedisServer, Servers};

use crate::away::Away;
use crate::comparison::Side::{Batched, Ours, Plain, Rslock};
use crate::comparison::Target::{AtLeast, AtMost, Limit};
use crate::comparison::{Measurement, Side, Target, compare};
use crate::cores;
use crate::load::{Measured, Task, column};
use crate::settings::Settings;
use crate::usage::Meter;

/// The round trip inside a data centre, with all network devices on the path.
const ROUND_TRIP: Duration = Duration::from_millis(1);
/// Replaces the system's root certificates.
const CERTIFICATE: &str = "SSL_CERT_FILE";
const KEY: &str = "PEERS_KEY_FILE";

/// Where the callers and the servers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// On different cores, as on machines of their own.
    Apart,
    /// On the same cores.
    Together,
    /// As `Apart`, with a network between them.
    Away,
    /// As `Apart`, over TLS.
    Tls,
    /// As `Apart`, with a current-thread runtime.
    CurrentThread,
}

use Place::{Apart, Together};

/// A figure, and its name in a row.
type Figure = (&'static str, fn(&Measured) -> f64);

const P50: Figure = ("p50 us", Measured::p50);
const PAIRS: Figure = ("pairs/s", Measured::per_second);
const CLIENT: Figure = ("client CPU us per pair", Measured::client);
const SERVER: Figure = ("server CPU us per pair", Measured::server);
const TAIL: Figure = ("p99 / p50", Measured::tail);

/// The name of a row, the number of nodes and of callers, their place, and figures with their targets.
struct Case(&'static str, usize, usize, Place, &'static [(Figure, &'static [Target<Measured>])]);

const CASES: [Case; 11] = [
    Case("one-node", 1, 1, Apart, &[(P50, &[AtMost(1.10, Plain)])]),
    Case("one-node-8", 1, 8, Apart, &[(PAIRS, &[AtLeast(1.0, Plain)])]),
    Case(
        "one-node-64",
        1,
        64,
        Apart,
        &[
            (PAIRS, &[AtLeast(1.0, Plain), AtLeast(0.75, Batched), AtLeast(1.4, Rslock)]),
            (CLIENT, &[AtMost(1.3, Plain)]),
            // The servers of all copies of a service have one thread.
            (SERVER, &[AtMost(1.1, Rslock)]),
        ],
    ),
    Case(
        "one-node-256",
        1,
        256,
        Apart,
        &[(PAIRS, &[AtLeast(1.0, Plain)]), (TAIL, &[Limit("p99 / p50", Measured::tail, 3.0)])],
    ),
    Case("one-node-delayed", 1, 64, Place::Away, &[(PAIRS, &[AtLeast(0.97, Plain)])]),
    Case("one-node-shared-cores", 1, 8, Together, &[(PAIRS, &[])]),
    Case("one-node-shared-cores", 1, 64, Together, &[(PAIRS, &[])]),
    Case("one-node-tls", 1, 64, Place::Tls, &[(PAIRS, &[])]),
    Case("one-node-current-thread", 1, 64, Place::CurrentThread, &[(PAIRS, &[])]),
    Case("five-nodes", 5, 1, Apart, &[(P50, &[AtMost(0.85, Plain)])]),
    Case(
        "five-nodes-64",
        5,
        64,
        Together,
        &[(PAIRS, &[AtLeast(0.9, Plain), AtLeast(1.6, Rslock)])],
    ),
];

pub(crate) async fn measure(settings: &Settings) {
    for case in CASES.iter().filter(|case| settings.wants(case.0)) {
        match case.3 {
            Place::Tls => {
                if let Err(reason) = RedisServer::check_tls() {
                    println!("| {} | not measured: {reason} |", case.work("pairs/s"));
                    continue;
                }
                let [certificate, key] = tls_files().expect("the files for TLS");
                let options = RedisServer::options().tls(certificate.as_ref(), key.as_ref());
                case.measure(settings, &Servers::start_with(&options, case.1).await).await;
            }
            // In a thread of its own, while the threads of the other runtime are idle.
            Place::CurrentThread => {
                let measure = || {
                    let mut runtime = tokio::runtime::Builder::new_current_thread();
                    let runtime = runtime.enable_all().build().expect("a runtime");
                    runtime.block_on(async {
                        case.measure(settings, &Servers::start(case.1).await).await;
                    });
                };
                let ended = std::thread::scope(|scope| scope.spawn(measure).join());
                ended.expect("a thread that does not panic");
            }
            _ => case.measure(settings, &Servers::start(case.1).await).await,
        }
    }
}

/// Returns the files with the certificate and the key of a server with TLS; `None` if they do not exist yet.
pub(crate) fn tls_files() -> Option<[OsString; 2]> {
    Some([std::env::var_os(CERTIFICATE)?, std::env::var_os(KEY)?])
}

/// Makes the files, and runs this program again, because it must trust the certificate from its start.
pub(crate) fn run_with_tls_files() -> ExitStatus {
    let signed =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let dir = tempfile::tempdir().expect("a directory");
    let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| dir.path().join(name));
    std::fs::write(&certificate, signed.cert.pem()).expect("a file");
    std::fs::write(&key, signed.signing_key.serialize_pem()).expect("a file");
    let mut again = Command::new(std::env::current_exe().expect("the path of this program"));
    again.args(std::env::args().skip(1)).env(CERTIFICATE, certificate).env(KEY, key);
    again.status().expect("the end of the program")
}

/// Returns a number of things in words.
pub(super) fn count(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

impl Case {
    /// Describes the work of a row.
    fn work(&self, figure: &str) -> String {
        let Self(_, nodes, callers, place, _) = self;
        let place = match place {
            Apart => "",
            Together => " on the cores of the callers",
            Place::Away => " 1 ms away",
            Place::Tls => " over TLS",
            Place::CurrentThread => ", a current-thread runtime",
        };
        format!("{}{place}, {}, {figure}", count(*nodes, "node"), count(*callers, "caller"))
    }

    async fn measure(&self, settings: &Settings, servers: &[RedisServer]) {
        let Self(_, _, callers, place, rows) = self;
        let urls = servers.iter().map(|server| match place {
            Place::Tls => server.tls_url(),
            _ => server.url(),
        });
        let mut urls: Vec<_> = urls.collect();
        let mut proxies = Vec::new();
        if *place == Place::Away {
            proxies.extend(urls.iter().map(|url| Away::by(ROUND_TRIP, url)));
            urls = proxies.iter().map(|proxy| proxy.url.clone()).collect();
        }
        if *place != Together {
            cores::pin_separately(servers);
        }
        let sides: &[Side] = match place {
            // This library is the first, because it chooses the crypto provider of the process.
            Place::Tls => &[Ours, Plain, Rslock],
            _ => &Side::COLUMNS,
        };
        let (meter, task) = (Meter::over(servers).await, Task::OwnKeys(*callers, settings.slice));
        let mut contenders = Vec::new();
        for side in sides {
            contenders.push(column(*side, &urls, task, &meter).await);
        }
        let compared = compare(settings.rounds, contenders).await;
        cores::unpin(servers);
        for ((name, figure), targets) in *rows {
            compared.print(self.work(name), *figure, &[], targets);
        }
    }
}
