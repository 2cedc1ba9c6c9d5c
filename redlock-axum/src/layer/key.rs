//! Makes the key of a request from its path, its headers, its query and its extensions.

use std::any::type_name;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;
use redlock_core::__private::LockName;
use redlock_core::{KeyError, KeyTemplate, LockKey};

use crate::error::PolicyMistake;
use crate::rejection::LockRejection;
use crate::value_source::{ValueFault, ValueSource};

/// The functions for the placeholders `{ext(name)}`, by name.
pub(super) type ExtensionFunctions = BTreeMap<String, ExtensionFunction>;

type ValueFunction = Arc<dyn Fn(&Extensions) -> Option<String> + Send + Sync>;

/// A function that takes a value from an extension of the request.
#[derive(Clone)]
pub(super) struct ExtensionFunction {
    /// The type of the extension, for the log.
    type_name: &'static str,
    value: ValueFunction,
}

impl ExtensionFunction {
    pub(super) fn new<T, V, F>(value: F) -> Self
    where
        F: Fn(&T) -> V + Send + Sync + 'static,
        T: Send + Sync + 'static,
        V: Display,
    {
        let value = move |extensions: &Extensions| Some(value(extensions.get::<T>()?).to_string());
        Self { type_name: type_name::<T>(), value: Arc::new(value) }
    }
}

impl fmt::Debug for ExtensionFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.type_name)
    }
}

type KeyFunction = Arc<dyn Fn(&Parts) -> Result<LockKey, KeyError> + Send + Sync>;

/// The key of a policy, as the application has written it.
#[derive(Clone)]
pub(super) struct KeySource {
    /// The template, or the name of the constructor of a policy with a function.
    pub(super) text: Arc<str>,
    /// The default name of the lock.
    pub(super) name: LockName,
    function: Option<KeyFunction>,
}

impl KeySource {
    pub(super) fn template(template: String) -> Self {
        let name = LockName::of_template(&template);
        Self { text: template.into(), name, function: None }
    }

    pub(super) fn from_fn<F>(key: F) -> Self
    where
        F: Fn(&Parts) -> Result<LockKey, KeyError> + Send + Sync + 'static,
    {
        let name = function_name(type_name::<F>()).map_or(LockName::OTHER, LockName::of_template);
        Self { text: "from_fn".into(), name, function: Some(Arc::new(key)) }
    }
}

/// Returns the name of a function by the name of its type, which is its path. Closures and other types have none.
fn function_name(type_name: &str) -> Option<&str> {
    let is_path = type_name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | ':'));
    is_path.then(|| type_name.rsplit(':').next().unwrap_or(type_name))
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A checked key.
pub(super) enum PolicyKey {
    Template { template: KeyTemplate, placeholders: Vec<RequestValue> },
    Function(KeyFunction),
}

/// A placeholder of a template, whose value comes from the request.
pub(super) struct RequestValue {
    name: String,
    source: ParsedSource,
}

/// The source of a placeholder's value.
enum ParsedSource {
    Path,
    Header(HeaderName),
    Query(String),
    Extension(ExtensionFunction),
}

impl PolicyKey {
    /// Parses the template, and finds the source of each placeholder.
    pub(super) fn new(
        key: &KeySource,
        functions: &ExtensionFunctions,
    ) -> Result<Self, PolicyMistake> {
        if let Some(function) = &key.function {
            return Ok(Self::Function(Arc::clone(function)));
        }
        let template = KeyTemplate::new(&key.text)?;
        let placeholders = template.placeholders().map(|name| RequestValue::new(name, functions));
        let placeholders = placeholders.collect::<Result<_, _>>()?;
        Ok(Self::Template { template, placeholders })
    }

    /// Returns the names of the path parameters that the template needs.
    pub(super) fn path_names(&self) -> impl Iterator<Item = &str> {
        let placeholders = match self {
            Self::Template { placeholders, .. } => &placeholders[..],
            Self::Function(_) => &[],
        };
        let of_path = placeholders.iter().filter(|it| matches!(it.source, ParsedSource::Path));
        of_path.map(|placeholder| &*placeholder.name)
    }

