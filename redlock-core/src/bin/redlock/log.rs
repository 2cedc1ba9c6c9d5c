//! The log of the library, on standard error.

use tracing_subscriber::filter::LevelFilter;

/// Begins to write the events of the library up to this level.
pub(crate) fn begin(level: LevelFilter) {
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .init();
}
