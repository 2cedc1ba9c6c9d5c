//! The types that become a key, and the argument of `LockManager::lock`.

use std::collections::{BTreeSet, HashMap};

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

#[tokio::test]
async fn a_request_takes_texts_and_keys() {
    let locks = LockManager::in_memory();
    let text = "order:42".to_owned();
    let key = LockKey::new("order:42").unwrap();
    let rendered = KeyTemplate::new("order:{id:u64}").unwrap().render([("id", "042")]);
    for request in [
        locks.lock("order:42"),
        locks.lock(&text),
        locks.lock(text),
        locks.lock(&key),
        locks.lock(key),
        locks.lock(rendered),
    ] {
        let guard = request.try_acquire().await.unwrap();
        assert_eq!(guard.key().as_str(), "order:42");
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_value_that_is_no_key_is_an_error_of_the_acquisition() {
    let locks = LockManager::in_memory();
    let rendered = KeyTemplate::new("order:{id:u64}").unwrap().render([("id", "x")]);
    let error = locks.lock(rendered.clone()).acquire().await.unwrap_err();
    assert!(matches!(&error, LockError::InvalidKey(KeyError::WrongType { .. })), "{error}");
    let error = locks.lock(rendered).fenced().try_acquire().await.unwrap_err();
    assert!(matches!(&error, LockError::InvalidKey(KeyError::WrongType { .. })), "{error}");
    for request in [locks.lock(""), locks.lock(String::new())] {
        let error = request.acquire().await.unwrap_err();
        assert!(matches!(error, LockError::InvalidKey(KeyError::Empty)), "{error}");
    }
}
