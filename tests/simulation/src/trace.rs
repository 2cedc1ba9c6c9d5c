//! What happened in a simulation, in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::script;

/// Writes down what happens, if somebody wants to read it.
#[derive(Debug, Clone)]
pub(super) struct Trace {
    began: Instant,
    written: Option<Arc<Mutex<Written>>>,
}

#[derive(Debug, Default)]
struct Written {
    lines: Vec<String>,
    /// The tokens that were seen, which are random in every run.
    tokens: BTreeMap<String, usize>,
}

impl Trace {
    pub(super) fn new(wanted: bool) -> Self {
        Self { began: Instant::now(), written: wanted.then(Arc::default) }
    }

    /// The time since the simulation began.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// The time from the beginning of the simulation to this moment.
    pub(super) fn at(&self, moment: Instant) -> Duration {
        moment - self.began
    }

    pub(super) fn note(&self, what: impl FnOnce() -> String) {
        if let Some(written) = &self.written {
            let line = format!("{:6} ms  {}", self.elapsed().as_millis(), what());
            written.lock().lines.push(line);
        }
    }

    /// A request as people read it.
    pub(super) fn request(&self, request: &[Vec<u8>]) -> String {
        let mut words = Vec::new();
        for word in request.iter().map(|word| String::from_utf8_lossy(word)) {
            let script = script::KNOWN.iter().find(|script| script.sha == word);
            let is_token = [32, 38].contains(&word.len());
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
