//! The parameters of a function: the names that they bind, references to them for the key, and their way into the work.

use std::collections::BTreeSet;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, Pat, PatIdent, PatType, Type};

use crate::hygiene::{local, mixed_span};
use crate::{held_lock, under_lock};

/// The parameters of a function, without `self`.
pub(crate) struct Parameters<'a> {
    all: Vec<Parameter<'a>>,
    /// The names that the attribute's arguments refer to.
    referenced: BTreeSet<String>,
}

/// The meaning of a name in the key's template.
pub(crate) enum Captured<'a> {
    /// A parameter, whose value is escaped.
    Parameter(&'a Ident),
    /// A constant, whose value is inserted unchanged.
    Constant(Ident),
}

/// A parameter that has its value only under the lock.
enum Late<'a> {
    /// The `T` of a parameter `UnderLock<T>`.
    Extracted(&'a Type),
    /// The lock of the handler.
    Lock,
}

pub(crate) struct Parameter<'a> {
    /// The attributes that the user wrote, such as `#[expect(unused_mut)]`.
    attributes: &'a [Attribute],
    pattern: &'a Pat,
    pub(crate) ty: &'a Type,
    /// Set for a parameter that has its value only under the lock.
    late: Option<Late<'a>>,
    /// The name of the parameter in the generated function: its own, if the pattern is a plain name, so that the
    /// documentation has it.
    pub(crate) name: Ident,
    binds: Names,
}

impl<'a> Parameters<'a> {
    pub(crate) fn new(
        written: impl Iterator<Item = &'a PatType>,
        referenced: BTreeSet<String>,
        are_of_handler: bool,
    ) -> Self {
        let parameters = written.enumerate();
        let all = parameters
            .map(|(index, written)| Parameter::new(index, written, are_of_handler))
            .collect();
        Self { all, referenced }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Parameter<'a>> {
        self.all.iter()
    }

    /// Checks that no two parameters bind the same name. The generated code binds one pattern after the other, so that the
    /// compiler would accept it.
    pub(crate) fn check(&self) -> syn::Result<()> {
        let mut seen = BTreeSet::new();
        for parameter in &self.all {
            let names = &parameter.binds.names;
            if let Some(second) = names.iter().find(|name| seen.contains(&text(name))) {
                let message = format!("`{second}` is bound by two parameters; rename one of them");
                return Err(syn::Error::new(second.span(), message));
            }
            seen.extend(names.iter().map(text));
            under_lock::check(parameter.ty)?;
        }
        Ok(())
    }

