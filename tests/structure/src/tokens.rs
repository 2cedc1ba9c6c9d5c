//! Splits product code into tokens, without comments and without code that only tests or rustdoc compile.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::parse::Parser;
use syn::{Attribute, Lit};

use crate::cfg::only_for_tests;

/// A token as text, with its line. A number has neither underscores nor a suffix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// Returns the tokens of a file or of a piece of code, including brackets, but not the brackets of
/// attributes.
pub(crate) fn tokens(code: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    // `Tree` has parsed the file already, so an error is impossible.
    add(code.parse().unwrap_or_default(), &mut tokens);
    tokens
}

fn add(stream: TokenStream, tokens: &mut Vec<Token>) {
    let mut stream = stream.into_iter().peekable();
    while let Some(tree) = stream.next() {
        let line = tree.span().start().line;
        let mut push = |text: String| tokens.push(Token { text, line });
        match tree {
            TokenTree::Punct(hash) if hash.as_char() == '#' => {
                // An inner attribute has a `!` after the `#`.
                stream.next_if(|next| is_punct(next, '!'));
                let Some(TokenTree::Group(brackets)) = stream.next_if(is_brackets) else {
                    continue;
                };
                let attribute = [TokenTree::from(hash), brackets.clone().into()];
                let attribute = Attribute::parse_outer.parse2(attribute.into_iter().collect());
                let attributes = attribute.unwrap_or_default();
                if only_for_tests(&attributes) {
                    // The item behind the attribute ends with a block, a semicolon or a comma.
                    stream.by_ref().find(is_end);
                } else if !attributes.iter().any(|attribute| attribute.path().is_ident("doc")) {
                    add(brackets.stream(), tokens);
                }
            }
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                push(open.to_owned());
                add(group.stream(), tokens);
                tokens.push(Token { text: close.to_owned(), line });
            }
            TokenTree::Literal(literal) => push(match Lit::new(literal.clone()) {
                Lit::Int(number) => number.base10_digits().to_owned(),
                _ => literal.to_string(),
            }),
            TokenTree::Ident(_) | TokenTree::Punct(_) => push(tree.to_string()),
        }
    }
}

fn is_punct(tree: &TokenTree, character: char) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == character)
}

fn is_group(tree: &TokenTree, delimiter: Delimiter) -> bool {
    matches!(tree, TokenTree::Group(group) if group.delimiter() == delimiter)
}

fn is_brackets(tree: &TokenTree) -> bool {
    is_group(tree, Delimiter::Bracket)
}

fn is_end(tree: &TokenTree) -> bool {
    is_group(tree, Delimiter::Brace) || is_punct(tree, ';') || is_punct(tree, ',')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(code: &str) -> String {
        let texts: Vec<_> = tokens(code).into_iter().map(|token| token.text).collect();
        texts.join(" ")
    }

    #[test]
    fn numbers_are_written_in_one_way() {
        assert_eq!(texts("f(604_800u64, \"1_0\")"), "f ( 604800 , \"1_0\" )");
    }

    #[test]
    fn a_token_has_its_line() {
        let lines: Vec<_> = tokens("a\n{\nb\n}").into_iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 2, 3, 2]);
    }

    #[test]
    fn comments_are_left_out() {
        for code in [
            "// x\na",
            "/* x */ a",
            "//! x\na",
            "/// x\na",
            "#[doc = \"x\"] a",
            "#![doc = include_str!(\"x\")] a",
        ] {
            assert_eq!(texts(code), "a", "{code}");
        }
        assert_eq!(texts("m! { /// x\n a }"), "m ! { a }");
        assert_eq!(texts("#[error(\"x\")] a"), "error ( \"x\" ) a");
        assert_eq!(texts("quote!(#[#x] #y)"), "quote ! ( x y )");
    }

    #[test]
    fn code_that_only_tests_compile_is_left_out() {
        for code in [
            "#[cfg(test)] mod tests { x } a",
            "#[cfg(all(test, unix))] #[allow(b)] fn x(x: X) -> X { x } a",
            "#[cfg(test)] use x; a",
            "#[cfg(doc)] x: X, a",
        ] {
            assert_eq!(texts(code), "a", "{code}");
        }
        assert_eq!(texts("#[cfg(not(test))] x;"), "cfg ( not ( test ) ) x ;");
    }
}
