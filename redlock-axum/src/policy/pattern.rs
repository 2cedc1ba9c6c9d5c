//! Parses route patterns in axum's syntax: `/orders/{id}/pay`, `/files/{*path}`.

use std::borrow::Cow;

use matchit::{InsertError, Router};

/// A route pattern that axum accepts.
#[derive(Debug)]
pub(super) struct RoutePattern {
    pub(super) shape: String,
    pub(super) names: Vec<String>,
}

impl RoutePattern {
    pub(super) fn parse(route: &str) -> Result<Self, String> {
        if !route.starts_with('/') {
            return Err("it must start with a slash".to_owned());
        }
        if route.split('/').any(|segment| segment.starts_with([':', '*'])) {
            return Err("parameters are written {name}, wildcards {*name}".to_owned());
        }
        Router::new().insert(route, ()).map_err(|error| describe(&error))?;
        let names = names(route);
        if let Some(twice) = names
            .iter()
            .enumerate()
            .find_map(|(index, name)| names[..index].contains(name).then_some(name))
        {
            return Err(format!("two parameters have the name {twice}"));
        }
        Ok(Self { shape: shape(route).into_owned(), names })
    }
}

/// Returns the pattern without the names of its parameters.
///
/// Two patterns with the same shape match the same paths, and a router can have only one of them.
pub(super) fn shape(route: &str) -> Cow<'_, str> {
    if !route.contains('{') {
        return Cow::Borrowed(route);
    }
    let mut shape = String::with_capacity(route.len());
    for piece in pieces(route) {
        match piece {
            Piece::Literal(text) => shape.push_str(text),
            Piece::Parameter(name) if name.starts_with('*') => shape.push_str("{*}"),
            Piece::Parameter(_) => shape.push_str("{}"),
        }
    }
    Cow::Owned(shape)
}

pub(super) fn names(route: &str) -> Vec<String> {
    pieces(route)
        .filter_map(|piece| match piece {
            Piece::Literal(_) => None,
            Piece::Parameter(name) => Some(name.trim_start_matches('*').to_owned()),
        })
        .collect()
}

/// Returns whether a router with both routes would send the path to `route` rather than to `other`.
pub(super) fn is_preferred(route: &str, other: &str, path: &str) -> bool {
    let mut router = Router::new();
    if router.insert(other, false).is_err() || router.insert(route, true).is_err() {
        // A router cannot have both routes.
        return true;
    }
    router.at(path).is_ok_and(|found| *found.value)
}

/// Replaces each run of slashes in the path by one slash.
pub(super) fn single_slashes(path: &str) -> Cow<'_, str> {
    if !path.contains("//") {
        return Cow::Borrowed(path);
    }
    let mut single = String::with_capacity(path.len());
    for character in path.chars() {
        if character != '/' || !single.ends_with('/') {
            single.push(character);
        }
    }
    Cow::Owned(single)
}

enum Piece<'a> {
    Literal(&'a str),
    Parameter(&'a str),
}

/// Splits the pattern into literals and parameters. Doubled braces are escapes and belong to the literal.
fn pieces(route: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = route;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let opening = |at: &usize| !rest[at + 1..].starts_with('{');
        let mut from = 0;
        let start = loop {
            match rest[from..].find('{').map(|found| from + found) {
                Some(at) if opening(&at) => break Some(at),
                Some(at) => from = at + 2,
                None => break None,
            }
        };
        let parameter = start.and_then(|start| Some((start, start + rest[start..].find('}')?)));
        match parameter {
            Some((0, end)) => {
                let name = &rest[1..end];
                rest = &rest[end + 1..];
                Some(Piece::Parameter(name))
            }
            Some((start, _)) => {
                let (literal, tail) = rest.split_at(start);
                rest = tail;
                Some(Piece::Literal(literal))
            }
            None => Some(Piece::Literal(std::mem::take(&mut rest))),
        }
    })
}

fn describe(error: &InsertError) -> String {
    match error {
        InsertError::InvalidParam => {
            "a parameter is written {name} and a wildcard {*name}, with {{ and }} for braces".into()
        }
        InsertError::InvalidParamSegment => {
            "a segment of the path has one parameter at most, at its end".into()
        }
        InsertError::InvalidCatchAll => "a wildcard stands only at the end".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_names_do_not_change_the_shape_of_a_route() {
        for (route, expected) in [
            ("/", "/"),
            ("/orders/{id}/pay", "/orders/{}/pay"),
            ("/files/{*path}", "/files/{*}"),
            ("/v-{major}/{x}", "/v-{}/{}"),
            ("/{{id}}/{id}", "/{{id}}/{}"),
        ] {
            assert_eq!(shape(route), expected);
            assert!(RoutePattern::parse(route).is_ok(), "{route}");
        }
        assert_eq!(names("/a/{x}/{{y}}/{*rest}"), ["x", "rest"]);
    }

    #[test]
    fn a_route_that_axum_rejects_is_refused_with_the_reason() {
        let reason = |route| RoutePattern::parse(route).unwrap_err();
        assert_eq!(reason("orders"), "it must start with a slash");
        assert_eq!(reason(""), "it must start with a slash");
        assert_eq!(reason("/a/:id"), "parameters are written {name}, wildcards {*name}");
        assert_eq!(reason("/a/*rest"), "parameters are written {name}, wildcards {*name}");
        assert!(reason("/a/{}").starts_with("a parameter is written {name}"));
        assert!(reason("/a/{id").starts_with("a parameter is written {name}"));
        assert_eq!(
            reason("/a/{id}x"),
            "a segment of the path has one parameter at most, at its end"
        );
        assert_eq!(reason("/a/{*rest}/b"), "a wildcard stands only at the end");
        assert_eq!(reason("/{id}/{id}"), "two parameters have the name id");
    }

    #[test]
    fn consecutive_slashes_become_one() {
        for (path, expected) in [
            ("/", "/"),
            ("//", "/"),
            ("/a//b///c", "/a/b/c"),
            ("/ä//", "/ä/"),
            ("/a%2F/b", "/a%2F/b"),
        ] {
            assert_eq!(single_slashes(path), expected);
        }
    }

    #[test]
    fn the_more_specific_route_is_preferred() {
        assert!(is_preferred("/orders/{id}", "/orders/{*rest}", "/orders/1"));
        assert!(!is_preferred("/orders/{id}", "/orders/new", "/orders/new"));
        assert!(is_preferred("/orders/{id}", "/{kind}/{id}", "/orders/1"));
    }
}
