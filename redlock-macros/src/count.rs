//! Parses the counts in the attribute: whole numbers, or constants.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::{Expr, ExprLit, Lit};

use crate::hygiene::span_at;
use crate::key::ungrouped;

/// A count as it was written.
pub(crate) enum WrittenCount {
    Literal(u32),
    /// An expression for a whole number.
    Constant(Expr),
}

impl WrittenCount {
    pub(crate) fn parse(argument: &str, value: &Expr) -> syn::Result<Self> {
        match ungrouped(value) {
            Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) if number.suffix().is_empty() => {
                // The compiler reports the range of the option for the greatest number.
                Ok(Self::Literal(number.base10_parse().unwrap_or(u32::MAX)))
            }
            constant @ (Expr::Path(_) | Expr::Call(_) | Expr::MethodCall(_)) => {
                Ok(Self::Constant(constant.clone()))
            }
            other => Err(syn::Error::new_spanned(
                other,
                format!("`{argument}` must be a whole number, such as `3`, or a constant"),
            )),
        }
    }

    /// Returns a constant expression for the count, where `private` is `redlock_axum::__private`.
    pub(crate) fn expression(&self, private: &TokenStream) -> TokenStream {
        match self {
            Self::Literal(count) => quote!(#count),
            Self::Constant(expression) => {
                quote_spanned!(span_at(expression)=> #private::CountConstant(#expression).number())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> Result<String, String> {
        let value = syn::parse_str(text).unwrap();
        let count = WrittenCount::parse("permits", &value).map_err(|error| error.to_string())?;
        Ok(count.expression(&quote!(private)).to_string())
    }

    #[test]
    fn a_count_is_a_number_or_a_constant() {
        assert_eq!(count("3"), Ok("3u32".to_owned()));
        assert_eq!(count("1_000"), Ok("1000u32".to_owned()));
        for constant in ["EXPORTS", "Self :: EXPORTS", "EXPORTS . min (3)"] {
            let expected = format!("private :: CountConstant ({constant}) . number ()");
            assert_eq!(count(constant), Ok(expected));
        }
        for other in ["\"3\"", "-1", "0.5", "3u8", "true", "2 * 3"] {
            let expected = "`permits` must be a whole number, such as `3`, or a constant";
            assert_eq!(count(other), Err(expected.to_owned()), "{other}");
        }
    }

    /// The range of the option is checked by `redlock-core`.
    #[test]
    fn a_number_that_is_too_great_stays_too_great() {
        for text in ["4294967296", "99999999999999999999"] {
            assert_eq!(count(text), Ok("4294967295u32".to_owned()));
        }
    }
}
