//! The label of the owner of a lock.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::Mutex;

/// The label of a manager, which the nodes store with each of its locks, such as `shop-7f9c:4121`. A refusal, a status and a
/// snapshot show it, so that an operator knows which process holds a lock.
///
/// It has 1 to 64 printable ASCII characters without blanks (`!` to `~`). By default it is the name of the host and the id of
/// the process, see [`LockManagerBuilder::owner_label`](crate::LockManagerBuilder::owner_label). Two managers may have the same
/// label: it names a holder for people, and proves nothing.
///
/// Everybody who may read the keys of the locks can read the label. So it should contain neither secrets nor names of persons.
///
/// Cloning is cheap.
///
/// # Examples
///
/// ```
/// use redlock_core::OwnerLabel;
///
/// let label: OwnerLabel = "shop-7f9c:4121".parse()?;
/// assert_eq!(label.as_str(), "shop-7f9c:4121");
/// let error = OwnerLabel::new("the shop").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "the owner label is \"the shop\", but must be 1 to 64 printable ASCII characters without blanks (! to ~)"
/// );
/// # Ok::<(), redlock_core::OwnerLabelError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
// A thin pointer, because errors and votes contain it.
pub struct OwnerLabel(Arc<Box<str>>);

/// The error of a text that is no [`OwnerLabel`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the owner label is {0:?}, but must be {ALLOWED}")]
pub struct OwnerLabelError(String);

/// The allowed texts, for error messages.
pub(crate) const ALLOWED: &str = "1 to 64 printable ASCII characters without blanks (! to ~)";

impl OwnerLabel {
    /// The greatest number of characters.
    pub const MAX_LEN: usize = 64;

    /// Creates a label.
    ///
    /// # Errors
    ///
    /// [`OwnerLabelError`] with the text and the allowed characters.
    pub fn new(text: &str) -> Result<Self, OwnerLabelError> {
        Self::read(text).ok_or_else(|| OwnerLabelError(text.to_owned()))
    }

    /// Returns the label that a node has reported, or `None` if the text is no label. Other libraries may have written it.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let is_label = (1..=Self::MAX_LEN).contains(&text.len()) && text.bytes().all(is_allowed);
        is_label.then(|| Self(Arc::new(text.into())))
    }

    /// Returns the label of a process by default: the name of its host and its id. A long name loses its beginning, because
    /// the end of a pod's name tells the copies of a service apart.
    pub(crate) fn of_process() -> Self {
        Self::of_host(&host_name(), std::process::id())
    }

    fn of_host(host: &str, process: u32) -> Self {
        let allowed = |char: char| u8::try_from(char).is_ok_and(is_allowed);
        let host = if host.is_empty() { "unknown" } else { host };
        let host: String =
            host.chars().map(|char| if allowed(char) { char } else { '-' }).collect();
        let end = format!(":{process}");
        // All characters are ASCII by now.
        let cut = (host.len() + end.len()).saturating_sub(Self::MAX_LEN);
        Self(Arc::new((host[cut..].to_owned() + &end).into()))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns what stands between the random part and the seconds of the text that a node stores: `@`, the label and `/`.
    ///
    /// A token contains it without a reference count. So this text stays in memory until the process ends, once for each
    /// label that a manager of the process has had.
    pub(super) fn infix(&self) -> &'static str {
        static INFIXES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
        let infix = format!("@{self}/");
        let mut infixes = INFIXES.lock();
        if let Some(known) = infixes.get(&*infix) {
            return known;
        }
        let infix: &'static str = infix.leak();
        infixes.insert(infix);
        infix
    }
}

fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_graphic()
}

#[cfg(unix)]
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

#[cfg(feature = "serde")]
impl serde::Serialize for OwnerLabel {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl FromStr for OwnerLabel {
    type Err = OwnerLabelError;

    fn from_str(text: &str) -> Result<Self, OwnerLabelError> {
        Self::new(text)
    }
}

impl fmt::Display for OwnerLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for OwnerLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerLabel({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_printable_characters_without_blanks() {
        let longest = "x".repeat(64);
        for text in ["!", "~", "shop-7f9c:4121", "#@/", &longest] {
            assert_eq!(OwnerLabel::new(text).unwrap().as_str(), text);
        }
        let too_long = "x".repeat(65);
        for text in ["", " ", "a b", "a\n", "\x7f", "\u{e9}", &too_long] {
            let error = OwnerLabel::new(text).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("the owner label is {text:?}, but must be {ALLOWED}")
            );
        }
    }

    #[test]
    fn the_default_is_the_end_of_the_host_name_and_the_process() {
        let label = |host: &str| OwnerLabel::of_host(host, 4121).as_str().to_owned();
        assert_eq!(label("shop-7f9c"), "shop-7f9c:4121");
        assert_eq!(label("my host\u{e9}"), "my-host-:4121");
        assert_eq!(label(""), "unknown:4121");
        let long = format!("{}-7f9c", "a".repeat(80));
        assert_eq!(label(&long), format!("{}-7f9c:4121", "a".repeat(54)));
        let own = OwnerLabel::of_process();
        assert!(own.as_str().ends_with(&format!(":{}", std::process::id())), "{own}");
        assert_eq!(OwnerLabel::new(own.as_str()), Ok(own));
    }

    #[test]
    fn equal_labels_share_one_text_in_memory() {
        let infix = || OwnerLabel::new("equal").unwrap().infix();
        assert_eq!(infix(), "@equal/");
        assert!(std::ptr::eq(infix(), infix()));
    }
}
