//! Callers that lock keys of their own over TLS, and in a current-thread runtime.

use std::path::Path;

use redlock_tests::{RedisServer, Servers};

use super::own_keys::{MANY, on_separate_cores};
use crate::child;
use crate::comparison::{Side, compare};
use crate::cores;
use crate::floor::Floor;
use crate::load::{Measured, contender};
use crate::ours::Ours;
use crate::settings::Settings;
use crate::table::Row;
use crate::theirs::Theirs;
use crate::usage::Meter;

/// Replaces the system's root certificates.
const CERTIFICATE: &str = "SSL_CERT_FILE";
const KEY: &str = "PEERS_KEY_FILE";

const TLS: &str = "1 node over TLS, 64 callers, pairs/s";

pub(crate) fn measure(settings: &Settings) {
    if settings.wants("one-node-tls") {
        match RedisServer::check_tls() {
            Ok(()) => tls(),
            Err(reason) => Row::ours(TLS, format!("not measured: {reason}")).print(),
        }
    }
    if settings.wants("one-node-current-thread") {
        current_thread(settings);
    }
}

/// Measures in a child process, because the process must trust the certificate of the server from its start.
fn tls() {
    let signed =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let dir = tempfile::tempdir().expect("a directory");
    let (certificate, key) = (dir.path().join("certificate.pem"), dir.path().join("key.pem"));
    std::fs::write(&certificate, signed.cert.pem()).expect("a file");
    std::fs::write(&key, signed.signing_key.serialize_pem()).expect("a file");
    let text = |path: &Path| path.to_str().expect("a path of UTF-8").to_owned();
    child::run("tls", &[(CERTIFICATE, &text(&certificate)), (KEY, &text(&key))]);
}

/// Runs the child process that measures over TLS and prints the row.
pub(crate) async fn run_tls() {
    let settings = Settings::read();
    let file = |variable| std::env::var_os(variable).expect("a path");
    let (certificate, key) = (file(CERTIFICATE), file(KEY));
    let options = RedisServer::options().tls(certificate.as_ref(), key.as_ref());
    let servers = Servers::start_with(&options, 1).await;
    let urls: Vec<String> = servers.iter().map(RedisServer::tls_url).collect();
    cores::pin_separately(&servers);
    let meter = Meter::over(&servers).await;
    // This library is the first, because it chooses the crypto provider of the process.
    let ours = Ours::connect(&urls).await;
    let (plain, theirs) = (Floor::plain(&urls).await, Theirs::new(&urls));
    let sides = vec![
        (Side::Plain, contender(&plain, settings.slice, MANY, &meter)),
        (Side::Ours, contender(&ours, settings.slice, MANY, &meter)),
        (Side::Rslock, contender(&theirs, settings.slice, MANY, &meter)),
    ];
    compare(settings.rounds, sides).await.row(TLS, Measured::per_second).print();
}

/// Measures in a thread of its own, while the threads of the other runtime are idle.
fn current_thread(settings: &Settings) {
    let measure = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let servers = Servers::start(1).await;
            let compared = on_separate_cores(settings, &servers, &servers.urls(), MANY).await;
            let work = "1 node, 64 callers in a current-thread runtime, pairs/s";
            compared.row(work, Measured::per_second).print();
        });
    };
    std::thread::scope(|scope| scope.spawn(measure).join()).expect("a thread that does not panic");
}
