//! The guide: guarantees, production, and how the library was tested.
//!
//! The [crate page](crate) introduces the attribute, the layer, the policies and the extractors. These pages
//! answer the questions that come next.
//!
//! | page | answers |
//! |---|---|
//! | [`guarantees`] | What does a lock promise, and under which conditions? What happens when a server, the network, a clock or this process fails? |
//! | [`options`] | Which options does a lock have, with which ranges and defaults, and how are they written? |
//! | [`several_keys`] | How does a handler lock all articles of a cart, or none? In which order do such requests wait? |
//! | [`recipes`] | How does a handler acquire several locks? How does a middleware lock, or a task that outlives its handler? What is not supported? |
//! | [`fair`] | How do callers of several processes wait in order of arrival? What does the order cost? |
//! | [`shared`] | How do many readers share a lock that a writer has alone? Who waits for whom, and for how long? |
//! | [`permits`] | How do at most n requests run at the same time? |
//! | [`fencing`] | How does a database refuse the write of a holder that slept past its lease? |
//! | [`sentinel`] | How does a Sentinel group vote? What can a failover do to a lock? |
//! | [`production`] | How many servers, with which settings and permissions? What should you monitor? |
//! | [`cluster`] | How is a Redis Cluster one node? What do a failover and a moving slot do to a lock? |
//! | [`tls`] | How does a service trust its own authority, present a certificate, and use passwords and tokens that change? |
//! | [`managed`] | Which URL has a cloud service, and what does its failover do to a lock? |
//! | [`interoperability`] | Which services in other languages use the same locks? |
//! | [`testing`](testing/index.html) | How does an application test its 409 and 503 responses, without a server? |
//! | [`verification`] | How was the library tested? How can you repeat the tests? |
//! | [`performance`] | What does a lock cost? |

// The links of the pages are resolved in this module.
use crate::*;

/// Reads a page of the folder `docs`. In the repository a page links to another file, and here to a module:
/// Markdown uses the first definition of a link. A link to an item, such as ``[`LockGuard`]``, is plain code in the
/// repository.
macro_rules! page {
    ($file:literal) => {
        concat!(
            "[cluster.md]: crate::guide::cluster\n",
            "[fencing.md]: crate::guide::fencing\n",
            "[guarantees.md]: crate::guide::guarantees\n",
            "[managed.md]: crate::guide::managed\n",
            "[permits.md]: crate::guide::permits\n",
            "[production.md]: crate::guide::production\n",
            "[recipes.md]: crate::guide::recipes\n",
            "[sentinel.md]: crate::guide::sentinel\n",
            "[several-keys.md]: crate::guide::several_keys\n",
            "[shared.md]: crate::guide::shared\n",
            "[tls.md]: crate::guide::tls\n",
            "[wire.md]: crate::redlock_core#names-on-the-wire\n\n",
            include_str!(concat!("../docs/", $file))
        )
    };
}

// The example connects to servers.
#[cfg(any(feature = "redis", not(doctest)))]
#[doc = page!("cluster.md")]
pub mod cluster {}

#[doc = page!("fair.md")]
pub mod fair {}

#[doc = page!("fencing.md")]
pub mod fencing {}

#[doc = page!("guarantees.md")]
pub mod guarantees {}

#[doc = page!("interoperability.md")]
pub mod interoperability {}

#[doc = page!("managed.md")]
pub mod managed {}

#[doc = page!("options.md")]
pub mod options {}

#[doc = page!("performance.md")]
pub mod performance {}

#[doc = page!("permits.md")]
pub mod permits {}

// The example connects to servers.
#[cfg(any(feature = "redis", not(doctest)))]
#[doc = page!("production.md")]
pub mod production {}

#[doc = page!("recipes.md")]
pub mod recipes {}

#[doc = page!("sentinel.md")]
pub mod sentinel {}

#[doc = page!("several-keys.md")]
pub mod several_keys {}

#[doc = page!("shared.md")]
pub mod shared {}

#[cfg(feature = "test-util")]
#[doc = page!("testing.md")]
pub mod testing {}

#[doc = page!("tls.md")]
pub mod tls {}

#[doc = page!("verification.md")]
pub mod verification {}
