//! The last parameter of a handler.

use std::marker::PhantomData;

use axum::extract::{FromRequest, Request};

use crate::serve::unread::Unread;

/// The hidden extractor in place of the last parameter of a handler, which may take the request's body. It keeps the
/// rest of the body that the parameter does not read.
#[derive(Debug)]
pub struct Last<T> {
    parameter: T,
    unread: Unread,
}

/// The way by which a [`Last`] extracts its parameter.
#[derive(Debug)]
pub struct ViaParameter<M>(PhantomData<M>);

impl<S, M, T> FromRequest<S, ViaParameter<M>> for Last<T>
where
    S: Send + Sync,
    T: FromRequest<S, M>,
{
    type Rejection = T::Rejection;

    async fn from_request(mut request: Request, state: &S) -> Result<Self, T::Rejection> {
        let unread = Unread::of(&mut request);
        Ok(Self { parameter: T::from_request(request, state).await?, unread })
    }
}

impl<T> Last<T> {
    /// Returns the parameter, and the rest of the body.
    pub fn into_parts(self) -> (T, Unread) {
        (self.parameter, self.unread)
    }
}
