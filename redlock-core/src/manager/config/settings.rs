//! The table of the settings: the name of each, how it is read and written, and its range.

#[cfg(feature = "serde")]
use std::convert::identity;
use std::str::FromStr;
use std::time::Duration;

use super::{LockManagerConfig, NodeUrl};
use crate::error::InvalidOption;
use crate::lock::owner_label::ALLOWED;
use crate::lock::{Dialect, OwnerLabel};
use crate::options::{TIME_FORM, parse_time};
use crate::validity::{MAX_EXPIRE, MIN_EXPIRE, allowed_leases};

const LONGEST_PREFIX: usize = 100;
/// The owner label that stores no label.
pub(in crate::manager) const NO_OWNER_LABEL: &str = "off";

/// A setting, which a file or an environment variable sets by a text.
pub(super) struct Setting {
    pub(super) name: &'static str,
    /// The allowed texts, for error messages.
    pub(super) form: &'static str,
    /// Sets the setting by a text. Returns `None` if the text does not have the form.
    set: fn(&mut LockManagerConfig, &str) -> Option<()>,
}

macro_rules! settings {
    ($($name:ident: $form:expr, $read:expr, $write:expr;)*) => {
        /// All settings, in the order of their documentation.
        pub(super) const SETTINGS: &[Setting] = &[
            Setting {
                name: "urls",
                form: "a list of URLs, or a text with commas between the URLs",
                set: |config, text| {
                    let urls = LockManagerConfig::split_urls(text);
                    config.urls = urls.into_iter().map(NodeUrl::from).collect();
                    Some(())
                },
            },
            $(Setting {
                name: stringify!($name),
                form: $form,
                set: |config, text| {
                    config.$name = Some($read(text)?);
                    Some(())
                },
            }),*
        ];

        /// Writes every setting that has a value, except the URLs.
        #[cfg(feature = "serde")]
        pub(super) fn write<M: serde::ser::SerializeMap>(
            config: &LockManagerConfig,
            map: &mut M,
        ) -> Result<(), M::Error> {
            $(if let Some(value) = &config.$name {
                map.serialize_entry(stringify!($name), &$write(value))?;
            })*
            Ok(())
        }
    };
}

// Each setting besides the URLs: its name, the form of its text, and the functions that read and write its value.
settings! {
    prefix: "a text", |text: &str| Some(text.to_owned()), identity;
    owner_label: ALLOWED, read, identity;
    dialect: "plain or redisson", read_dialect, |dialect: &Dialect| dialect.name();
    expire: TIME_FORM, read_time, write_time;
    node_timeout: TIME_FORM, read_time, write_time;
    connect_timeout: TIME_FORM, read_time, write_time;
    max_waiters: "a whole number", read, identity;
    body_buffers: "a whole number of bytes", read, identity;
    outage_grace: TIME_FORM, read_time, write_time;
    restart_guard: TIME_FORM, read_time, write_time;
    failover_margin: TIME_FORM, read_time, write_time;
    cluster_refresh: TIME_FORM, read_time, write_time;
    lock_order: "true or false", read, identity;
    tls_ca: "the path of a file", read, identity;
    tls_cert: "the path of a file", read, identity;
    tls_key: "the path of a file", read, identity;
}

fn read<T: FromStr>(text: &str) -> Option<T> {
    text.trim().parse().ok()
}

fn read_time(text: &str) -> Option<Duration> {
    parse_time(text.trim())
}

#[cfg(feature = "serde")]
fn write_time(time: &Duration) -> String {
    match time.subsec_nanos() {
        0 => format!("{}s", time.as_secs()),
        _ => format!("{}ms", time.as_nanos().div_ceil(1_000_000)),
    }
}

fn read_dialect(text: &str) -> Option<Dialect> {
    Dialect::parse(text.trim())
}

impl LockManagerConfig {
    /// Sets a setting by a text, and checks its range.
    pub(super) fn set(&mut self, setting: &Setting, text: &str) -> Result<(), InvalidOption> {
        (setting.set)(self, text)
            .ok_or_else(|| InvalidOption::new(setting.name, shown(text), setting.form))?;
        self.check_ranges()
    }

    /// Checks the range of each setting that has a value.
    pub(in crate::manager) fn check_ranges(&self) -> Result<(), InvalidOption> {
        const MILLI: Duration = Duration::from_millis(1);
        const MINUTE: Duration = Duration::from_secs(60);
        let leases = (MIN_EXPIRE, MAX_EXPIRE, allowed_leases!());
        let timeouts = (MILLI, MINUTE, "from 1 ms to 60 s");
        let pauses = (Duration::ZERO, MINUTE, "from 0 to 60 s");
        for (name, time, (shortest, longest, allowed)) in [
            ("expire", self.expire, leases),
            ("node_timeout", self.node_timeout, timeouts),
            ("connect_timeout", self.connect_timeout, timeouts),
            ("outage_grace", self.outage_grace, pauses),
            ("restart_guard", self.restart_guard, leases),
            ("failover_margin", self.failover_margin, pauses),
            ("cluster_refresh", self.cluster_refresh, (100 * MILLI, MINUTE, "from 100 ms to 60 s")),
        ] {
            if let Some(time) = time
                && !(shortest..=longest).contains(&time)
            {
                return Err(InvalidOption::new(name, format!("{time:?}"), allowed));
            }
        }
        for (name, number) in
            [("max_waiters", self.max_waiters), ("body_buffers", self.body_buffers)]
        {
            if number == Some(0) {
                return Err(InvalidOption::new(name, 0, "at least 1"));
            }
        }
        let prefix = self.prefix.as_deref().unwrap_or_default();
        if prefix.len() > LONGEST_PREFIX || prefix.contains(char::is_control) {
            let allowed = format!("at most {LONGEST_PREFIX} bytes without control characters");
            return Err(InvalidOption::new("prefix", shown(prefix), allowed));
        }
        if let Some(label) = &self.owner_label
            && OwnerLabel::read(label).is_none()
        {
            return Err(InvalidOption::new("owner_label", shown(label), ALLOWED));
        }
        Ok(())
    }
}

/// Returns a wrong text for an error. It leaves out a URL, which may contain a password (secrets stay in).
fn shown(text: &str) -> String {
    if text.contains(":/") { "a URL".to_owned() } else { format!("{text:?}") }
}
