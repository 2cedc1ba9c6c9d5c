//! Any text as a template, any texts as its values: nothing panics, what is read is written the same
//! way, and different values give different keys.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redlock_core::{KeyTemplate, LockKey};

const TYPES: [&str; 4] = [":u64}", ":i64}", ":uuid}", ":lower}"];

fuzz_target!(|input: (&str, [&str; 3], [&str; 3])| {
    let (source, ones, others) = input;
    let Ok(template) = KeyTemplate::new(source) else { return };
    assert_eq!(template.to_string(), source);
    assert_eq!(KeyTemplate::new(&template.to_string()).as_ref(), Ok(&template));

    let mut names: Vec<&str> = template.placeholders().collect();
    names.sort_unstable();
    names.dedup();
    let value = |values: [&str; 3], name: &str| {
        let index = names.iter().position(|known| *known == name)?;
        values.get(index).map(|value| (*value).to_owned())
    };
    let render = |values| {
        let value = |name: &str| value(values, name).map(Into::into);
        template.render(value, || names.iter().map(|name| (*name).to_owned()).collect())
    };
    let (one, other) = (render(ones), render(others));
    for key in one.iter().chain(&other) {
        assert!(!key.as_str().is_empty() && key.as_str().len() <= 200);
        assert!(!key.as_str().contains(char::is_control));
        assert_eq!(LockKey::new(key).as_ref(), Ok(key));
    }
    // A value of a type may be written in several ways.
    if !TYPES.iter().any(|kind| source.contains(kind))
        && let (Ok(one), Ok(other)) = (one, other)
    {
        let same = names.iter().all(|name| value(ones, name) == value(others, name));
        assert_eq!(one == other, same, "{one} and {other}");
    }
});
