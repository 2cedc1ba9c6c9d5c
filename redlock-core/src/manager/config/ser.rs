//! Serializes the settings, in the form that [`de`](super::de) reads.

use serde::ser::{Serialize, Serializer};

use super::LockManagerConfig;

/// Writes the URLs with their passwords.
impl Serialize for LockManagerConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.write(serializer)
    }
}
