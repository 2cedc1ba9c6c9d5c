//! How a manager gets access to its servers.
#![cfg_attr(not(feature = "tls"), expect(unreachable_pub, reason = "public with the feature"))]

mod tls;

pub(crate) use tls::Pem;
pub use tls::TlsOptions;
