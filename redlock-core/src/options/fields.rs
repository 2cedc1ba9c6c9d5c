//! The fields of the options in a configuration.
//!
//! `serde(flatten)` could read the options as a part of a policy, but it disables `deny_unknown_fields`,
//! and its errors have no column. So a type that contains options reads its fields one by one, and
//! passes the fields of the options on to [`LockOptions::read_field`].

use serde::de::{Deserialize, MapAccess};
use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::de::{Switch, Time, WholeNumber};
use super::{LockOptions, WaitTime};
use crate::lock::Dialect;

macro_rules! fields {
    ($($name:ident: $value:ty,)*) => {
        impl LockOptions {
            /// The names of the options. No public API.
            #[doc(hidden)]
            pub const FIELDS: &[&str] = &[$(stringify!($name)),*];

            /// Reads the value of the field `field` if it is an option. Returns whether it is an option. No
            /// public API.
            ///
            /// # Errors
            ///
            /// Fails if the value has a wrong type. The caller checks that a field occurs at most once.
            #[doc(hidden)]
            pub fn read_field<'de, A: MapAccess<'de>>(
                &mut self,
                field: &str,
                map: &mut A,
            ) -> Result<bool, A::Error> {
                let Self { $($name),* } = self;
                match field {
                    $(stringify!($name) => read::<$value, _, _>($name, map)?,)*
                    _ => return Ok(false),
                }
                Ok(true)
            }
        }

        impl Serialize for LockOptions {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let Self { $($name),* } = self.clone();
                let are_set = [$($name.is_some()),*];
                let length = are_set.into_iter().filter(|is_set| *is_set).count();
                let mut options = serializer.serialize_struct("LockOptions", length)?;
                $(
                    if $name.is_some() {
                        // Some formats write, and expect, the `Some`.
                        options.serialize_field(stringify!($name), &$name.map(<$value>::from))?;
                    }
                )*
                options.end()
            }
        }
    };
}

// The names of the options, each with the type by which its value is read and written.
fields! {
    expire: Time,
    wait_time: WaitTime,
    renew: Switch,
    max_hold: Time,
    min_hold: Time,
    keep: Switch,
    reentrant: Switch,
    shared: Switch,
    permits: WholeNumber,
    fair: Switch,
    dialect: Dialect,
}

/// Reads the value of a field. `null` leaves the default.
fn read<'de, V, T, A>(field: &mut Option<T>, map: &mut A) -> Result<(), A::Error>
where
    V: Deserialize<'de> + Into<T>,
    A: MapAccess<'de>,
{
    *field = map.next_value::<Option<V>>()?.map(Into::into);
    Ok(())
}
