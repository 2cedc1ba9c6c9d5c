//! The configuration that layers and policies share.

mod layer_config;
mod methods;
mod route_lock;

pub(crate) use layer_config::LayerConfig;
pub(crate) use methods::Methods;
pub(crate) use route_lock::RouteLock;
