//! Any text as a template, any texts as its values: nothing panics, what is read is written the same
//! way, and different values give different keys.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redlock_core::{KeyError, KeyTemplate, LockKey};

const TYPES: [&str; 4] = [":u64}", ":i64}", ":uuid}", ":lower}"];

type Values = [String; 3];

fuzz_target!(|input: (&str, Values, Values)| {
    let (source, ones, others) = input;
    let Ok(template) = KeyTemplate::new(source) else { return };
    assert_eq!(template.to_string(), source);
    assert_eq!(KeyTemplate::new(&template.to_string()).as_ref(), Ok(&template));

    let mut names: Vec<&str> = template.placeholders().collect();
    names.sort_unstable();
    names.dedup();
    let one = render(&template, &names, &ones);
    for others in [shifted(&ones), others] {
        let other = render(&template, &names, &others);
        // A value of a type may be written in several ways.
        if !TYPES.iter().any(|kind| source.contains(kind))
            && let (Ok(one), Ok(other)) = (&one, other)
        {
            let count = names.len().min(ones.len());
            assert_eq!(*one == other, ones[..count] == others[..count], "{one} and {other}");
        }
    }
});

/// With the border between the first two moved by a character.
fn shifted([first, second, third]: &Values) -> Values {
    let mut rest = second.chars();
    let first = first.chars().chain(rest.next()).collect();
    [first, rest.as_str().to_owned(), third.clone()]
}

fn render(template: &KeyTemplate, names: &[&str], values: &Values) -> Result<LockKey, KeyError> {
    let value = |name: &str| {
        let index = names.iter().position(|known| *known == name)?;
        values.get(index).map(|value| value.as_str().into())
    };
    let available = || names.iter().map(|name| (*name).to_owned()).collect();
    let key = template.render(value, available)?;
    assert!(!key.as_str().is_empty() && key.as_str().len() <= 200);
    assert!(!key.as_str().contains(char::is_control));
    assert_eq!(LockKey::new(&key).as_ref(), Ok(&key));
    Ok(key)
}
