//! Where the code of an application requests a lock.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// The place where a lock is requested, for warnings. No public API.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_enums, reason = "no public API")]
pub enum RequestPlace {
    /// The line that has made the request.
    Code(&'static Location<'static>),
    /// A function with the attribute.
    Function(&'static str),
    /// The route of a layer, or another description of the layer.
    Layer(Arc<str>),
}

impl fmt::Display for RequestPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(location) => write!(f, "{}:{}", location.file(), location.line()),
            Self::Function(name) => write!(f, "the function {name}"),
            Self::Layer(text) => f.write_str(text),
        }
    }
}
