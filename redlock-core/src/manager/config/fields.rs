//! The table of the settings: the name of each, its type, and its range.

use std::path::PathBuf;
use std::time::Duration;

use super::LockManagerConfig;
use super::setting::Setting;
use crate::context::check_expire;
use crate::error::InvalidOption;
use crate::lock::Dialect;
use crate::manager::builder::LockManagerBuilder;
use crate::manager::check::{
    check_cluster_refresh, check_failover_margin, check_max_waiters, check_outage_grace,
    check_prefix, check_timeout,
};

macro_rules! fields {
    ($($name:ident: $value:ty, $check:expr;)*) => {
        impl LockManagerConfig {
            /// The names of all settings.
            pub(super) const FIELDS: &[&str] = &["urls", $(stringify!($name)),*];

            /// Reads the text of a setting other than the URLs.
            pub(super) fn read_text(&mut self, field: &str, text: &str) -> Result<(), InvalidOption> {
                match field {
                    $(stringify!($name) => {
                        let value = parse::<$value>(stringify!($name), text)?;
                        checked(&value, $check)?;
                        self.$name = Some(value);
                    })*
                    _ => {}
                }
                Ok(())
            }

            /// Sets every setting that has a value, except the URLs.
            pub(super) fn apply(&self, mut builder: LockManagerBuilder) -> LockManagerBuilder {
                let Self { urls: _, $($name),* } = self.clone();
                $(if let Some(value) = $name {
                    builder = builder.$name(value);
                })*
                builder
            }

            /// Reads the value of a setting other than the URLs.
            #[cfg(feature = "serde")]
            pub(super) fn read_field<'de, A: serde::de::MapAccess<'de>>(
                &mut self,
                field: &str,
                map: &mut A,
            ) -> Result<(), A::Error> {
                match field {
                    $(stringify!($name) => {
                        let check = |value: &$value| checked(value, $check);
                        let value = super::checked::Checked::new(stringify!($name), check);
                        self.$name = map.next_value_seed(value)?;
                    })*
                    _ => {}
                }
                Ok(())
            }

            /// Writes every setting that has a value.
            #[cfg(feature = "serde")]
            pub(super) fn write<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct;

                let Self { urls, $($name),* } = self.clone();
                let are_set = [!urls.is_empty(), $($name.is_some()),*];
                let length = are_set.into_iter().filter(|is_set| *is_set).count();
                let mut settings = serializer.serialize_struct("LockManagerConfig", length)?;
                if !urls.is_empty() {
                    settings.serialize_field("urls", &urls)?;
                }
                $(if $name.is_some() {
                    // Some formats write, and expect, the `Some`.
                    let value = $name.map(<$value as Setting>::Written::from);
                    settings.serialize_field(stringify!($name), &value)?;
                })*
                settings.end()
            }
        }
    };
}

// The names of the settings besides the URLs, each with its type and the check of its range. The builder has a
// method of the same name.
fields! {
    prefix: String, |prefix| check_prefix(prefix);
    dialect: Dialect, |_| Ok(());
    expire: Duration, |expire| check_expire("expire", *expire);
    node_timeout: Duration, |timeout| check_timeout("node_timeout", *timeout);
    connect_timeout: Duration, |timeout| check_timeout("connect_timeout", *timeout);
    max_waiters: usize, |max_waiters| check_max_waiters(*max_waiters);
    outage_grace: Duration, |grace| check_outage_grace(*grace);
    restart_guard: Duration, |longest| check_expire("restart_guard", *longest);
    failover_margin: Duration, |margin| check_failover_margin(*margin);
    cluster_refresh: Duration, |refresh| check_cluster_refresh(*refresh);
    tls_ca: PathBuf, |_| Ok(());
    tls_cert: PathBuf, |_| Ok(());
    tls_key: PathBuf, |_| Ok(());
}

fn checked<T>(
    value: &T,
    check: impl FnOnce(&T) -> Result<(), InvalidOption>,
) -> Result<(), InvalidOption> {
    check(value)
}

fn parse<T: Setting>(name: &'static str, text: &str) -> Result<T, InvalidOption> {
    T::from_text(text).ok_or_else(|| InvalidOption::new(name, format!("{text:?}"), T::FORM))
}
