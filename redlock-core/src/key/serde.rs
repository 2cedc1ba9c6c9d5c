//! Serializes a key as its text, for configurations and messages.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::LockKey;

impl Serialize for LockKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for LockKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_and_read_as_its_text() {
        let key = LockKey::new("order:42").unwrap();
        let text = serde_json::to_string(&key).unwrap();
        assert_eq!(text, "\"order:42\"");
        assert_eq!(serde_json::from_str::<LockKey>(&text).unwrap(), key);
        // A shortened key is not shortened again.
        let long = LockKey::new("x".repeat(300)).unwrap();
        let text = serde_json::to_string(&long).unwrap();
        assert_eq!(serde_json::from_str::<LockKey>(&text).unwrap(), long);
    }

    #[test]
    fn an_invalid_key_is_an_error() {
        let error = serde_json::from_str::<LockKey>("\"\"").unwrap_err();
        assert!(error.to_string().starts_with("the lock key is empty"), "{error}");
    }
}
