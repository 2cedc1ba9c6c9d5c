//! Small crates, given as texts, and the circles in them.

use crate::circles::Graph;
use crate::tree::Tree;

/// The lines about the circles of a crate with these files. `lib.rs` is its root.
fn circles(files: &[(&str, &str)]) -> Vec<String> {
    let read = |file: &str| {
        let found = files.iter().find(|(name, _)| file.strip_prefix("src/") == Some(*name));
        found.map(|(_, text)| (*text).to_owned())
    };
    let tree = Tree::read("src", &read).unwrap();
    let circles = Graph::of(&tree).circles();
    circles.iter().flat_map(|circle| circle.lines()).map(|line| line.trim().to_owned()).collect()
}

#[test]
fn two_modules_that_import_each_other_are_a_circle() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::B;\npub struct A;"),
        ("b.rs", "pub struct B;\n\nuse super::a::A;"),
    ]);
    assert_eq!(
        found,
        [
            "2 modules import each other. The shortest circle:",
            "a -> b    src/a.rs:1: crate::b::B",
            "b -> a    src/b.rs:3: super::a::A",
        ]
    );
}

#[test]
fn a_reexport_leads_to_the_defining_module() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a/mod.rs", "mod inner; pub(crate) use inner::Inner as Outer; pub struct A;"),
        ("a/inner.rs", "use crate::b::B; pub struct Inner;"),
        ("b.rs", "use crate::c::C; pub struct B;"),
        ("c.rs", "use crate::a::Outer; pub struct C;"),
    ]);
    assert_eq!(
        found,
        [
            "3 modules import each other. The shortest circle:",
            "a::inner -> b    src/a/inner.rs:1: crate::b::B",
            "b -> c    src/b.rs:1: crate::c::C",
            "c -> a::inner    src/c.rs:1: crate::a::Outer",
        ]
    );
}

#[test]
fn an_import_through_a_reexport_counts_for_the_defining_module() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b;"),
        ("a/mod.rs", "mod inner; pub use inner::*; use crate::b::B;"),
        ("a/inner.rs", "pub struct Inner;"),
        ("b.rs", "use crate::a::Inner; fn f() { m!(crate::a::Inner::new) } pub struct B;"),
    ]);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn parent_and_child_at_any_depth_are_no_circle() {
    let found = circles(&[
        ("lib.rs", "mod a; pub struct Root; use a::A;"),
        ("a/mod.rs", "mod b; use b::c::C; pub struct A;"),
        ("a/b.rs", "pub mod c;"),
        ("a/b/c.rs", "use super::super::A; use crate::Root; pub struct C;"),
    ]);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn siblings_below_one_parent_can_be_a_circle() {
    let found = circles(&[(
        "lib.rs",
        "mod a { mod b { use super::c::C; pub struct B; } mod c { use super::b::B; pub struct C; } }",
    )]);
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn super_can_stand_more_than_once() {
    let found = circles(&[
        ("lib.rs", "mod a { mod b; } mod c;"),
        ("a/b.rs", "use super::super::c::C; pub struct B;"),
        ("c.rs", "use crate::a::b::B; pub struct C;"),
    ]);
    assert_eq!(found[1], "a::b -> c    src/a/b.rs:1: super::super::c::C");
}

#[test]
fn code_under_cfg_not_test_is_checked() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "#[cfg(not(test))] use crate::b::B; pub struct A;"),
        ("b.rs", "#[cfg(any(test, unix))] use crate::a::A; pub struct B;"),
    ]);
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn a_group_imports_each_of_its_names() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use super::{b,\n c::{self as other, C}}; pub struct A;"),
        ("b.rs", "use crate::a::{self}; pub struct B;"),
        ("c.rs", "use crate::{a::*}; pub struct C;"),
    ]);
    assert_eq!(
        found,
        [
            "3 modules import each other. The shortest circle:",
            "a -> b    src/a.rs:1: super::b",
            "b -> a    src/b.rs:1: crate::a",
            "The other imports among them:",
            "a -> c    src/a.rs:2: super::c",
            "c -> a    src/c.rs:1: crate::a",
        ]
    );
}

