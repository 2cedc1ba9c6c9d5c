//! The guide: guarantees, options, use in production, and recipes.
//!
//! The [crate page](crate) introduces the attribute, the layer and the extractors. These pages answer the questions that
//! come next.
//!
//! | page | answers |
//! |---|---|
//! | [`guarantees`] | What does a lock promise, and under which conditions? What happens when a server, the network, a clock or this process fails? |
//! | [`choose_a_store`] | Redis, PostgreSQL or ZooKeeper: what does each give, and what does it cost? |
//! | [`handlers`] | How does a handler lock: by the attribute, a layer, a table, or by hand? What does a refused request get? |
//! | [`options`] | Which options does a lock have, with which ranges and defaults, and how are they written? |
//! | [`modes`] | How do many readers share a lock with one writer? How do at most n requests run at the same time? How does a handler lock all articles of a cart, or none? How do callers of several processes wait in order of arrival? |
//! | [`fencing`] | How does a database refuse the write of a holder that slept past its lease? |
//! | [`production`] | How many servers, with which settings and permissions? How does a deployment change the servers? What should you monitor? |
//! | [`operating`] | Who holds a lock, since when, and how is it ended? What does this process hold? |
//! | [`servers`] | How is a Sentinel group, a Redis Cluster or a cloud service one node? What does its failover do to a lock? |
//! | [`postgres`] | How is a PostgreSQL database a node? What does it promise, and what not? |
//! | [`zookeeper`] | How is a ZooKeeper ensemble the node, beside services with Curator? What does it promise? |
//! | [`tls`] | How does a service trust its own authority, present a certificate, and use passwords and tokens that change? |
//! | [`transactions`] | Why does a lock have to outlast the commit? Which order of layers does that? |
//! | [`recipes`] | How is a payment charged once? Which job survives the death of its copy? How does a middleware lock? What is impossible, and what replaces it? |
//! | [`neighbours`] | How do locks stand beside aide, utoipa, tonic, loco, a scheduler, sessions and axum-test? |
//! | [`idempotency`](idempotency/index.html) | How is a repeated request executed once, and answered with the first answer? |
//! | [`testing`](testing/index.html) | How does an application test its 409 and 503 responses, without a server? |
//! | [`interoperability`] | Which services in other languages use the same locks? How does Spring's `@RedisLock` look here? |
//! | [`compiler_errors`] | What does a message of the compiler about a locked handler mean? |
//! | [`out_of_scope`] | What does the library refuse to do, and why? |
//! | [`performance`] | What does a lock cost? |

// The links of the pages are resolved in this module.
use crate::*;

/// Reads a page of the folder `docs`. In the repository a page links to another file, and here to a module:
/// Markdown uses the first definition of a link. A link to an item, such as ``[`LockGuard`]``, is plain code in the
/// repository.
macro_rules! page {
    ($file:literal) => {
        concat!(
            "[choose-a-store.md]: crate::guide::choose_a_store\n",
            "[contention.svg]: #contention\n",
            "[fencing.md]: crate::guide::fencing\n",
            "[guarantees.md]: crate::guide::guarantees\n",
            "[idempotency.md]: ../idempotency/index.html\n",
            "[handlers.md]: crate::guide::handlers\n",
            "[interoperability.md]: crate::guide::interoperability\n",
            "[modes.md]: crate::guide::modes\n",
            "[modes.md#readers-of-one-process]: crate::guide::modes#readers-of-one-process\n",
            "[neighbours.md]: crate::guide::neighbours\n",
            "[operating.md]: crate::guide::operating\n",
            "[options.md]: crate::guide::options\n",
            "[out-of-scope.md]: crate::guide::out_of_scope\n",
            "[performance.md]: crate::guide::performance\n",
            "[postgres.md]: crate::guide::postgres\n",
            "[production.md]: crate::guide::production\n",
            "[production.md#permissions]: crate::guide::production#permissions\n",
            "[recipes.md]: crate::guide::recipes\n",
            "[servers.md]: crate::guide::servers\n",
            "[servers.md#newer-commands]: crate::guide::servers#newer-commands\n",
            "[testing.md]: ../testing/index.html\n",
            "[tls.md]: crate::guide::tls\n",
            "[transactions.md]: crate::guide::transactions\n",
            "[wire.md]: redlock_core#names-on-the-wire\n",
            "[zookeeper.md]: crate::guide::zookeeper\n\n",
            include_str!(concat!("../docs/", $file))
        )
    };
}

#[doc = page!("choose-a-store.md")]
pub mod choose_a_store {}

#[doc = page!("compiler-errors.md")]
pub mod compiler_errors {}

#[doc = page!("fencing.md")]
pub mod fencing {}

#[doc = page!("guarantees.md")]
pub mod guarantees {}

#[doc = page!("handlers.md")]
pub mod handlers {}

#[cfg(feature = "idempotency")]
#[doc = page!("idempotency.md")]
pub mod idempotency {}

#[doc = page!("interoperability.md")]
pub mod interoperability {}

#[doc = page!("modes.md")]
pub mod modes {}

#[doc = page!("neighbours.md")]
pub mod neighbours {}

#[doc = page!("operating.md")]
pub mod operating {}

#[doc = page!("options.md")]
pub mod options {}

#[doc = page!("out-of-scope.md")]
pub mod out_of_scope {}

#[doc = page!("performance.md")]
pub mod performance {}

#[doc = page!("postgres.md")]
pub mod postgres {}

#[doc = page!("production.md")]
#[doc = include_str!("../docs/contention.svg")]
pub mod production {}

#[doc = page!("recipes.md")]
pub mod recipes {}

#[doc = page!("servers.md")]
pub mod servers {}

#[cfg(feature = "test-util")]
#[doc = page!("testing.md")]
pub mod testing {}

#[doc = page!("tls.md")]
pub mod tls {}

#[doc = page!("transactions.md")]
pub mod transactions {}

#[doc = page!("zookeeper.md")]
pub mod zookeeper {}
