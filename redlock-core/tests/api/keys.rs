//! The types that become a key, and the argument of `LockManager::lock`.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use redlock_core::{KeyError, KeyPart, KeyTemplate, LockError, LockKey, LockManager};

#[test]
fn a_map_by_keys_is_searched_by_texts() {
    let key = |text: &str| LockKey::new(text).unwrap();
    let amounts = HashMap::from([(key("order:42"), 5), (key("order:43"), 7)]);
    assert_eq!(amounts.get("order:42"), Some(&5));
    assert_eq!(amounts.get("order:44"), None);
    let sorted = BTreeSet::from([key("b"), key("aa"), key("a")]);
    assert!(sorted.contains("aa"));
    assert!(!sorted.contains("ab"));
}

#[test]
fn a_key_is_parsed_as_it_is_made() {
    let expected = LockKey::new("order:42").unwrap();
    assert_eq!("order:42".parse::<LockKey>().unwrap(), expected);
    assert_eq!(LockKey::try_from("order:42").unwrap(), expected);
    assert_eq!(LockKey::try_from("order:42".to_owned()).unwrap(), expected);
    let long = "x".repeat(300);
    assert_eq!(long.parse::<LockKey>(), LockKey::new(&long));
}

#[test]
fn a_text_that_is_no_key_is_an_error_of_parsing() {
    let empty_part = format!("order:{}", KeyPart(""));
    for text in ["", "a\nb", &empty_part] {
        let expected = LockKey::new(text).unwrap_err();
        assert_eq!(text.parse::<LockKey>().unwrap_err(), expected, "{text:?}");
        assert_eq!(LockKey::try_from(text).unwrap_err(), expected, "{text:?}");
        assert_eq!(LockKey::try_from(text.to_owned()).unwrap_err(), expected, "{text:?}");
    }
    let error = "a\nb".parse::<LockKey>().unwrap_err();
    assert!(matches!(error, KeyError::ControlCharacter { index: 1, .. }), "{error}");
}

/// A map that cannot be cloned, as a large map should not be.
struct Values(HashMap<&'static str, &'static str>);

impl IntoIterator for Values {
    type Item = (&'static str, &'static str);
    type IntoIter = std::collections::hash_map::IntoIter<&'static str, &'static str>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[test]
fn a_template_is_rendered_with_values_that_cannot_be_cloned() {
    let template = KeyTemplate::new("{shop}:{sku}:{shop}").unwrap();
    let values = Values(HashMap::from([("sku", "shoe"), ("shop", "7"), ("user", "x")]));
    assert_eq!(template.render(values).unwrap(), LockKey::new("7:shoe:7").unwrap());
}

#[test]
fn a_template_reads_each_pair_once_and_no_more_than_it_needs() {
    let read = std::cell::Cell::new(0);
    let pairs = [("a", "1"), ("b", "2"), ("a", "3"), ("c", "4")];
    let pairs = || pairs.into_iter().inspect(|_| read.set(read.get() + 1));
    for (template, key, expected) in
        [("k", "k", 0), ("{a}", "1", 1), ("{b}:{a}:{b}", "2:1:2", 2), ("{c}:{a}", "4:1", 4)]
    {
        read.set(0);
        assert_eq!(KeyTemplate::new(template).unwrap().render(pairs()), LockKey::new(key));
        assert_eq!(read.get(), expected, "{template}");
    }
    let KeyError::UnknownPlaceholder { name, available, .. } =
        KeyTemplate::new("{a}:{d}").unwrap().render(pairs()).unwrap_err()
    else {
        panic!("another error");
    };
    assert_eq!((&*name, available), ("d", ["a", "b", "a", "c"].map(str::to_owned).to_vec()));
}

#[tokio::test]
async fn a_request_takes_texts_and_keys() {
    let locks = LockManager::in_memory();
    let text = "order:42".to_owned();
    let texts = ["order:42"];
    let (boxed, shared) = (Box::<str>::from("order:42"), Arc::<str>::from("order:42"));
    let (borrowed, owned) = (Cow::Borrowed("order:42"), Cow::<str>::Owned("order:42".to_owned()));
    let key = LockKey::new("order:42").unwrap();
    let rendered = KeyTemplate::new("order:{id:u64}").unwrap().render([("id", "042")]).unwrap();
    for request in [
        locks.lock("order:42"),
        locks.lock(texts.first().unwrap()),
        locks.lock(&borrowed),
        locks.lock(borrowed),
        locks.lock(owned),
        locks.lock(&boxed),
        locks.lock(boxed),
        locks.lock(&shared),
        locks.lock(shared),
        locks.lock(&text),
        locks.lock(text),
        locks.lock(&key),
        locks.lock(key),
        locks.lock(rendered),
    ] {
        let guard = request.try_acquire().await.unwrap();
        assert_eq!(guard.keys()[0].as_str(), "order:42");
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_value_that_is_no_key_is_an_error_of_the_acquisition() {
    let locks = LockManager::in_memory();
    for request in [locks.lock(""), locks.lock(String::new())] {
        let error = request.acquire().await.unwrap_err();
        assert!(matches!(error, LockError::InvalidKey(KeyError::Empty)), "{error}");
    }
}
