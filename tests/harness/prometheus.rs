//! A Prometheus of its own, with the files of `examples/monitoring`.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::port::Port;
use crate::process::Process;
use crate::scratch::scratch;

const FILES: [&str; 2] = ["alerts.yml", "prometheus.yml"];

/// A running Prometheus. Dropping the value ends it.
#[derive(Debug)]
pub struct Prometheus {
    _process: Process,
    dir: TempDir,
    port: Port,
}

impl Prometheus {
    /// The folder with the files for Prometheus and Grafana.
    pub fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/monitoring")
    }

    /// Starts a server that scrapes an application at this address and evaluates the alerts, both once a second. The caller
    /// waits until it answers.
    ///
    /// # Errors
    ///
    /// Returns the reason if the program is missing on this machine.
    ///
    /// # Panics
    ///
    /// If the files are missing, or the program cannot be started.
    pub fn start(address: &str) -> Result<Self, String> {
        if Command::new("prometheus").arg("--version").output().is_err() {
            return Err("prometheus is missing".to_owned());
        }
        let (dir, port) = (scratch(), Port::reserve());
        for file in FILES {
            let text = std::fs::read_to_string(Self::folder().join(file)).expect("a file");
            let text =
                text.replace(r#"["127.0.0.1:3000", "127.0.0.1:3001"]"#, &format!("[{address:?}]"));
            let text = text.replace("_interval: 5s", "_interval: 1s");
            std::fs::write(dir.path().join(file), text).expect("a file");
        }
        let data = dir.path().join("data");
        let options = [
            format!("--config.file={}", dir.path().join("prometheus.yml").display()),
            format!("--storage.tsdb.path={}", data.display()),
            format!("--web.listen-address=127.0.0.1:{}", port.number()),
        ];
        let log = dir.path().join("log");
        let process = Process::start("prometheus".as_ref(), options, &[], &log);
        Ok(Self { _process: process.expect("the process of Prometheus"), dir, port })
    }

    /// Returns the URL of a path on this server.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port.number())
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}