    /// Returns the key of a request.
    pub(super) fn of(&self, parts: &mut Parts) -> Result<LockKey, LockRejection> {
        let (template, placeholders) = match self {
            Self::Template { template, placeholders } => (template, placeholders),
            Self::Function(key) => return Ok(key(parts)?),
        };
        let has_path_names = self.path_names().next().is_some();
        let params = if has_path_names { path_params(parts)? } else { None };
        let params = || params.iter().flatten();
        let mut values = Vec::new();
        for RequestValue { name, source } in placeholders {
            match value(name, source, parts)? {
                Some(value) => values.push((&**name, value)),
                None if params().filter(|(known, _)| known == name).count() > 1 => {
                    return Err(LockRejection::misconfigured(format!(
                        "the placeholder {{{name}}} of the lock key could be one of several path parameters of this \
                         route; give them different names"
                    )));
                }
                None => {}
            }
        }
        // The first pair with a name counts, and a route could have a parameter with the name of a header.
        let values = values.iter().map(|(name, value)| (*name, &**value));
        Ok(template.render(values.chain(params()))?)
    }
}

impl RequestValue {
    fn new(name: &str, functions: &ExtensionFunctions) -> Result<Self, PolicyMistake> {
        let source = match ValueSource::of(name) {
            ValueSource::Path(_) => ParsedSource::Path,
            ValueSource::Header(header) => ParsedSource::Header(header.parse()?),
            ValueSource::Query(parameter) => ParsedSource::Query(parameter.to_owned()),
            ValueSource::Extension(function) => {
                let known = functions.get(function).cloned();
                ParsedSource::Extension(known.ok_or_else(|| {
                    format!(
                        "the key has the placeholder {{ext({function})}}, but no function is registered for it; add \
                         `.ext(\"{function}\", |extension: &MyExtension| ..)` to the policy"
                    )
                })?)
            }
        };
        Ok(Self { name: name.to_owned(), source })
    }
}

/// Returns the value of a placeholder. `None` for a parameter of the path.
fn value<'r>(
    name: &str,
    source: &ParsedSource,
    parts: &'r Parts,
) -> Result<Option<Cow<'r, str>>, LockRejection> {
    let value = match source {
        ParsedSource::Path => return Ok(None),
        ParsedSource::Header(header) => header_value(&parts.headers, header),
        ParsedSource::Query(parameter) => {
            query_parameter(parts.uri.query().unwrap_or_default(), parameter)
        }
        ParsedSource::Extension(function) => {
            let value = (function.value)(&parts.extensions).ok_or_else(|| {
                LockRejection::misconfigured(format!(
                    "the placeholder {{{name}}} of the lock key needs the extension {}, which the request lacks; the \
                     layer that inserts it must be outside of the lock: add it to the router after the lock layer",
                    function.type_name
                ))
            })?;
            Ok(Cow::Owned(value))
        }
    };
    value.map(Some).map_err(|fault| {
        let detail = format!("{} {fault}", ValueSource::of(name));
        let diagnostics =
            format!("the placeholder {{{name}}} of the lock key has no value: {detail}");
        LockRejection::unusable_value(detail, diagnostics)
    })
}

/// Returns the value of a header without the blanks around it, which are not a part of the value (RFC 9110,
/// section 5.5). HTTP/2 does not remove them.
fn header_value<'r>(headers: &'r HeaderMap, name: &HeaderName) -> Result<Cow<'r, str>, ValueFault> {
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

/// Returns the path parameters, percent-decoded as in axum's `Path`. `None` if there are none: rendering then fails with
/// an error that names the first placeholder for one.
fn path_params(parts: &mut Parts) -> Result<Option<RawPathParams>, LockRejection> {
    let params = pin!(RawPathParams::from_request_parts(parts, &()));
    // The extractor is a future only because its trait demands it: it does not wait.
    match params.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(params)) => Ok(Some(params)),
        Poll::Ready(Err(RawPathParamsRejection::InvalidUtf8InPathParam(error))) => {
            Err(LockRejection::unusable_value(
                "a path parameter is not valid UTF-8",
                format!("a path parameter cannot be used: {error}"),
            ))
        }
        _ => Ok(None),
    }
}
