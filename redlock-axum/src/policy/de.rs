//! Policies out of the application's configuration.

use std::fmt;
use std::time::Duration;

use http::{Method, StatusCode};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Unexpected, Visitor};

use super::{LockPolicies, LockPolicy};
use crate::options::{HoldUntil, OnLost};

/// The methods that axum can route by.
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

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option by itself")]
struct Fields {
    route: String,
    key: String,
    methods: Option<MethodList>,
    expire: Option<Time>,
    #[serde(default)]
    renew: bool,
    max_hold: Option<Time>,
    min_hold: Option<Time>,
    #[serde(default)]
    keep: bool,
    #[serde(default)]
    reentrant: bool,
    #[serde(default)]
    fenced: bool,
    on_lost: Option<OnLost>,
    wait_time: Option<WaitTime>,
    contended_status: Option<Status>,
    hold_until: Option<HoldUntil>,
}

impl<'de> Deserialize<'de> for LockPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Fields::deserialize(deserializer)?;
        let Fields {
            route,
            key,
            methods,
            expire,
            renew,
            max_hold,
            min_hold,
            keep,
            reentrant,
            fenced,
            on_lost,
            wait_time,
            contended_status,
            hold_until,
        } = fields;

        let mut policy = LockPolicy::new(route, key);
        if let Some(MethodList(methods)) = methods {
            policy = policy.methods(methods);
        }
        if let Some(Time(expire)) = expire {
            policy = policy.expire(expire);
        }
        if renew {
            policy = policy.renew();
        }
        if let Some(Time(max_hold)) = max_hold {
            policy = policy.max_hold(max_hold);
        }
        if let Some(Time(min_hold)) = min_hold {
            policy = policy.min_hold(min_hold);
        }
        if keep {
            policy = policy.keep();
        }
        if reentrant {
            policy = policy.reentrant();
        }
        if fenced {
            policy = policy.fenced();
        }
        if let Some(on_lost) = on_lost {
            policy = policy.on_lost(on_lost);
        }
        match wait_time {
            None => {}
            Some(WaitTime::For(wait_time)) => policy = policy.wait_time(wait_time),
            Some(WaitTime::Forever) => policy = policy.wait_forever(),
        }
        if let Some(Status(status)) = contended_status {
            policy = policy.contended_status(status);
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

/// A misspelt method would lock nothing, so only the known ones are taken.
fn method<E: de::Error>(name: &str) -> Result<Method, E> {
    METHODS.into_iter().find(|method| method.as_str() == name).ok_or_else(|| {
        let known = METHODS.map(|method| method.to_string()).join(", ");
        E::custom(format_args!("`{name}` is not a method; there are {known}"))
    })
}

struct Time(Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TimeVisitor { or: "" }).map(Self)
    }
}

enum WaitTime {
    For(Duration),
    Forever,
}

impl<'de> Deserialize<'de> for WaitTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WaitTimeVisitor(TimeVisitor);

        impl Visitor<'_> for WaitTimeVisitor {
            type Value = WaitTime;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.expecting(f)
            }

            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<WaitTime, E> {
                self.0.visit_u64(seconds).map(WaitTime::For)
            }

            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<WaitTime, E> {
                self.0.visit_i64(seconds).map(WaitTime::For)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<WaitTime, E> {
                match text {
                    "forever" => Ok(WaitTime::Forever),
                    text => self.0.visit_str(text).map(WaitTime::For),
                }
            }
        }

        deserializer.deserialize_any(WaitTimeVisitor(TimeVisitor { or: ", or \"forever\"" }))
    }
}

/// Reads a duration.
struct TimeVisitor {
    /// What else is taken where it is used, for messages.
    or: &'static str,
}

impl Visitor<'_> for TimeVisitor {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { or } = self;
        write!(f, "a time such as \"500ms\" or \"5s\", or a whole number of seconds{or}")
    }

    fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Duration, E> {
        Ok(Duration::from_secs(seconds))
    }

    fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Duration, E> {
        match u64::try_from(seconds) {
            Ok(seconds) => self.visit_u64(seconds),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(seconds), &self)),
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
        humantime::parse_duration(text).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}

struct Status(StatusCode);

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let code = u16::deserialize(deserializer)?;
        StatusCode::from_u16(code).map(Self).map_err(|_| {
            de::Error::invalid_value(
                Unexpected::Unsigned(code.into()),
                &"an HTTP status such as 409 or 423",
            )
        })
    }
}