/// The circle of a module `b` that imports `a`, and of `a` with this code.
fn circle_by(code: &str) -> Vec<String> {
    circles(&[("lib.rs", "mod a; mod b;"), ("a.rs", code), ("b.rs", "use crate::a; pub fn f() {}")])
}

#[test]
fn a_path_in_a_function_that_begins_with_an_imported_name_is_an_import() {
    let found = circle_by("use crate as c;\nfn g() {\n    c::b::f();\n}");
    assert_eq!(found[1], "a -> b    src/a.rs:3: c::b::f");
}

#[test]
fn paths_in_types_attributes_and_macros_are_imports() {
    for code in [
        "struct A(Vec<crate::b::B>);",
        "impl super::b::Trait for u8 {}",
        "#[derive(crate::b::Derive)] struct A;",
        "fn g() { tracing::warn!(a = 1, \"{}\", [crate::b::f()]); }",
        "macro_rules! m { ($x:ident) => { $crate::b::$x() } }",
        "fn g() { super::b::m!() }",
    ] {
        assert_eq!(circle_by(code).len(), 3, "{code}");
    }
}

#[test]
fn a_name_from_outside_of_the_crate_is_no_import() {
    for code in [
        "use b::f;",
        "use crate as c; use ::c::b;",
        "use crate as c; fn g() { ::c::b::f(); m!(::c::b::f()) }",
        "mod b { pub fn f() {} } fn g() { b::f(); }",
        "fn g(b: B) { m!(b::f(), self.crate_b) }",
    ] {
        assert!(circle_by(code).is_empty(), "{code}");
    }
}

#[test]
fn a_name_that_stands_for_itself_is_resolved() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "macro_rules! m { () => {} } pub(crate) use m; use crate::b::B;"),
        ("b.rs", "use crate::a::m; pub struct B;"),
    ]);
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn code_for_tests_and_rustdoc_does_not_count() {
    for code in [
        "#[cfg(test)] mod tests;",
        "#[cfg(doc)] use crate::b::f;",
        "/// See [`f`](crate::b::f).\nstruct A;",
        "#[cfg(all(unix, test))] use crate::b::f;",
        "#[cfg(test)] const A: u8 = crate::b::f();",
        "#[cfg(test)] static A: u8 = crate::b::f();",
        "#[cfg(test)] fn g() { crate::b::f() }",
        "#[cfg(test)] enum A { B(crate::b::B) }",
        "#[cfg(test)] struct A(crate::b::B);",
        "#[cfg(test)] trait A: crate::b::B {}",
        "#[cfg(test)] type A = crate::b::B;",
        "#[cfg(test)] m! { crate::b::f() }",
        "#[cfg(test)] impl A { fn g() { crate::b::f() } }",
        "impl A { #[cfg(test)] fn g() { crate::b::f() } }",
        "impl A { #[cfg(test)] const A: u8 = crate::b::f(); }",
        "trait A { #[cfg(test)] fn g() { crate::b::f() } }",
        "struct A { #[cfg(test)] b: crate::b::B }",
        "enum A { #[cfg(test)] B(crate::b::B) }",
        "fn g() { A { #[cfg(test)] b: crate::b::f() } }",
        "fn g() { match 1 { #[cfg(test)] crate::b::B => {} _ => {} } }",
        "fn g() { #[cfg(test)] let b = crate::b::f(); }",
        "fn g() { #[cfg(test)] m!(crate::b::f()); }",
        "fn g() { #[cfg(test)] { crate::b::f() } }",
        "fn g() { #[cfg(test)] crate::b::f(); }",
        "fn g() { #[cfg(test)] if crate::b::f() {} }",
        "fn g() { #[cfg(test)] self.g(crate::b::f()); }",
    ] {
        assert!(circle_by(code).is_empty(), "{code}");
    }
}
