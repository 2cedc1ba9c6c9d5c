//! The error of redlock-core, for its `evidence.rs`.

use std::fmt;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NodeError {
    Unproven(Box<str>),
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Unproven(text) = self;
        f.write_str(text)
    }
}
