//! Unit tests of `template`. They are not in that file, because `redlock-axum` compiles it into a test, too.

use crate::template::{Piece, parse};

fn pieces(text: &str) -> Vec<String> {
    let print = |piece| match piece {
        Piece::Text(text) => text,
        Piece::Placeholder { name, kind } => format!("<{name}:{kind}>"),
    };
    parse(text).unwrap().into_iter().map(print).collect()
}

#[test]
fn a_template_consists_of_texts_and_placeholders() {
    assert_eq!(pieces("a:{id}:{n:u64}"), ["a:", "<id:Text>", ":", "<n:U64>"]);
    assert_eq!(pieces("{{x}}:{a:lower}"), ["{x}:", "<a:Lower>"]);
    assert_eq!(pieces("{{{a}}}:{}/{0:i64}"), ["{", "<a:Text>", "}:", "<:Text>", "/", "<0:I64>"]);
}

#[test]
fn placeholders_must_be_separated() {
    for text in ["{a}{b}", "{a}-{b}", "x:{a}y{b}", "{a}:{b}_.~%{c}"] {
        let error = parse(text).err().unwrap();
        assert!(error.starts_with("nothing separates `{"), "{text}: {error}");
    }
    for text in ["{a}:{b}", "{a}-/-{b}", "{a}{{{b}", "{a}}}{b}", "{a}é{b}", "{a}-x", "a"] {
        assert!(parse(text).is_ok(), "{text}");
    }
}

#[test]
fn each_mistake_has_its_message() {
    for (text, message) in [
        ("", "the lock key is empty"),
        ("a\n", "the lock key contains a control character"),
        ("redlock:{id}", "the lock key begins with `redlock:`, which is reserved"),
        ("a:{id", "the `{` before `id` is never closed; write `{{` for a brace"),
        ("a:{i{d}", "the `{` before `i{d}` is never closed"),
        ("a:id}", "a `}` of the lock key was never opened; write `}}` for a brace"),
        ("a:{id:?}", "`{id:?}`: the types of a placeholder are `u64`, `i64`, `uuid` and `lower`"),
        ("a:{id:>5}", "`{id:>5}`: the types of a placeholder are"),
        ("a:{id:}", "`{id:}`: the types of a placeholder are"),
        ("a:{self}", "`{self}` cannot stand in a lock key"),
        ("a:{order.sku}", "`{order.sku}` is not a placeholder's name"),
        ("a:{header(b)}", "`{header(b)}` is a placeholder of a layer or a policy"),
        ("{query(b)}:a", "`{query(b)}` is a placeholder of a layer or a policy"),
        ("a:{ext(b)}", "`{ext(b)}` is a placeholder of a layer or a policy"),
        ("'a' + #id", "`'a' + #id` is an expression of Spring"),
    ] {
        let error = parse(text).err().unwrap();
        assert!(error.starts_with(message), "{text}: {error}");
    }
    for name in ["a ", " a", "a\u{a0}", " ", "0 ", "a/**/", "r#a", "a b", "1a", "_ "] {
        let error = parse(&format!("pair:{{{name}}}:{{b}}")).err().unwrap();
        let start = format!("`{{{name}}}` is not a placeholder's name; a name is made of");
        assert!(error.starts_with(&start), "{error}");
    }
}
