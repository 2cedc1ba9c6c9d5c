//! Unit tests of `spring`. They are not in that file, because `redlock-axum` compiles it into a test, too.

use crate::spring::rust_form;

fn of(text: &str) -> Option<String> {
    rust_form(text, |name| name == "id")
}

#[test]
fn an_expression_of_spring_is_translated() {
    for (text, rust) in [
        ("'order:' + #id", "key = \"order:{id}\""),
        ("'order:' + #id + ':paid'", "key = \"order:{id}:paid\""),
        ("#id + ':order'", "key = \"{id}:order\""),
        ("'a'", "key = \"a\""),
        ("'{a}' + #user", "key = \"{{a}}{user}\""),
        ("'stock:' + #order.sku", "key(\"stock:{}\", order.sku)"),
        ("'x:' + #order.sku + ':' + #id", "key(\"x:{}:{}\", order.sku, id)"),
        ("#shop+ ':'+#id", "key = \"{shop}:{id}\""),
        ("#id", "key = \"{id}\""),
        ("order:#id", "key = \"order:{id}\""),
        ("order:#id:paid", "key = \"order:{id}:paid\""),
        ("no#id", "key = \"no{id}\""),
        ("#order.id", "key(\"{}\", order.id)"),
        ("order:#order.id:#shop", "key(\"order:{}:{}\", order.id, shop)"),
        ("#shop:#p0", "key = \"{shop}:{p0}\""),
        ("#identity", "key = \"{identity}\""),
        ("#root.args[0]", "key(\"{}[0]\", root.args)"),
        ("#shop:#4", "key = \"order:{id}\""),
    ] {
        assert_eq!(of(text).as_deref(), Some(rust), "{text}");
    }
    for text in ["'order:' + T(java.util.UUID).randomUUID()", "'a' + #id?.b", "'a' + #"] {
        assert_eq!(of(text).as_deref(), Some("key = \"order:{id}\""), "{text}");
    }
}

#[test]
fn a_template_with_a_number_sign_or_a_quote_inside_is_no_expression_of_spring() {
    for text in
        ["issue#{n}", "issue#n", "#", "a#", "it's:{n}", "order:{id}", "a+b", "a:#42", "a:#b:{c}"]
    {
        assert_eq!(of(text), None, "{text}");
    }
}