    /// Returns the parameters that are extracted under the lock.
    pub(crate) fn under_lock(&self) -> impl Iterator<Item = &Parameter<'a>> {
        self.all.iter().filter(|parameter| matches!(parameter.late, Some(Late::Extracted(_))))
    }

    /// Returns the parameters that have their values only under the lock.
    pub(crate) fn late(&self) -> impl Iterator<Item = &Parameter<'a>> {
        self.all.iter().filter(|parameter| parameter.late.is_some())
    }

    /// Returns the meaning of a name in the template at `span`.
    pub(crate) fn captured(&self, name: &str, span: Span) -> syn::Result<Captured<'_>> {
        let binds = |parameter: &&Parameter<'_>| {
            parameter.binds.names.iter().any(|bound| text(bound) == name)
        };
        if let Some(parameter) = self.late().find(binds) {
            let has_value = match parameter.late {
                Some(Late::Lock) => "is the held lock",
                _ => "is extracted under the lock",
            };
            return Err(syn::Error::new(
                span,
                format!(
                    "`{name}` {has_value}, but the key is made before; make the key of another parameter, such as \
                     `Path(id): Path<u64>`"
                ),
            ));
        }
        let mut bound = self.all.iter().flat_map(|parameter| &parameter.binds.names);
        if let Some(parameter) = bound.clone().find(|bound| text(bound) == name) {
            return Ok(Captured::Parameter(parameter));
        }
        if !name.chars().any(char::is_lowercase)
            && let Ok(mut constant) = syn::parse_str::<Ident>(name)
        {
            constant.set_span(span);
            return Ok(Captured::Constant(constant));
        }
        let names: BTreeSet<_> = bound.clone().map(|name| format!("`{}`", text(name))).collect();
        let names: Vec<_> = names.into_iter().collect();
        let unseen = if self.all.iter().any(|parameter| parameter.binds.has_macro) {
            " (names bound by a macro in a pattern are not visible to the attribute)"
        } else if bound.any(|name| text(name).starts_with("__arg")) {
            " (`#[async_trait]` hides the names of a pattern; write a plain name as the parameter)"
        } else {
            ""
        };
        let bound = match &*names {
            [] => "they bind no names".to_owned(),
            names => format!("they bind {}", names.join(", ")),
        };
        Err(syn::Error::new(
            span,
            format!(
                "no parameter binds `{name}`: {bound}{unseen}; only a constant in capitals needs no parameter, and any \
                 other value is given after the text: `key(\"..{{}}\", ..)`"
            ),
        ))
    }

    /// Returns statements that move the parameters into the block around them, so that they end with it.
    pub(crate) fn moved(&self) -> TokenStream {
        let names = self.all.iter().map(|parameter| &parameter.name);
        quote_spanned!(mixed_span()=> #(let #names = #names;)*)
    }

    /// Returns statements that bind references to the parameters, under the parameters' names. A name of a parameter that
    /// has its value only under the lock gets a value that the code of the key cannot use.
    pub(crate) fn references(&self, private: &TokenStream) -> TokenStream {
        let is_used = |parameter: &&Parameter<'_>| self.used(parameter).next().is_some();
        self.all
            .iter()
            .filter(is_used)
            .map(|parameter| {
                let (name, mut pattern) = (&parameter.name, parameter.pattern.clone());
                if parameter.late.is_some() {
                    let names: Vec<_> = self.used(parameter).collect();
                    let used = use_of(names.iter().copied());
                    return quote_spanned!(mixed_span()=>
                        #(let (#names,) = (&#private::KnownUnderTheLock,);)* #used
                    );
                }
                ByReference.visit_pat_mut(&mut pattern);
                let bound = bound(&pattern, &quote_spanned!(mixed_span()=> &#name));
                // The use prevents a warning. `#[allow]` would be an error under a `#[forbid]`.
                let used = use_of(parameter.binds.names.iter());
                quote_spanned!(mixed_span()=> #bound #used)
            })
            .collect()
    }

    /// Returns statements that move the parameters into the block around them and bind the user's patterns, as the
    /// beginning of an `async fn` does. The names to which the attribute's arguments refer count as used.
    pub(crate) fn bound(&self) -> TokenStream {
        let bound = self.all.iter().map(|parameter| {
            let Parameter { attributes, pattern, name, .. } = parameter;
            // A block captures single fields, unless the whole parameter moves first.
            let whole = (plain_name(pattern) != Some(name))
                .then(|| quote_spanned!(mixed_span()=> let #name = #name;));
            let bound = bound(pattern, &name.to_token_stream());
            quote_spanned!(mixed_span()=> #whole #(#attributes)* #bound)
        });
        let used = use_of(self.all.iter().flat_map(|parameter| self.used(parameter)));
        quote_spanned!(mixed_span()=> #(#bound)* #used)
    }

    /// Returns the names of a parameter to which the attribute's arguments refer.
    fn used<'p>(&'p self, parameter: &'p Parameter<'_>) -> impl Iterator<Item = &'p Ident> {
        parameter.binds.names.iter().filter(|name| self.referenced.contains(&text(name)))
    }
}

impl<'a> Parameter<'a> {
    /// Returns the type in the generated function, where `path` is `redlock_axum::__private`: its own, or the hidden
    /// extractor of a parameter that has its value only under the lock.
    pub(crate) fn extractor(&self, path: &TokenStream) -> TokenStream {
        let ty = self.ty;
        match self.late {
            Some(Late::Extracted(value)) => quote_spanned!(ty.span()=> #path::Deferred<#value>),
            Some(Late::Lock) => quote_spanned!(ty.span()=> #path::LockLater<#ty>),
            None => ty.to_token_stream(),
        }
    }

    fn new(index: usize, written: &'a PatType, is_of_handler: bool) -> Self {
        let pattern = &*written.pat;
        let name =
            plain_name(pattern).cloned().unwrap_or_else(|| local(format_args!("arg{index}")));
        let mut binds = Names::default();
        binds.visit_pat_mut(&mut pattern.clone());
        let late = match under_lock::value_type(&written.ty) {
            Some(value) => Some(Late::Extracted(value)),
            None => (is_of_handler && held_lock::is_lock(&written.ty)).then_some(Late::Lock),
        };
        Self { attributes: &written.attrs, pattern, ty: &written.ty, late, name, binds }
    }
}

/// Returns a statement that binds a pattern. A plain name stands in a tuple, because Clippy reports `let _id = arg;`.
fn bound(pattern: &Pat, value: &TokenStream) -> TokenStream {
    if matches!(pattern, Pat::Ident(_)) {
        quote_spanned!(mixed_span()=> let (#pattern,) = (#value,);)
    } else {
        quote_spanned!(mixed_span()=> let #pattern = #value;)
    }
}

/// Returns a statement that uses the names, so that the compiler does not warn. It never warns about a name that begins
/// with an underscore.
fn use_of<'a>(names: impl Iterator<Item = &'a Ident>) -> Option<TokenStream> {
    let mut seen = BTreeSet::new();
    let names: Vec<_> =
        names.filter(|name| !text(name).starts_with('_') && seen.insert(text(name))).collect();
    (!names.is_empty()).then(|| quote_spanned!(mixed_span()=> let _ = (#(&#names,)*);))
}

fn text(name: &Ident) -> String {
    name.unraw().to_string()
}

/// Returns the name of a pattern that is a plain name.
///
/// Returns `None` for a name that begins with an underscore: it says that the parameter is unused, but the generated
/// function uses every parameter.
fn plain_name(pattern: &Pat) -> Option<&Ident> {
    match pattern {
        Pat::Ident(PatIdent { ident, subpat: None, .. }) => {
            Some(ident).filter(|name| !text(name).starts_with('_'))
        }
        _ => None,
    }
}

/// Removes `mut`, `ref` and `&` from a pattern, so that it matches a reference to the parameter. Default binding modes
/// make them superfluous or wrong.
struct ByReference;

impl VisitMut for ByReference {
    fn visit_pat_mut(&mut self, pattern: &mut Pat) {
        while let Pat::Reference(reference) = pattern {
            *pattern = (*reference.pat).clone();
        }
        if let Pat::Ident(binding) = pattern {
            (binding.by_ref, binding.mutability) = (None, None);
        }
        visit_mut::visit_pat_mut(self, pattern);
    }
}

/// The names that a pattern binds.
#[derive(Default)]
struct Names {
    names: Vec<Ident>,
    has_macro: bool,
}

impl VisitMut for Names {
    fn visit_pat_mut(&mut self, pattern: &mut Pat) {
        match pattern {
            Pat::Ident(binding) => self.names.push(binding.ident.clone()),
            Pat::Macro(_) => self.has_macro = true,
            _ => {}
        }
        visit_mut::visit_pat_mut(self, pattern);
    }
}

#[cfg(test)]
mod tests {
    use syn::parse::Parser;
    use syn::parse_quote;

    use super::*;

    fn pattern(text: &str) -> Pat {
        Pat::parse_multi.parse_str(text).unwrap()
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
            let mut pattern = pattern(written);
            ByReference.visit_pat_mut(&mut pattern);
            assert_eq!(pattern.to_token_stream().to_string().replace(' ', ""), expected);
        }
    }

    #[test]
    fn every_bound_name_is_found() {
        let mut binds = Names::default();
        binds.visit_pat_mut(&mut pattern("Json(Pay { amount, to: (name, mut city), .. }, all)"));
        let names: Vec<_> = binds.names.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["amount", "name", "city", "all"]);
        assert!(!binds.has_macro);
    }

    fn message(written: &PatType, name: &str) -> String {
        let parameters = Parameters::new(std::iter::once(written), BTreeSet::new(), true);
        parameters.captured(name, Span::call_site()).err().unwrap().to_string()
    }

    #[test]
    fn a_name_that_no_parameter_binds_is_an_error() {
        let error = message(&parse_quote!(c: u8), "b");
        assert!(error.starts_with("no parameter binds `b`: they bind `c`; only"), "{error}");
        assert!(message(&parse_quote!(_: u8), "_").contains("they bind no names"));
        assert!(message(&parse_quote!(_: u8), "A²").contains("they bind no names"));
        assert!(message(&parse_quote!(the!(id): u8), "id").contains("bound by a macro"));
    }

    /// `#[async_trait]` replaces the pattern `Path(id)` by a name.
    #[test]
    fn the_message_explains_a_pattern_that_async_trait_has_replaced() {
        let error = message(&parse_quote!(__arg1: Path<u64>), "id");
        assert!(error.contains("`#[async_trait]` hides the names of a pattern"), "{error}");
    }
}
