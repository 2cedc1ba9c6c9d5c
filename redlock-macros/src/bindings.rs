//! Finds the names that a function's parameters bind, and binds references to them for the key.

use std::collections::BTreeSet;

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::ext::IdentExt;
use syn::{FieldPat, Pat, PatType, parse_quote};

use crate::hygiene::local;

/// The parameters of a function, without `self`.
pub(crate) struct Parameters<'a> {
    all: Vec<Parameter<'a>>,
    /// The names that the attribute's arguments refer to.
    referenced: BTreeSet<String>,
    /// Whether the outer function has the user's patterns, so that the attribute that is expanded next finds the
    /// names. Otherwise it has one name for each parameter.
    pub(crate) kept: bool,
}

/// The meaning of a name in the key's template.
pub(crate) enum Captured<'a> {
    /// A parameter, whose value is escaped.
    Parameter(&'a Ident),
    /// A constant, whose value is inserted unchanged.
    Constant(Ident),
}

pub(crate) struct Parameter<'a> {
    pub(crate) written: &'a PatType,
    /// The name of the parameter in the outer function.
    pub(crate) outer_name: Ident,
    binds: Vec<Ident>,
}

impl<'a> Parameters<'a> {
    pub(crate) fn new(
        written: impl Iterator<Item = &'a PatType>,
        referenced: BTreeSet<String>,
        kept: bool,
    ) -> Self {
        let all =
            written.enumerate().map(|(index, written)| Parameter::new(index, written)).collect();
        Self { all, referenced, kept }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Parameter<'a>> {
        self.all.iter()
    }

