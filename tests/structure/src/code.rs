//! Product code, without comments and without what only tests or rustdoc compile.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::{Lit, Meta, Token};

/// The keywords that begin an item, in whose head a comma is no end.
const ITEMS: [&str; 12] = [
    "async",
    "const",
    "enum",
    "extern",
    "fn",
    "impl",
    "macro_rules",
    "mod",
    "struct",
    "trait",
    "union",
    "unsafe",
];
/// The keywords of an item or a statement that ends with a semicolon.
const ENDED_BY_SEMICOLON: [&str; 5] = ["const", "let", "static", "type", "use"];

/// A file with product code.
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) code: TokenStream,
}

/// A token as text, with its line. A number has neither underscores nor a suffix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// Returns the code without the items, fields, statements and arms that only tests or rustdoc compile.
pub(crate) fn without_tests(code: TokenStream) -> TokenStream {
    let mut code = code.into_iter().peekable();
    let mut kept = Vec::new();
    let mut attributes = Vec::new();
    let mut only_tests = false;
    while let Some(token) = code.next() {
        if is_punct(&token, '#')
            && let Some(TokenTree::Group(brackets)) = code.next_if(is_brackets)
        {
            only_tests |= needs_tests(brackets.stream());
            attributes.extend([token, brackets.into()]);
            continue;
        }
        if only_tests {
            skip_item([token].into_iter().chain(code.by_ref()));
            attributes.clear();
            only_tests = false;
            continue;
        }
        kept.append(&mut attributes);
        kept.push(match token {
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), without_tests(group.stream()));
                inner.set_span(group.span());
                inner.into()
            }
            other => other,
        });
    }
    kept.extend(attributes);
    kept.into_iter().collect()
}

/// Skips an item, a field, a statement or an arm.
fn skip_item(tokens: impl Iterator<Item = TokenTree>) {
    let mut words = Vec::new();
    let mut angles = 0;
    let mut after_dash = false;
    for token in tokens {
        if let TokenTree::Ident(word) = &token
            && word != "pub"
        {
            words.push(word.to_string());
        }
        let begins = |list: &[&str]| {
            words.first().is_some_and(|word| list.iter().any(|other| word == other))
        };
        let needs_semicolon =
            begins(&ENDED_BY_SEMICOLON) && words.get(1).is_none_or(|word| word != "fn");
        angles += i32::from(is_punct(&token, '<'));
        angles -= i32::from(is_punct(&token, '>') && !after_dash);
        after_dash = is_punct(&token, '-');
        let is_block = is_group(&token, Delimiter::Brace);
        let is_comma = is_punct(&token, ',') && angles == 0;
        if is_punct(&token, ';')
            || is_block && !needs_semicolon
            || is_comma && !needs_semicolon && !begins(&ITEMS)
        {
            return;
        }
    }
}

/// Returns whether an attribute is a `cfg` that holds for tests or rustdoc only.
fn needs_tests(attribute: TokenStream) -> bool {
    match syn::parse2::<Meta>(attribute) {
        Ok(Meta::List(list)) if list.path.is_ident("cfg") => {
            list.parse_args().is_ok_and(|condition| holds_for_tests(&condition))
        }
        _ => false,
    }
}

fn holds_for_tests(condition: &Meta) -> bool {
    let parts = |list: &syn::MetaList| {
        list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap_or_default()
    };
    match condition {
        Meta::Path(path) => ["test", "doc", "doctest"].iter().any(|name| path.is_ident(name)),
        Meta::List(list) if list.path.is_ident("all") => parts(list).iter().any(holds_for_tests),
        Meta::List(list) if list.path.is_ident("any") => parts(list).iter().all(holds_for_tests),
        _ => false,
    }
}

/// Returns the tokens of the code, including brackets, without documentation.
pub(crate) fn words(code: &TokenStream) -> Vec<Word> {
    let mut words = Vec::new();
    add(code.clone(), &mut words);
    words
}

fn add(code: TokenStream, words: &mut Vec<Word>) {
    let mut code = code.into_iter().peekable();
    while let Some(token) = code.next() {
        let line = token.span().start().line;
        let mut push = |text: String| words.push(Word { text, line });
        match token {
            TokenTree::Punct(hash) if hash.as_char() == '#' => {
                // An inner attribute has a `!` after the `#`.
                code.next_if(|next| is_punct(next, '!'));
                code.next_if(|next| is_brackets(next) && is_documentation(next));
            }
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                push(open.to_owned());
                add(group.stream(), words);
                words.push(Word { text: close.to_owned(), line });
            }
            TokenTree::Literal(literal) => push(match Lit::new(literal.clone()) {
                Lit::Int(number) => number.base10_digits().to_owned(),
                _ => literal.to_string(),
            }),
            TokenTree::Ident(_) | TokenTree::Punct(_) => push(token.to_string()),
        }
    }
}

fn is_documentation(brackets: &TokenTree) -> bool {
    matches!(brackets, TokenTree::Group(brackets)
        if brackets.stream().into_iter().next().is_some_and(|name| name.to_string() == "doc"))
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

fn is_group(token: &TokenTree, delimiter: Delimiter) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == delimiter)
}

fn is_brackets(token: &TokenTree) -> bool {
    is_group(token, Delimiter::Bracket)
}
