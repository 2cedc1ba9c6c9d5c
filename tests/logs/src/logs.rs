//! What was logged.

use std::cell::RefCell;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::sync::Once;

use crate::secrets::find_secret;

thread_local! {
    /// What this thread has logged since somebody began to collect it.
    static LOGGED: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Searches everything that this process logs, at every level and by every library, for passwords and
/// tokens, from now on. A secret ends the process: a panic could get lost in a background task.
///
/// # Panics
///
/// When the process has another subscriber already.
pub fn watch() {
    static BEGUN: Once = Once::new();
    // One subscriber for all threads: those that come and go with a test race with the tests beside
    // it for what `tracing` caches.
    BEGUN.call_once(|| {
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .without_time()
            .with_writer(|| Watch)
            .init();
    });
}

/// Collects what the current thread logs, at every level, for as long as it lives. Other threads are
/// not heard: use it in a test with a runtime of one thread.
#[derive(Debug)]
pub struct Logs {
    /// Belongs to its thread.
    _of_thread: PhantomData<*const ()>,
}

impl Logs {
    /// Begins to collect, and [`watch`]es.
    ///
    /// # Panics
    ///
    /// When this thread collects already.
    pub fn collect() -> Self {
        watch();
        let before = LOGGED.replace(Some(Vec::new()));
        assert!(before.is_none(), "this thread collects already");
        Self { _of_thread: PhantomData }
    }

    /// The lines so far.
    pub fn lines(&self) -> Vec<String> {
        let logged = LOGGED.with_borrow(|logged| logged.clone().unwrap_or_default());
        String::from_utf8_lossy(&logged).lines().map(str::to_owned).collect()
    }

    /// How many lines of a level, such as `"WARN"`, contain a text.
    pub fn count(&self, level: &str, text: &str) -> usize {
        let lines = self.lines();
        // A short level is set to the right.
        let of_level = lines.iter().filter(|line| line.trim_start().starts_with(level));
        of_level.filter(|line| line.contains(text)).count()
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        LOGGED.set(None);
    }
}

#[derive(Debug, Clone, Copy)]
struct Watch;

impl Write for Watch {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(bytes);
        if find_secret(&line).is_some() {
            // Not by `eprintln`, which the test runner would catch and lose.
            let _ = writeln!(io::stderr(), "a secret was logged: {line}");
            std::process::abort();
        }
        LOGGED.with_borrow_mut(|logged| {
            logged.as_mut().map(|logged| logged.extend_from_slice(bytes))
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
