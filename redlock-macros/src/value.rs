//! Parses the value of one argument.

use proc_macro2::Ident;
use syn::parse::ParseStream;
use syn::{Expr, ExprLit, Lit, Token};

use crate::key::ungrouped;

/// Stores the value of an argument. An argument that is given twice is an error.
pub(crate) fn set_once<T>(slot: &mut Option<T>, name: &Ident, value: T) -> syn::Result<()> {
    if slot.replace(value).is_some() {
        return Err(syn::Error::new(name.span(), format!("`{name}` is given twice")));
    }
    Ok(())
}

/// Parses the `=` of an argument that must have a value.
pub(crate) fn equals(input: ParseStream<'_>, name: &Ident) -> syn::Result<()> {
    match input.parse::<Token![=]>() {
        Ok(_) if !input.is_empty() => Ok(()),
        _ => {
            Err(syn::Error::new(name.span(), format!("`{name}` has no value; write `{name} = ..`")))
        }
    }
}

/// Parses `= value`.
pub(crate) fn value(input: ParseStream<'_>, name: &Ident) -> syn::Result<Expr> {
    equals(input, name)?;
    input.parse()
}

/// Parses `= true` or `= false`. Without `=`, the flag is `true`.
pub(crate) fn flag(input: ParseStream<'_>, name: &Ident) -> syn::Result<bool> {
    if !input.peek(Token![=]) {
        return Ok(true);
    }
    let value = value(input, name)?;
    match ungrouped(&value) {
        Expr::Lit(ExprLit { lit: Lit::Bool(flag), .. }) => Ok(flag.value),
        other => Err(syn::Error::new_spanned(
            other,
            format!("`{name}` is `true` or `false`, and `{name}` alone is `true`"),
        )),
    }
}
