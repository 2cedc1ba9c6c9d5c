//! Deserialises policies from the application's configuration.

use std::fmt;

use http::{Method, StatusCode};
use redlock_core::__private::{Switch, Time};
use redlock_core::{LockOptions, OnLost};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Unexpected, Visitor};

use super::{LockPolicies, LockPolicy};
use crate::options::HoldUntil;

/// The HTTP methods that axum can route.
const METHODS: [Method; 9] = [
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::HEAD,
    Method::OPTIONS,
    Method::TRACE,
    Method::CONNECT,
];

/// The fields of a policy that are not [options of its lock](LockOptions::FIELDS).
const OWN_FIELDS: [&str; 9] = [
    "route",
    "key",
    "methods",
    "shared_on",
    "fenced",
    "on_lost",
    "contended_status",
    "retry_after_max",
    "hold_until",
];

/// All fields of a policy, for error messages.
const FIELDS: [&str; OWN_FIELDS.len() + LockOptions::FIELDS.len()] = {
    let mut fields = [""; OWN_FIELDS.len() + LockOptions::FIELDS.len()];
    let mut index = 0;
    while index < fields.len() {
        fields[index] = if index < OWN_FIELDS.len() {
            OWN_FIELDS[index]
        } else {
            LockOptions::FIELDS[index - OWN_FIELDS.len()]
        };
        index += 1;
    }
    fields
};

/// The name of a known field.
///
/// An unknown name fails here, while the name is deserialised, so that the format's parser can report its
/// line and column.
struct PolicyFieldName(&'static str);

impl<'de> Deserialize<'de> for PolicyFieldName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let known = FIELDS.iter().find(|known| **known == name);
        known.map(|known| Self(known)).ok_or_else(|| de::Error::unknown_field(&name, &FIELDS))
    }
}

/// The fields that have been read so far.
#[derive(Default)]
struct PolicyFields {
    route: Option<String>,
    key: Option<String>,
    methods: Option<MethodList>,
    lock: LockOptions,
    shared_on: Option<MethodList>,
    fenced: Option<Switch>,
    on_lost: Option<OnLost>,
    contended_status: Option<Status>,
    retry_after_max: Option<Time>,
    hold_until: Option<HoldUntil>,
}

impl<'de> Deserialize<'de> for LockPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PolicyVisitor;

        impl<'de> Visitor<'de> for PolicyVisitor {
            type Value = LockPolicy;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a lock policy, with at least a `route` and a `key`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LockPolicy, A::Error> {
                let mut fields = PolicyFields::default();
                let mut seen = Vec::new();
                while let Some(PolicyFieldName(name)) = map.next_key()? {
                    if seen.contains(&name) {
                        return Err(de::Error::duplicate_field(name));
                    }
                    seen.push(name);
                    fields.read(name, &mut map)?;
                }
                fields.policy()
            }
        }

        // RON accepts only maps for `deserialize_map`.
        deserializer.deserialize_any(PolicyVisitor)
    }
}

impl PolicyFields {
    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        name: &'static str,
        map: &mut A,
    ) -> Result<(), A::Error> {
        match name {
            "route" => self.route = Some(map.next_value()?),
            "key" => self.key = Some(map.next_value()?),
            "methods" => self.methods = map.next_value()?,
            "shared_on" => self.shared_on = map.next_value()?,
            "fenced" => self.fenced = map.next_value()?,
            "on_lost" => self.on_lost = map.next_value()?,
            "contended_status" => self.contended_status = map.next_value()?,
            "retry_after_max" => self.retry_after_max = map.next_value()?,
            "hold_until" => self.hold_until = map.next_value()?,
            _ => {
                self.lock.read_field(name, map)?;
            }
        }
        Ok(())
    }

    fn policy<E: de::Error>(self) -> Result<LockPolicy, E> {
        let Self {
            route,
            key,
            methods,
            lock,
            shared_on,
            fenced,
            on_lost,
            contended_status,
            retry_after_max,
            hold_until,
        } = self;
        let route = route.ok_or_else(|| E::missing_field("route"))?;
        let key = key.ok_or_else(|| E::missing_field("key"))?;
        let mut policy = LockPolicy::new(route, key).options(lock);
        if let Some(MethodList(methods)) = methods {
            policy = policy.methods(methods);
        }
        if let Some(MethodList(methods)) = shared_on {
            policy = policy.shared_on(methods);
        }
        if let Some(Switch(fenced)) = fenced {
            policy = policy.fenced(fenced);
        }
        if let Some(on_lost) = on_lost {
            policy = policy.on_lost(on_lost);
        }
        if let Some(Status(status)) = contended_status {
            policy = policy.contended_status(status);
        }
        if let Some(Time(retry_after_max)) = retry_after_max {
            policy = policy.retry_after_max(retry_after_max);
        }
        if let Some(hold_until) = hold_until {
            policy = policy.hold_until(hold_until);
        }
        Ok(policy)
    }
}

impl<'de> Deserialize<'de> for LockPolicies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let policies = Vec::<LockPolicy>::deserialize(deserializer)?;
        Self::new(policies).map_err(de::Error::custom)
    }
}

struct MethodList(Vec<Method>);

impl<'de> Deserialize<'de> for MethodList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MethodsVisitor;

        impl<'de> Visitor<'de> for MethodsVisitor {
            type Value = MethodList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a method such as \"POST\", or a list of methods")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<MethodList, E> {
                Ok(MethodList(vec![method(name)?]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<MethodList, A::Error> {
                let mut methods = Vec::new();
                while let Some(name) = names.next_element::<String>()? {
                    methods.push(method(&name)?);
                }
                Ok(MethodList(methods))
            }
        }

        deserializer.deserialize_any(MethodsVisitor)
    }
}

/// Parses the name of a method. Accepts known methods only, because a misspelt one would lock nothing.
fn method<E: de::Error>(name: &str) -> Result<Method, E> {
    METHODS.into_iter().find(|method| method.as_str() == name).ok_or_else(|| {
        let known = METHODS.map(|method| method.to_string()).join(", ");
        E::custom(format_args!("`{name}` is not a method; the methods are {known}"))
    })
}

struct Status(StatusCode);

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StatusVisitor;

        impl Visitor<'_> for StatusVisitor {
            type Value = Status;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an HTTP status such as 409 or 423")
            }

            fn visit_u64<E: de::Error>(self, code: u64) -> Result<Status, E> {
                status(code).ok_or_else(|| E::invalid_value(Unexpected::Unsigned(code), &self))
            }

            fn visit_i64<E: de::Error>(self, code: i64) -> Result<Status, E> {
                status(code).ok_or_else(|| E::invalid_value(Unexpected::Signed(code), &self))
            }

            /// Formats that have only texts, such as environment variables, write the number as text.
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Status, E> {
                let code = text.parse::<u16>().ok();
                code.and_then(status).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_any(StatusVisitor)
    }
}

fn status(code: impl TryInto<u16>) -> Option<Status> {
    StatusCode::from_u16(code.try_into().ok()?).ok().map(Status)
}
