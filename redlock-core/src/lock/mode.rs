//! Who may hold a lock at the same time.

/// Who may hold a lock at the same time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// One holder at a time.
    #[default]
    Exclusive,
}

impl Mode {
    /// Whether two locks with equal keys may be held at the same time in these modes.
    pub(crate) fn compatible(self, other: Self) -> bool {
        match (self, other) {
            (Self::Exclusive, Self::Exclusive) => false,
        }
    }
}
