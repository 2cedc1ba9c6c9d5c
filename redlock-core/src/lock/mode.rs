//! The modes of a lock.

/// The mode of a lock: how many holders it may have at the same time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// At most one holder at a time.
    #[default]
    Exclusive,
    /// Any number of holders at a time. Only unit tests of the wait queue have this mode.
    #[cfg(test)]
    TestShared,
}

impl Mode {
    /// Returns whether two locks with equal keys may be held at the same time in these modes.
    pub(crate) fn compatible(self, other: Self) -> bool {
        match (self, other) {
            (Self::Exclusive, Self::Exclusive) => false,
            #[cfg(test)]
            (Self::TestShared, _) | (_, Self::TestShared) => self == other,
        }
    }
}
