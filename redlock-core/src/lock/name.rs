//! The name of a lock, for tables and metrics.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The greatest length, in bytes.
const LONGEST: usize = 100;

macro_rules! allowed_names {
    () => {
        "from 1 to 100 bytes without control characters"
    };
}

/// The range of names, for errors.
pub(crate) const ALLOWED_NAMES: &str = allowed_names!();

/// The name of a lock: what its key is for, without the values in the key, so that a service has few names. Most names are
/// templates of keys, such as `order:{id}`. It changes no lock.
///
/// Cloning is cheap. No public API.
#[derive(Clone)]
pub struct LockName(Text);

#[derive(Clone)]
enum Text {
    /// A valid name.
    Static(&'static str),
    /// A thin pointer, so that a name is no larger than a text. An invalid name is an error when its request is checked.
    Shared(Arc<Result<Box<str>, Invalid>>),
}

/// An invalid name, as an error shows it.
struct Invalid(String);

impl LockName {
    /// The name of a lock whose request has no other.
    pub const OTHER: Self = Self(Text::Static("other"));

    /// Returns a name that the application has written. `check_name` of the options returns its mistake.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        let name = name.into();
        let shared = match name {
            _ if !is_valid(&name) => Err(Invalid::new(&name)),
            Cow::Borrowed(name) => return Self(Text::Static(name)),
            Cow::Owned(name) => Ok(name.into_boxed_str()),
        };
        Self(Text::Shared(Arc::new(shared)))
    }

    /// Returns a name that the compiler has checked by [`assert_valid`](Self::assert_valid).
    pub const fn checked(name: &'static str) -> Self {
        Self(Text::Static(name))
    }

    /// Returns the name of a lock whose key has this template: the template, up to the greatest length of a name.
    pub fn of_template(template: &str) -> Self {
        let mut end = template.len().min(LONGEST);
        while !template.is_char_boundary(end) {
            end -= 1;
        }
        Self::new(template[..end].to_owned())
    }

    /// Panics if the name is invalid, so that the mistake is a compile error.
    #[track_caller]
    pub const fn assert_valid(name: &str) {
        assert!(is_valid(name), concat!("name must be ", allowed_names!()));
    }

    /// Returns an invalid name as an error shows it; `None` if the name is valid.
    pub(crate) fn invalid(&self) -> Option<&str> {
        match &self.0 {
            Text::Static(_) => None,
            Text::Shared(name) => name.as_ref().as_ref().err().map(|Invalid(value)| &**value),
        }
    }

    /// Returns the text, without a copy if the name is a part of the program.
    pub(crate) fn text(&self) -> Cow<'static, str> {
        match &self.0 {
            Text::Static(name) => Cow::Borrowed(name),
            Text::Shared(_) => Cow::Owned(self.as_str().to_owned()),
        }
    }

    /// Returns the text.
    pub(crate) fn as_str(&self) -> &str {
        match &self.0 {
            Text::Static(name) => name,
            // A request with an invalid name gets no lock.
            Text::Shared(name) => name.as_ref().as_ref().map_or("", |name| name),
        }
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// Returns whether the name has an allowed length and no control character.
const fn is_valid(name: &str) -> bool {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() > LONGEST {
        return false;
    }
    let mut index = 0;
    while index < bytes.len() {
        // UTF-8 writes the control characters U+0080 to U+009F as 0xC2 and the code itself.
        let is_latin = bytes[index] == 0xC2;
        if bytes[index].is_ascii_control() || (is_latin && bytes[index + 1] < 0xA0) {
            return false;
        }
        index += 1;
    }
    true
}

impl Invalid {
    fn new(name: &str) -> Self {
        Self(if name.len() > LONGEST {
            format!("{} bytes long", name.len())
        } else {
            format!("{name:?}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistake(name: impl Into<Cow<'static, str>>) -> String {
        LockName::new(name).invalid().unwrap().to_owned()
    }

    /// It stands in the futures of all acquisitions.
    #[test]
    fn a_name_is_no_larger_than_a_text() {
        assert_eq!(size_of::<LockName>(), size_of::<&str>());
    }

    #[test]
    fn a_name_has_1_to_100_bytes_without_control_characters() {
        assert_eq!(mistake(""), "\"\"");
        assert_eq!(mistake("a\n"), "\"a\\n\"");
        assert_eq!(mistake("a".repeat(101)), "101 bytes long");
        assert_eq!(mistake("ä".repeat(51)), "102 bytes long");
        for name in ["a".to_owned(), "a".repeat(100), "ä".repeat(50)] {
            let valid = LockName::new(name.clone());
            assert_eq!(valid.invalid(), None);
            assert_eq!(valid.as_str(), name);
        }
    }

    #[test]
    fn each_control_character_of_unicode_is_refused_and_no_other_character() {
        for character in '\0'..=char::MAX {
            let name = format!("a{character}b");
            assert_eq!(is_valid(&name), !character.is_control(), "{character:?}");
        }
    }

    #[test]
    fn a_long_template_is_cut_between_two_characters() {
        assert_eq!(LockName::of_template("order:{id:u64}").as_str(), "order:{id:u64}");
        let cut = LockName::of_template(&format!("a{}", "ä".repeat(80)));
        assert_eq!(cut.as_str(), format!("a{}", "ä".repeat(49)));
        assert_eq!(cut.invalid(), None);
    }
}