    /// Returns the meaning of a name in the template at `span`. An unknown name is an error, because
    /// `format!` would capture it by itself and without escaping.
    pub(crate) fn captured(&self, name: &str, span: Span) -> syn::Result<Captured<'_>> {
        let mut bound = self.all.iter().flat_map(|parameter| &parameter.binds);
        if let Some(parameter) = bound.find(|bound| text(bound) == name) {
            return Ok(Captured::Parameter(parameter));
        }
        if !name.chars().any(char::is_lowercase) {
            return Ok(Captured::Constant(Ident::new(name, span)));
        }
        let names: BTreeSet<_> = self
            .all
            .iter()
            .flat_map(|parameter| &parameter.binds)
            .map(|name| format!("`{}`", text(name)))
            .collect();
        let bound = match names.len() {
            0 => "they bind no names".to_owned(),
            _ => format!("they bind {}", names.into_iter().collect::<Vec<_>>().join(", ")),
        };
        let unseen = if self.all.iter().any(|parameter| has_macro(&parameter.written.pat)) {
            " (names bound by a macro in a pattern are not visible to the attribute)"
        } else if bound.contains("`__arg") {
            " (`#[async_trait]` hides the names of a pattern; write a plain name as the parameter)"
        } else {
            ""
        };
        Err(syn::Error::new(
            span,
            format!(
                "no parameter binds `{name}`: {bound}{unseen}; only a constant in capitals needs no \
                 parameter, and any other value is given after the text: `key(\"..{{}}\", ..)`"
            ),
        ))
    }

    /// Returns whether a parameter binds the name.
    pub(crate) fn binds(&self, name: &str) -> bool {
        self.all.iter().any(|parameter| parameter.binds(name))
    }

    /// Returns the bound names to which the attribute's arguments refer, without duplicates.
    fn used(&self) -> Vec<&Ident> {
        let mut seen = BTreeSet::new();
        self.all
            .iter()
            .flat_map(|parameter| &parameter.binds)
            .filter(|name| self.referenced.contains(&text(name)) && seen.insert(text(name)))
            .collect()
    }

    /// Returns the pattern of a parameter in the outer function.
    pub(crate) fn outer_pattern(
        &self,
        Parameter { written, outer_name, .. }: &Parameter<'_>,
    ) -> Pat {
        if self.kept { (*written.pat).clone() } else { parse_quote!(#outer_name) }
    }

    /// Returns a statement that uses the names to which the attribute's arguments refer, so that the compiler does
    /// not warn. It never warns about a name that begins with an underscore.
    pub(crate) fn use_names(&self) -> Option<TokenStream> {
        let mut used = self.used();
        used.retain(|name| warns_if_unused(name));
        (!used.is_empty()).then(|| quote_spanned!(Span::mixed_site()=> let _ = (#(&#used,)*);))
    }

    /// Returns statements that bind references to the parameters, under the parameters' names.
    pub(crate) fn references(&self) -> TokenStream {
        if self.kept {
            let (names, use_names) = (self.used(), self.use_names());
            return quote_spanned! {Span::mixed_site()=>
                #(let #names = &#names;)*
                #use_names
            };
        }
        let is_used =
            |parameter: &&Parameter<'_>| self.referenced.iter().any(|name| parameter.binds(name));
        self.all
            .iter()
            .filter(is_used)
            .map(|Parameter { written, outer_name, binds }| {
                let pattern = by_reference(&written.pat);
                // The use prevents a warning. `#[allow]` would be an error under a `#[forbid]`.
                let mut seen = BTreeSet::new();
                let used =
                    binds.iter().filter(|name| warns_if_unused(name) && seen.insert(text(name)));
                quote_spanned! {Span::mixed_site()=>
                    let #pattern = &#outer_name;
                    let _ = (#(&#used,)*);
                }
            })
            .collect()
    }
}

impl<'a> Parameter<'a> {
    fn new(index: usize, written: &'a PatType) -> Self {
        let outer_name = match plain_name(&written.pat) {
            Some(name) => name.clone(),
            None => local(format_args!("arg{index}")),
        };
        Self { written, outer_name, binds: names(&written.pat) }
    }

    fn binds(&self, name: &str) -> bool {
        self.binds.iter().any(|bound| text(bound) == name)
    }
}

fn text(name: &Ident) -> String {
    name.unraw().to_string()
}

/// Returns whether the compiler warns if the name is unused.
fn warns_if_unused(name: &Ident) -> bool {
    !text(name).starts_with('_')
}

/// Returns the name of a pattern that is a plain name, so that the outer function and its documentation
/// can keep it.
///
/// Returns `None` for a name that begins with an underscore: it says that the parameter is unused, but the
/// outer function uses every parameter.
fn plain_name(pattern: &Pat) -> Option<&Ident> {
    match pattern {
        Pat::Ident(binding) if binding.subpat.is_none() => {
            Some(&binding.ident).filter(|name| warns_if_unused(name))
        }
        _ => None,
    }
}

/// Removes `mut`, `ref` and `&` from the pattern, so that it matches a reference to the parameter.
/// Default binding modes make them superfluous or wrong.
fn by_reference(pattern: &Pat) -> Pat {
    let mut pattern = pattern.clone();
    strip(&mut pattern);
    pattern
}

fn strip(pattern: &mut Pat) {
    while let Pat::Reference(reference) = pattern {
        *pattern = (*reference.pat).clone();
    }
    if let Pat::Ident(binding) = pattern {
        binding.by_ref = None;
        binding.mutability = None;
    }
    for part in subpatterns_mut(pattern) {
        strip(part);
    }
}

/// Returns the names that a pattern binds.
fn names(pattern: &Pat) -> Vec<Ident> {
    let mut pattern = pattern.clone();
    let mut found = Vec::new();
    collect(&mut pattern, &mut found);
    found
}

fn collect(pattern: &mut Pat, found: &mut Vec<Ident>) {
    if let Pat::Ident(binding) = pattern {
        found.push(binding.ident.clone());
    }
    for part in subpatterns_mut(pattern) {
        collect(part, found);
    }
}

fn has_macro(pattern: &Pat) -> bool {
    fn find(pattern: &mut Pat) -> bool {
        matches!(pattern, Pat::Macro(_)) || subpatterns_mut(pattern).into_iter().any(find)
    }
    find(&mut pattern.clone())
}

fn subpatterns_mut(pattern: &mut Pat) -> Vec<&mut Pat> {
    match pattern {
        Pat::Ident(binding) => binding.subpat.iter_mut().map(|(_, part)| &mut **part).collect(),
        Pat::Or(or) => or.cases.iter_mut().collect(),
        Pat::Paren(inner) => vec![&mut inner.pat],
        Pat::Reference(reference) => vec![&mut reference.pat],
        Pat::Slice(slice) => slice.elems.iter_mut().collect(),
        Pat::Struct(fields) => {
            fields.fields.iter_mut().map(|FieldPat { pat, .. }| &mut **pat).collect()
        }
        Pat::Tuple(tuple) => tuple.elems.iter_mut().collect(),
        Pat::TupleStruct(tuple) => tuple.elems.iter_mut().collect(),
        Pat::Type(typed) => vec![&mut typed.pat],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use quote::ToTokens;
    use syn::parse::Parser;

    use super::*;

    fn pattern(text: &str) -> Pat {
        Pat::parse_multi.parse_str(text).unwrap()
    }

    fn printed(pattern: &Pat) -> String {
        pattern.to_token_stream().to_string().replace(' ', "")
    }

    #[test]
    fn a_pattern_is_bound_by_reference() {
        for (written, expected) in [
            ("mut id", "id"),
            ("Path(mut id)", "Path(id)"),
            ("Path((a, mut b))", "Path((a,b))"),
            (
                "Json(Pay { amount, ref note, to: mut name, .. })",
                "Json(Pay{amount,note,to:name,..})",
            ),
            ("&id", "id"),
            ("&(mut a, _)", "(a,_)"),
            ("mut whole @ Pair(mut a, ..)", "whole@Pair(a,..)"),
            ("[first, ref mut rest @ ..]", "[first,rest@..]"),
        ] {
            assert_eq!(printed(&by_reference(&pattern(written))), expected);
        }
    }

    #[test]
    fn every_bound_name_is_found() {
        let names = names(&pattern("Json(Pay { amount, to: (name, mut city), .. }, all)"));
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["amount", "name", "city", "all"]);
    }

    /// `#[async_trait]` replaces the pattern `Path(id)` by a name.
    #[test]
    fn the_message_explains_a_pattern_that_async_trait_has_replaced() {
        let written: [PatType; 1] = [parse_quote!(__arg1: Path<u64>)];
        let parameters = Parameters::new(written.iter(), BTreeSet::new(), false);
        let error = parameters.captured("id", Span::call_site()).err().unwrap().to_string();
        assert!(error.contains("`#[async_trait]` hides the names of a pattern"), "{error}");
    }
}
