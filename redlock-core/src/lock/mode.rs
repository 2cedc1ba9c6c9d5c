//! The modes of a lock.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};

use rand::RngExt;

use crate::random::with_random;

/// The mode of a lock: how many holders it may have at the same time.
///
/// Locks of one key exclude each other whatever their modes are: while there is an exclusive holder, there is no
/// shared holder, and plain readers and holders of permits exclude each other too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// At most one holder at a time.
    #[default]
    Exclusive,
    /// Several holders at a time: the readers of a read-write lock, or the holders of permits.
    #[non_exhaustive]
    Shared {
        /// The highest number of holders. Each caller compares the number of living holders with its own
        /// `permits`. `None` for the readers of a read-write lock, of which there may be any number.
        permits: Option<NonZeroU32>,
    },
}

impl Mode {
    /// The mode of the readers of a read-write lock.
    pub const SHARED: Self = Self::Shared { permits: None };

    /// Returns whether a lock of this mode may have several holders at a time.
    pub fn is_shared(self) -> bool {
        matches!(self, Self::Shared { .. })
    }

    /// Returns whether a lock of this mode may be held by the holders of this process together with one more lock,
    /// of the mode `other` and with equal keys, as far as their kinds decide it. The number of permits is not
    /// compared here.
    pub(crate) fn compatible(self, other: Self) -> bool {
        match (self, other) {
            (Self::Exclusive, _) | (_, Self::Exclusive) => false,
            (Self::Shared { permits: one }, Self::Shared { permits: another }) => {
                one.is_some() == another.is_some()
            }
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared { permits: None } => f.write_str("shared"),
            Self::Shared { permits: Some(permits) } => write!(f, "shared by {permits}"),
        }
    }
}

/// The mark of a caller that waits for an exclusive lock while others share it. While a living mark is at a lock,
/// its nodes refuse new shared holders, so that they do not starve the exclusive caller.
///
/// The mark is a random number, which gives no right to anything. Nodes forget it after [`LIFE_TIME`](Self::LIFE_TIME).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mark(NonZeroU64);

impl Mark {
    /// How long a node keeps a mark: 1 s. A waiting caller renews its mark at least every 500 ms.
    pub const LIFE_TIME: std::time::Duration = std::time::Duration::from_secs(1);

    pub(crate) fn random() -> Self {
        let random: u64 = with_random(RngExt::random);
        Self(NonZeroU64::MIN.saturating_add(random >> 1))
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
