//! Finds the policy for a request.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{MatchedPath, OriginalUri};
use http::{Method, Request};
use redlock_core::KeyTemplate;

use super::LockPolicy;
use super::pattern::{self, RoutePattern};
use crate::config::{ExtensionValues, KeySource, RouteLock};
use crate::error::{PolicyError, SetupError};
use crate::value_source::ValueSource;

/// The policies, with indexes by route and by path.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: Vec<PolicyEntry>,
    /// The positions of the entries of each route.
    routes: Vec<Vec<usize>>,
    /// The index of each route, by the shape of its pattern.
    by_shape: HashMap<String, usize>,
    /// The index of each route, by its pattern as a policy writes it. The pattern of a matched route is usually
    /// the same, so that its shape need not be made.
    by_pattern: HashMap<String, usize>,
    /// The shape of the route that fits a path, to find policies whose route axum did not match.
    by_path: matchit::Router<String>,
}

#[derive(Debug)]
struct PolicyEntry {
    policy: LockPolicy,
    shape: String,
    route_lock: Arc<RouteLock>,
    matched: AtomicBool,
    reported: AtomicBool,
}

/// The way in which a request is served or refused.
pub(super) enum PolicyDecision {
    /// The request has no policy.
    Unlocked,
    Locked(Arc<RouteLock>),
    Refused {
        policy: String,
    },
    /// The path fits a policy, except for doubled slashes. The request is refused if a route matched it.
    ///
    /// A router treats paths with single and with doubled slashes as different, but a nested service may
    /// not: axum's `nest_service` itself removes a slash.
    RefusedUnlessFallback {
        policy: String,
    },
}

impl Table {
    pub(super) fn add(&mut self, policy: LockPolicy) -> Result<(), PolicyError> {
        let index = self.entries.len();
        let (shape, route_lock) =
            self.validate(&policy).map_err(|reason| error(index, &policy, reason))?;
        let new = self.routes.len();
        let route = *self.by_shape.entry(shape.clone()).or_insert(new);
        if route == new {
            self.routes.push(Vec::new());
        }
        self.routes[route].push(index);
        self.by_pattern.insert(policy.route.clone(), route);
        self.entries.push(PolicyEntry {
            policy,
            shape,
            route_lock: Arc::new(route_lock),
            matched: AtomicBool::new(false),
            reported: AtomicBool::new(false),
        });
        Ok(())
    }

    fn validate(&mut self, policy: &LockPolicy) -> Result<(String, RouteLock), SetupError> {
        let RoutePattern { shape, names } =
            RoutePattern::parse(&policy.route).map_err(SetupError::Route)?;
        let mut route_lock =
            RouteLock::new(KeyTemplate::new(&policy.key).map_err(SetupError::from));
        route_lock.methods = policy.methods.clone();
        route_lock.options = policy.options.clone();
        // The table finds policies by the matched route, so `serve` needs no check for fallbacks.
        route_lock.lock_fallback = true;
        let key = route_lock.check()?;
        if let Some(missing) = missing_name(key, &names) {
            return Err(missing);
        }
        match self.by_shape.get(&shape) {
            Some(route) => {
                for &other in &self.routes[*route] {
                    self.entries[other].overlap(other, policy)?;
                }
            }
            // The shapes differ, but routes can still conflict: axum would refuse to have both.
            None => self
                .by_path
                .insert(policy.route.as_str(), shape.clone())
                .map_err(|error| SetupError::Route(error.to_string()))?,
        }
        Ok((shape, route_lock))
    }

    /// Decides whether a request is locked, served unlocked or refused.
    pub(super) fn decide<B>(&self, request: &Request<B>) -> PolicyDecision {
        let extensions = request.extensions();
        let route = extensions.get::<MatchedPath>().map(MatchedPath::as_str);
        let index_of = |pattern: &str| {
            let index = self.by_pattern.get(pattern);
            index.or_else(|| self.by_shape.get(&*pattern::shape(pattern)))
        };
        if let Some(index) = route.and_then(index_of) {
            return match self.find(&self.routes[*index], request.method()) {
                Some(entry) => {
                    entry.matched.store(true, Ordering::Relaxed);
                    PolicyDecision::Locked(Arc::clone(&entry.route_lock))
                }
                None => PolicyDecision::Unlocked,
            };
        }

        // In a nested router the URI lacks the prefix; `OriginalUri` still has it.
        let path = extensions.get::<OriginalUri>().map_or(request.uri(), |uri| &uri.0).path();
        let skipped_policy = |path: &str| {
            let entry = self.find_by_path(path, request.method())?;
            route
                .is_none_or(|route| pattern::is_preferred(&entry.policy.route, route, path))
                .then(|| entry.policy.to_string())
        };
        if let Some(policy) = skipped_policy(path) {
            return PolicyDecision::Refused { policy };
        }
        if let Cow::Owned(path) = pattern::single_slashes(path)
            && let Some(policy) = skipped_policy(&path)
        {
            return PolicyDecision::RefusedUnlessFallback { policy };
        }
        if let Some(route) = route {
            self.report_similar_routes(route, &pattern::shape(route));
        }
        PolicyDecision::Unlocked
    }

