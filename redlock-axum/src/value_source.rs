//! The places in a request from which the placeholders of a key take their values.

use std::fmt;

/// The source of a placeholder's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueSource<'t> {
    /// A parameter of the matched route: `{id}`.
    Path(&'t str),
    /// `{header(x-user)}`.
    Header(&'t str),
    /// A parameter of the query: `{query(tenant)}`.
    Query(&'t str),
    /// A function that the application has registered for an extension of the request: `{ext(claims)}`.
    Extension(&'t str),
}

impl<'t> ValueSource<'t> {
    /// Reads the name of a placeholder, as [`KeyTemplate::placeholders`](crate::KeyTemplate::placeholders)
    /// returns it.
    pub(crate) fn of(placeholder: &'t str) -> Self {
        let call = placeholder.strip_suffix(')').and_then(|call| call.split_once('('));
        match call {
            Some(("header", name)) => Self::Header(name),
            Some(("query", name)) => Self::Query(name),
            Some(("ext", name)) => Self::Extension(name),
            // No route has a parameter with the name of a source that is added to templates later.
            _ => Self::Path(placeholder),
        }
    }
}

/// Writes the source for clients. The name of an extension is a part of the application's code, so clients
/// do not see it.
impl fmt::Display for ValueSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(name) => write!(f, "the parameter {name}"),
            Self::Header(name) => write!(f, "the header {name}"),
            Self::Query(name) => write!(f, "the query parameter {name}"),
            Self::Extension(_) => f.write_str("a value that identifies the resource"),
        }
    }
}

/// The reason why a request has no usable value for a placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueFault {
    Missing,
    Repeated,
    NotUtf8,
}

impl fmt::Display for ValueFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "is missing",
            Self::Repeated => "occurs more than once",
            Self::NotUtf8 => "is not valid UTF-8",
        })
    }
}
