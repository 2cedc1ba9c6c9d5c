//! What was logged.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::fmt::MakeWriter;

use crate::secrets;

/// Collects what the current thread logs for as long as it lives. Tasks on other threads are not
/// heard: use it in a test with a runtime of one thread.
#[derive(Debug)]
pub struct Logs {
    text: Text,
    _default: tracing::subscriber::DefaultGuard,
    /// As long as there is one subscriber only, `tracing` takes a thread that has none for all of
    /// them, and what is logged there for the first time is never heard anywhere.
    _second: tracing::Dispatch,
}

#[derive(Debug, Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Logs {
    /// Begins to collect, at every level.
    pub fn collect() -> Self {
        secrets::watch();
        let text = Text::default();
        let second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .without_time()
            .with_writer(text.clone())
            .finish();
        let default = tracing::subscriber::set_default(subscriber);
        Self { text, _default: default, _second: second }
    }

    /// The lines so far.
    pub fn lines(&self) -> Vec<String> {
        let text = self.text.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        secrets::check(bytes);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Text {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