    pub(super) fn check_routes<I>(&self, routes: I) -> Result<(), PolicyError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let mut known = HashMap::new();
        for route in routes {
            let route = route.as_ref();
            known.insert(pattern::shape(route).into_owned(), pattern::names(route));
        }
        for (index, entry) in self.entries.iter().enumerate() {
            let reason = match known.get(&entry.shape) {
                None => Some(SetupError::NoSuchRoute),
                Some(names) => {
                    entry.route_lock.check().ok().and_then(|key| missing_name(key, names))
                }
            };
            if let Some(reason) = reason {
                return Err(error(index, &entry.policy, reason));
            }
        }
        Ok(())
    }

    /// Checks that each placeholder `{ext(name)}` has a function.
    pub(super) fn check_extensions(&self, values: &ExtensionValues) -> Result<(), PolicyError> {
        for (index, entry) in self.entries.iter().enumerate() {
            let checked = entry.route_lock.check().and_then(|key| values.check(key));
            checked.map_err(|reason| error(index, &entry.policy, reason))?;
        }
        Ok(())
    }

    pub(super) fn unmatched(&self) -> impl Iterator<Item = &LockPolicy> {
        let unmatched = |entry: &&PolicyEntry| !entry.matched.load(Ordering::Relaxed);
        self.entries.iter().filter(unmatched).map(|entry| &entry.policy)
    }

    fn find(&self, candidates: &[usize], method: &Method) -> Option<&PolicyEntry> {
        let candidates = || candidates.iter().map(|&index| &self.entries[index]);
        candidates()
            .find(|entry| entry.policy.methods.names_exactly(method))
            .or_else(|| candidates().find(|entry| entry.policy.methods.matches(method)))
    }

    fn find_by_path(&self, path: &str, method: &Method) -> Option<&PolicyEntry> {
        let shape = self.by_path.at(path).ok()?.value;
        self.find(&self.routes[*self.by_shape.get(shape)?], method)
    }

    /// Logs, once for each policy without a match, that the matched route looks like the policy's route.
    fn report_similar_routes(&self, route: &str, shape: &str) {
        for entry in &self.entries {
            if entry.matched.load(Ordering::Relaxed) || entry.reported.load(Ordering::Relaxed) {
                continue;
            }
            let nested = entry.shape != "/" && shape.ends_with(&entry.shape);
            let slash = shape.trim_end_matches('/') == entry.shape.trim_end_matches('/');
            if (nested || slash) && !entry.reported.swap(true, Ordering::Relaxed) {
                tracing::error!(
                    "no request has matched the lock policy for {} yet, but a request for the similar \
                     route {route} was served without a lock; if the policy is meant for it, write \
                     {route} in the policy",
                    entry.policy
                );
            }
        }
    }
}

impl PolicyEntry {
    fn overlap(&self, index: usize, policy: &LockPolicy) -> Result<(), SetupError> {
        let duplicate = |method| Err(SetupError::Duplicate { other: index + 1, method });
        match (self.policy.methods.named(), policy.methods.named()) {
            (Some(ours), Some(theirs)) => {
                match ours.iter().find(|method| theirs.contains(method)) {
                    Some(method) => duplicate(Some(method.clone())),
                    None => Ok(()),
                }
            }
            _ => duplicate(None),
        }
    }
}

fn missing_name(key: &KeySource, names: &[String]) -> Option<SetupError> {
    let mut path_names = key.placeholders().filter(|name| ValueSource::is_path(name));
    let missing = path_names.find(|name| !names.iter().any(|known| known == name))?;
    Some(SetupError::UnknownPlaceholder { name: missing.to_owned(), available: names.to_vec() })
}

fn error(index: usize, policy: &LockPolicy, reason: SetupError) -> PolicyError {
    PolicyError { position: index + 1, route: policy.route.clone(), reason }
}
