//! Serializes policies as an application's configuration, in the form that [`de`](super::de) reads.

use http::Method;
use redlock_core::__private::Time;
use redlock_core::{LockOptions, OnLost};
use serde::ser::{Serialize, Serializer};

use super::{LockPolicies, LockPolicy};
use crate::config::Methods;
use crate::options::{HoldUntil, RouteOptions};

/// The fields of a policy. Those with a default value are `None`.
#[derive(serde::Serialize)]
struct WrittenPolicy<'a> {
    route: &'a str,
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    methods: Option<Vec<&'a str>>,
    #[serde(flatten)]
    lock: &'a LockOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    shared_on: Option<Vec<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fenced: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_lost: Option<OnLost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contended_status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_max: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold_until: Option<HoldUntil>,
}

impl Serialize for LockPolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { route, key, methods, options } = self;
        let RouteOptions {
            lock,
            shared_on,
            fenced,
            on_lost,
            contended_status,
            retry_after_max,
            hold_until,
        } = options;
        let default = RouteOptions::default();
        let fields = WrittenPolicy {
            route,
            key,
            methods: methods.named().map(names),
            lock,
            shared_on: shared_on.as_ref().and_then(Methods::named).map(names),
            fenced: set(*fenced, default.fenced),
            on_lost: set(*on_lost, default.on_lost),
            contended_status: set(contended_status.as_u16(), default.contended_status.as_u16()),
            retry_after_max: set(*retry_after_max, default.retry_after_max).map(Time),
            hold_until: set(*hold_until, default.hold_until),
        };
        fields.serialize(serializer)
    }
}

fn names(methods: &[Method]) -> Vec<&str> {
    methods.iter().map(Method::as_str).collect()
}

/// Returns the value, unless it is the default.
fn set<T: Copy + PartialEq>(value: T, default: T) -> Option<T> {
    (value != default).then_some(value)
}

/// Writes the list of the policies. The manager and the function for refused requests are no part of it.
impl Serialize for LockPolicies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.table.policies())
    }
}
