//! Deserialises policies from the application's configuration.

use std::fmt;
use std::time::Duration;

use http::{Method, StatusCode};
use redlock_core::__private::{ConfigValue, read_option};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};

use super::LockPolicy;
use super::methods::Methods;
use crate::options::{BodyMode, HoldUntil};

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

macro_rules! define_fields {
    ($($(#[$doc:meta])* $name:ident: $ty:ty,)*) => {
        /// The fields of a policy. `serde(flatten)` would ignore a misspelt field, and its errors have no column.
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields, expecting = "a lock policy, with at least a `key`")]
        pub(super) struct PolicyFields {
            route: Option<String>,
            key: String,
            name: Option<String>,
            methods: Option<Methods>,
            shared_on: Option<Methods>,
            #[serde(default, deserialize_with = "read_option")]
            contended_status: Option<Status>,
            #[serde(default, deserialize_with = "read_option")]
            retry_after_max: Option<Duration>,
            #[serde(default, deserialize_with = "read_option")]
            hold_until: Option<HoldUntil>,
            #[serde(default, deserialize_with = "read_option")]
            detached: Option<bool>,
            #[serde(default, deserialize_with = "read_option")]
            body_limit: Option<ByteCount>,
            #[serde(default, deserialize_with = "read_option")]
            body: Option<BodyMode>,
            $(
                #[serde(default, deserialize_with = "read_option")]
                $name: Option<$ty>,
            )*
        }

        impl From<PolicyFields> for LockPolicy {
            fn from(fields: PolicyFields) -> Self {
                let mut policy = Self::new(fields.key);
                policy.route = fields.route;
                if let Some(name) = fields.name {
                    policy = policy.named(name);
                }
                policy.methods = fields.methods;
                policy.shared_on = fields.shared_on;
                $(policy.lock.$name = fields.$name;)*
                if let Some(Status(status)) = fields.contended_status {
                    policy = policy.contended_status(status);
                }
                if let Some(retry_after_max) = fields.retry_after_max {
                    policy = policy.retry_after_max(retry_after_max);
                }
                if let Some(hold_until) = fields.hold_until {
                    policy = policy.hold_until(hold_until);
                }
                if let Some(detached) = fields.detached {
                    policy = policy.detached(detached);
                }
                if let Some(ByteCount(bytes)) = fields.body_limit {
                    policy = policy.body_limit(bytes);
                }
                if let Some(body) = fields.body {
                    policy = policy.body(body);
                }
                policy
            }
        }
    };
}
redlock_core::lock_options!([define_fields] {});

impl<'de> Deserialize<'de> for Methods {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MethodsVisitor;

        impl<'de> Visitor<'de> for MethodsVisitor {
            type Value = Methods;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a method such as \"POST\", or a list of methods")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Methods, E> {
                Ok(Methods::new([method(name)?]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<Methods, A::Error> {
                let mut methods = Vec::new();
                while let Some(name) = names.next_element::<String>()? {
                    methods.push(method(&name)?);
                }
                Ok(Methods::new(methods))
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

impl ConfigValue for Status {
    const FORM: &str = "an HTTP status such as 409 or 423";

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }

    fn from_number(number: u64) -> Option<Self> {
        StatusCode::from_u16(number.try_into().ok()?).ok().map(Self)
    }
}

struct ByteCount(usize);

impl ConfigValue for ByteCount {
    const FORM: &str = "a whole number of bytes";

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }

    fn from_number(number: u64) -> Option<Self> {
        number.try_into().ok().map(Self)
    }
}

/// Reads a value that is one of two words.
macro_rules! words {
    ($ty:ty: $first:literal => $one:ident, $second:literal => $other:ident) => {
        impl ConfigValue for $ty {
            const FORM: &str = concat!("`", $first, "` or `", $second, "`");

            fn from_text(text: &str) -> Option<Self> {
                match text {
                    $first => Some(Self::$one),
                    $second => Some(Self::$other),
                    _ => None,
                }
            }
        }
    };
}
words!(HoldUntil: "response" => Response, "end_of_body" => EndOfBody);
words!(BodyMode: "buffer" => Buffer, "stream" => Stream);
