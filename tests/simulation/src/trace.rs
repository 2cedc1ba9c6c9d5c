//! The events of a simulation, in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::lua::SCRIPTS;

/// Records the events of a run, if the run is traced.
#[derive(Debug, Clone)]
pub(super) struct Trace {
    began: Instant,
    written: Option<Arc<Mutex<Written>>>,
}

#[derive(Debug, Default)]
struct Written {
    lines: Vec<String>,
    /// The tokens and their numbers in the trace. Tokens are random even with the same seed.
    tokens: BTreeMap<String, usize>,
}

impl Trace {
    pub(super) fn new(wanted: bool) -> Self {
        Self { began: Instant::now(), written: wanted.then(Arc::default) }
    }

    /// Returns the time since the simulation began.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the time from the beginning of the simulation to `moment`.
    pub(super) fn at(&self, moment: Instant) -> Duration {
        moment - self.began
    }

    /// Records an event. Calls `event` only if the run is traced.
    pub(super) fn record(&self, event: impl FnOnce() -> String) {
        if let Some(written) = &self.written {
            let line = format!("{:6} ms  {}", self.elapsed().as_millis(), event());
            written.lock().lines.push(line);
        }
    }

    /// Returns a request in a readable form, with names for scripts and tokens.
    pub(super) fn request(&self, request: &[Vec<u8>]) -> String {
        let mut words = Vec::new();
        for word in request.iter().map(|word| String::from_utf8_lossy(word)) {
            let script = SCRIPTS.iter().find(|script| script.sha == word);
            // The mark of a waiting writer, a plain token, or an owner of Redisson.
            let is_token = [16, 32, 38].contains(&word.len());
            words.push(match script {
                Some(script) => script.name.clone(),
                None if is_token => self.token(&word),
                None => word.lines().next().unwrap_or_default().to_owned(),
            });
        }
        words.join(" ")
    }

    fn token(&self, token: &str) -> String {
        let Some(written) = &self.written else { return String::new() };
        let tokens = &mut written.lock().tokens;
        let next = tokens.len();
        format!("token-{}", tokens.entry(token.to_owned()).or_insert(next))
    }

    pub(super) fn take(&self) -> Vec<String> {
        let written = self.written.as_ref();
        written.map(|written| std::mem::take(&mut written.lock().lines)).unwrap_or_default()
    }
}
