//! The checked policies of a layer, and the choice of the policy for a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{MatchedPath, OriginalUri};
use http::Method;
use http::request::Parts;
use redlock_core::__private::{Acquisition, Keys, LockName};
use redlock_core::{LockManager, LockRequest};

use super::key::PolicyKey;
use super::policy::LockPolicy;
use crate::error::{PolicyMistake, SetupError};
use crate::rejection::{LockOrigin, LockRejection};
use crate::serve::locked::{RequestLock, RequestParts};

/// The policies of a layer.
pub(super) struct Table {
    policies: Vec<CheckedPolicy>,
    /// The shape of the route that fits a path. `None` if the only policy has no route.
    by_path: Option<matchit::Router<String>>,
}

/// A policy without mistakes.
pub(super) struct CheckedPolicy {
    pub(super) policy: LockPolicy,
    key: PolicyKey,
    /// The shape of the route, see [`parse`]. Empty if the policy has no route.
    shape: String,
    has_matched: AtomicBool,
}

impl Table {
    /// Checks the policies. `has_routes` is `false` for a single policy without a route.
    pub(super) fn new(
        locks: &LockManager,
        policies: impl IntoIterator<Item = LockPolicy>,
        has_routes: bool,
    ) -> Result<Self, SetupError> {
        let by_path = has_routes.then(matchit::Router::new);
        let mut table = Self { policies: Vec::new(), by_path };
        for policy in policies {
            let checked = policy.check(locks).and_then(|key| {
                let shape = table.check_route(&policy, &key)?;
                Ok((key, shape))
            });
            let (key, shape) =
                checked.map_err(|mistake| error(table.policies.len(), &policy, mistake))?;
            table.warn_about_types(&policy);
            table.policies.push(CheckedPolicy { policy, key, shape, has_matched: false.into() });
        }
        Ok(table)
    }

    /// Checks the route of a policy and returns its shape.
    fn check_route(
        &mut self,
        policy: &LockPolicy,
        key: &PolicyKey,
    ) -> Result<String, PolicyMistake> {
        let Some(by_path) = &mut self.by_path else { return Ok(String::new()) };
        let Some(route) = &policy.route else {
            return Err("it has no route, by which a table finds the policy of a request".into());
        };
        if !route.starts_with('/') {
            return Err("the route must start with a slash".into());
        }
        if route.split('/').any(|segment| segment.starts_with([':', '*'])) {
            return Err("a parameter of the route is written {name}, a wildcard {*name}".into());
        }
        let (shape, names) = parse(route);
        check_path_names(key, &names)?;
        let mut is_new = true;
        for (index, other) in self.policies.iter().enumerate() {
            if other.shape == shape {
                other.policy.check_overlap(index, policy)?;
                is_new = false;
            }
        }
        if is_new {
            let inserted = by_path.insert(route, shape.clone());
            inserted.map_err(|error| format!("the route cannot be used: {error}"))?;
        }
        Ok(shape)
    }

    pub(super) fn policies(&self) -> impl Iterator<Item = &LockPolicy> {
        self.policies.iter().map(|checked| &checked.policy)
    }

    /// Warns about an earlier policy whose key differs only in the types of placeholders.
    fn warn_about_types(&self, policy: &LockPolicy) {
        let (lock, untyped) = (policy.key_text(), without_types(policy.key_text()));
        let other = self
            .policies()
            .find(|other| other.key_text() != lock && without_types(other.key_text()) == untyped);
        if let Some(other) = other {
            tracing::warn!(
                lock = &**lock,
                route = policy.route,
                "the keys of the lock policies {other} and {policy} differ only in the types of their placeholders ({} \
                 and {lock}), so one resource may have two locks; write the same types in both",
                other.key_text()
            );
        }
    }

    /// Returns the policy of a request, if it has one.
    pub(super) fn select(&self, parts: &Parts) -> Result<Option<&CheckedPolicy>, LockRejection> {
        let Some(by_path) = &self.by_path else { return Ok(self.find("", &parts.method)) };
        let matched = parts.extensions.get::<MatchedPath>();
        let shape = matched.and_then(|matched| self.shape_of(matched.as_str()));
        if let Some(found) = shape.and_then(|shape| self.find(shape, &parts.method)) {
            return Ok(Some(found));
        }
        // In a nested router the URI lacks the prefix; `OriginalUri` still has it.
        let uri = parts.extensions.get::<OriginalUri>().map_or(&parts.uri, |original| &original.0);
        let of_path = by_path.at(uri.path()).ok();
        match of_path.and_then(|found| self.find(found.value, &parts.method)) {
            Some(skipped) if skipped.is_preferred_to(matched, uri.path()) => {
                Err(LockRejection::misconfigured(format!(
                    "the lock policy for {} fits the path of a request, but axum did not match that route; either the \
                     router has no such route, or the layer is not added with `Router::layer` or `Router::route_layer` \
                     to the router that has it",
                    skipped.policy
                ))
                .at(skipped.origin(parts)))
            }
            _ => Ok(None),
        }
    }

    /// Returns the shape of a route that has a policy. The names of its parameters may differ from those in the policy.
    fn shape_of(&self, route: &str) -> Option<&str> {
        let is_written = |checked: &&CheckedPolicy| checked.policy.route.as_deref() == Some(route);
        let written = self.policies.iter().find(is_written);
        let by_shape = || {
            let shape = parse(route).0;
            self.policies.iter().find(|checked| checked.shape == shape)
        };
        Some(&written.or_else(by_shape)?.shape)
    }

