//! How a manager gets access to its servers.
#![cfg_attr(not(feature = "tls"), expect(unreachable_pub, reason = "public with the feature"))]

#[cfg(feature = "redis")]
mod credentials;
#[cfg(feature = "redis")]
mod read;
mod tls;

#[cfg(feature = "redis")]
pub use credentials::Credentials;
#[cfg(feature = "redis")]
pub(crate) use credentials::{Provider, ProviderError, ProviderFn};
#[cfg(feature = "tls")]
pub(crate) use read::read_files;
pub(crate) use tls::Pem;
pub use tls::TlsOptions;
