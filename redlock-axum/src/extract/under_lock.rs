//! The extractor that runs under the lock of the attribute.

use std::ops::{Deref, DerefMut};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::rejection::LockRejection;

/// Extracts a `T` under the lock: after the attribute has acquired it, and before the body of the handler begins.
///
/// A handler with [`redis_lock`](crate::redis_lock) extracts its parameters first, because the key is made of them. So an
/// extractor that loads an order reads it before the lock is acquired, while another request may still be paying it.
/// `UnderLock<Order>` loads the order when no other request can change it.
///
/// It is for handlers with the attribute, and for every `T` that implements [`FromRequestParts`]. Behind a
/// [`LockLayer`](crate::LockLayer) no extractor needs it, because a layer acquires the lock before the extractors run.
///
/// # Examples
///
/// ```
/// use axum::extract::{FromRequestParts, Path};
/// use axum::http::{StatusCode, request::Parts};
/// use axum::response::IntoResponse;
/// use redlock_axum::{LockManager, UnderLock, redis_lock};
///
/// struct Order {
///     paid: bool,
/// }
///
/// impl FromRequestParts<LockManager> for Order {
///     type Rejection = StatusCode;
///
///     async fn from_request_parts(parts: &mut Parts, _: &LockManager) -> Result<Self, StatusCode> {
///         // .. select paid from orders where id = ..
/// #       let _ = parts;
///         Ok(Order { paid: false })
///     }
/// }
///
/// #[redis_lock(key = "order:{id}", wait_time = 5)]
/// async fn pay(Path(id): Path<u64>, UnderLock(order): UnderLock<Order>) -> String {
///     if order.paid { format!("order {id} was paid before") } else { format!("order {id} is paid") }
/// }
/// # let _: axum::routing::MethodRouter<LockManager> = axum::routing::post(pay);
/// ```
///
/// # What it reads
///
/// The extractor gets the state of the router, and a copy of the request's head: the method, the URI, the headers, the
/// path parameters and the extensions. Both are as they were when the other parameters were extracted. So
/// `UnderLock<Extension<User>>` is no newer than `Extension<User>`: the layer that has inserted the user ran before the
/// lock was acquired. The same holds for a transaction that a layer has begun: its snapshot may be older than the lock. An
/// extractor that begins the transaction, as that of `axum-sqlx-tx`, begins it under the lock.
///
/// Several parameters of this type are extracted one after the other, in the order of the parameters. A parameter may be
/// `UnderLock<Option<Order>>`, `UnderLock<Result<Order, StatusCode>>` or `UnderLock<(Order, Customer)>`.
///
/// The key cannot use the value, because the key is made before the lock is acquired.
///
/// # Errors
///
/// If `T` rejects the request, the lock is released, the rejection is the response, and the handler does not run.
///
/// If the lock is lost during the extraction, the handler does not run, whatever `on_lost` says, and the request is
/// answered with a [`LockRejection`]: 503, with `Retry-After`.
///
/// In a handler without the attribute, the request is answered with a [`LockRejection`]: status 500, and an error in the
/// log. The attribute finds the parameter by the name `UnderLock`, so this also happens to a parameter whose type is
/// written by another name, such as a type alias.
///
/// # Cancel safety
///
/// If the client leaves during the extraction, the extractor is dropped, and the lock is released in the background.
/// With `detached`, the extraction and the handler go on to their end.
#[derive(Debug, Clone, Copy, Default)]
pub struct UnderLock<T>(
    /// The value.
    pub T,
);

impl<T> Deref for UnderLock<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for UnderLock<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// Rejects every request. The attribute replaces the parameter by an extractor of its own, so axum calls this one only
/// without the attribute. It exists for `#[debug_handler]`, which checks the parameter as it is written.
impl<S: Sync, T: FromRequestParts<S>> FromRequestParts<S> for UnderLock<T> {
    type Rejection = LockRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, LockRejection> {
        Err(LockRejection::misconfigured(
            "a handler takes an `UnderLock`, but has no `#[redis_lock(key = ..)]` that sees it; add the attribute, and \
             write the type of the parameter by this name; behind a lock layer, take the value without `UnderLock`, \
             because the lock is held when it is extracted",
        )
        .at_route_of(parts))
    }
}