    /// Returns the policy for a route and a method. A policy for HEAD comes before a policy for GET.
    fn find(&self, shape: &str, method: &Method) -> Option<&CheckedPolicy> {
        let of_route = || self.policies.iter().filter(|checked| checked.shape == shape);
        let exact = of_route().find(|checked| checked.policy.names_exactly(method));
        exact.or_else(|| of_route().find(|checked| checked.policy.covers(method)))
    }

    pub(super) fn check_routes<I>(&self, routes: I) -> Result<(), SetupError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let routes: Vec<_> = routes.into_iter().collect();
        let known: Vec<_> = routes.iter().map(|route| parse(route.as_ref())).collect();
        let with_route = self.policies.iter().filter(|checked| !checked.shape.is_empty());
        for (index, CheckedPolicy { policy, key, shape, .. }) in with_route.enumerate() {
            let checked = match known.iter().find(|(known, _)| known == shape) {
                None => Err("the application has no such route".into()),
                Some((_, names)) => check_path_names(key, names),
            };
            checked.map_err(|mistake| error(index, policy, mistake))?;
        }
        Ok(())
    }

    pub(super) fn unmatched(&self) -> impl Iterator<Item = &LockPolicy> {
        let unmatched = |checked: &&CheckedPolicy| !checked.has_matched.load(Ordering::Relaxed);
        self.policies.iter().filter(unmatched).map(|checked| &checked.policy)
    }
}

impl CheckedPolicy {
    /// Returns the lock of a request, and puts its slot into the extensions of the request.
    pub(super) fn request(
        &self,
        locks: &LockManager,
        name_of_layer: Option<&LockName>,
        parts: &mut Parts,
    ) -> Result<(Acquisition, RequestLock), LockRejection> {
        self.has_matched.store(true, Ordering::Relaxed);
        let keys = Keys::from(self.key.of(parts)?);
        let options = self.policy.options_for(&parts.method);
        let parts = RequestParts::of(parts, options.fenced.unwrap_or_default());
        let request = LockRequest::new(locks.context(), Ok(keys)).options(options);
        let request = request.with_name(self.policy.lock_name(name_of_layer));
        let lock = RequestLock::new(&request, self.policy.http, parts);
        Ok((request.prepare()?, lock))
    }

    /// Returns where the lock comes from, for the log.
    pub(super) fn origin(&self, parts: &Parts) -> LockOrigin {
        let lock = Some(Arc::clone(self.policy.key_text()));
        LockOrigin { lock, route: parts.extensions.get().cloned() }
    }

    /// Returns whether a router with the policy's route and the matched route would send the path to the policy's route.
    fn is_preferred_to(&self, matched: Option<&MatchedPath>, path: &str) -> bool {
        let (Some(matched), Some(route)) = (matched, &self.policy.route) else { return true };
        let mut router = matchit::Router::new();
        if router.insert(matched.as_str(), false).is_err() || router.insert(route, true).is_err() {
            // A router cannot have both routes.
            return true;
        }
        router.at(path).is_ok_and(|found| *found.value)
    }
}

impl LockPolicy {
    /// Refuses another policy for a method of the same route. `position` is the position of this policy.
    fn check_overlap(&self, index: usize, other: &Self) -> Result<(), PolicyMistake> {
        let method = match (&self.methods, &other.methods) {
            (Some(ours), Some(theirs)) => {
                let common = ours.named().iter().find(|method| theirs.named().contains(method));
                let Some(method) = common else { return Ok(()) };
                format!(" and {method}")
            }
            _ => String::new(),
        };
        Err(format!("policy {} is for the same route{method}", index + 1).into())
    }
}

/// Checks that the route has each path parameter of the key once.
fn check_path_names(key: &PolicyKey, names: &[&str]) -> Result<(), PolicyMistake> {
    let is_once = |name: &str| names.iter().filter(|known| **known == name).count() == 1;
    let Some(name) = key.path_names().find(|name| !is_once(name)) else { return Ok(()) };
    let names: Vec<_> = names.iter().map(|name| format!("{{{name}}}")).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Err(format!("the key has the placeholder {{{name}}}, but the route has {names}").into())
}

/// Returns the shape of a route, which is the route without the names of its parameters, and these names. Two routes with
/// the same shape match the same paths, and a router can have only one of them.
fn parse(route: &str) -> (String, Vec<&str>) {
    let (mut shape, mut names, mut rest) = (String::new(), Vec::new(), route);
    while let Some((before, after)) = rest.split_once('{') {
        shape.push_str(before);
        if let Some(after) = after.strip_prefix('{') {
            // Doubled braces are a literal brace.
            shape.push_str("{{");
            rest = after;
            continue;
        }
        let (name, after) = after.split_once('}').unwrap_or((after, ""));
        shape.push_str(if name.starts_with('*') { "{*}" } else { "{}" });
        names.push(name.trim_start_matches('*'));
        rest = after;
    }
    shape.push_str(rest);
    (shape, names)
}

/// Removes the types of the placeholders: `order:{id}` for `order:{id:u64}`. The result is for comparisons only.
fn without_types(template: &str) -> String {
    // A template has no control character. A doubled brace opens no placeholder.
    let template = template.replace("{{", "\0");
    let untyped = template.split('}').map(|piece| match piece.rsplit_once(':') {
        // The argument of a source may have a colon: `{query(a:b)}`.
        Some((name, kind)) if name.contains('{') && !kind.contains(['{', ')']) => name,
        _ => piece,
    });
    untyped.collect::<Vec<_>>().join("}")
}

fn error(index: usize, policy: &LockPolicy, mistake: PolicyMistake) -> SetupError {
    SetupError { position: index + 1, policy: policy.route_or_key().to_owned(), mistake }
}
