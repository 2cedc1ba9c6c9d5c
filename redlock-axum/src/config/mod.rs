//! The configuration that layers and policies share.

mod extension_values;
mod key_source;
mod layer_config;
mod methods;
mod route_lock;

pub(crate) use extension_values::ExtensionValues;
pub(crate) use key_source::KeySource;
pub(crate) use layer_config::LayerConfig;
pub(crate) use methods::Methods;
pub(crate) use route_lock::RouteLock;
