//! Reads the values of a key from the headers, the query and the extensions of a request.

use std::borrow::Cow;

use http::HeaderMap;
use http::request::Parts;
use percent_encoding::percent_decode_str;

use crate::config::ExtensionValues;
use crate::rejection::LockRejection;
use crate::value_source::{ValueFault, ValueSource};

/// Returns the value of a placeholder. `None` for a parameter of the path.
pub(super) fn value<'r>(
    placeholder: &str,
    parts: &'r Parts,
    extension_values: &ExtensionValues,
) -> Result<Option<Cow<'r, str>>, LockRejection> {
    let source = ValueSource::of(placeholder);
    let fault = |fault| {
        let detail = format!("{source} {fault}");
        let diagnostics =
            format!("the placeholder {{{placeholder}}} of the lock key has no value: {detail}");
        LockRejection::unusable_value(detail, diagnostics)
    };
    let value = match source {
        ValueSource::Path(_) => return Ok(None),
        ValueSource::Header(name) => header(&parts.headers, name).map_err(fault)?,
        ValueSource::Query(name) => {
            query_parameter(parts.uri.query().unwrap_or_default(), name).map_err(fault)?
        }
        ValueSource::Extension(name) => {
            let function = extension_values.get(name)?;
            let value = function.value(&parts.extensions);
            Cow::Owned(value.ok_or_else(|| {
                    LockRejection::misconfigured(format!(
                        "the placeholder {{{placeholder}}} of the lock key needs the extension {}, which the request \
                         lacks; the layer that inserts it must be outside of the lock: add it to the router after the \
                         lock layer or the lock policies",
                        function.type_name
                    ))
                })?)
        }
    };
    Ok(Some(value))
}

/// Returns the value of a header without the blanks around it, which are not a part of the value (RFC 9110,
/// section 5.5). HTTP/2 does not remove them.
fn header<'r>(headers: &'r HeaderMap, name: &str) -> Result<Cow<'r, str>, ValueFault> {
    let value = only(headers.get_all(name).iter())?;
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| ValueFault::NotUtf8)?;
    Ok(Cow::Borrowed(text.trim_matches([' ', '\t'])))
}

/// Returns the value of a query parameter, decoded as by axum's `Query`. Different from it, a value that is
/// not UTF-8 is an error: its replacement characters could stand for several values.
fn query_parameter<'r>(query: &'r str, name: &str) -> Result<Cow<'r, str>, ValueFault> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let value = only(pairs.filter(|(known, _)| decoded(known).is_some_and(|known| known == name)))?;
    decoded(value.1).ok_or(ValueFault::NotUtf8)
}

/// Decodes a name or a value of a query (`application/x-www-form-urlencoded`).
fn decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('+') {
        return percent_decode_str(text).decode_utf8().ok();
    }
    let text = text.replace('+', " ");
    Some(Cow::Owned(percent_decode_str(&text).decode_utf8().ok()?.into_owned()))
}

fn only<T>(mut values: impl Iterator<Item = T>) -> Result<T, ValueFault> {
    let value = values.next().ok_or(ValueFault::Missing)?;
    if values.next().is_some() { Err(ValueFault::Repeated) } else { Ok(value) }
}
