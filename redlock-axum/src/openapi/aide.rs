//! Locked handlers in the documents of `aide`.

use aide::OperationInput;
use aide::generate::GenContext;
use aide::openapi::{Operation, Response};
use aide::operation::OperationOutput;

use crate::attribute::deferred::Deferred;
use crate::attribute::handler::HandlerLock;
use crate::attribute::last::Last;
use crate::attribute::lock_parameter::LockLater;
use crate::extract::{FencedLock, HeldLock, UnderLock};
use crate::rejection::LockRejection;

fn responses() -> Vec<(Option<u16>, Response)> {
    let read = |(status, response)| Some((Some(status), serde_json::from_value(response).ok()?));
    super::responses().into_iter().filter_map(read).collect()
}

/// Documents the responses of the requests that are refused before the handler begins.
impl<const FENCED: bool, const INSTALLED: bool> OperationInput for HandlerLock<FENCED, INSTALLED> {
    fn inferred_early_responses(
        _: &mut GenContext,
        _: &mut Operation,
    ) -> Vec<(Option<u16>, Response)> {
        responses()
    }
}

/// The lock of a request is no part of its document.
impl OperationInput for HeldLock {}
impl OperationInput for FencedLock {}
impl<T> OperationInput for LockLater<T> {}

/// Documents what the wrapped parameter reads.
macro_rules! as_the_parameter {
    ($($wrapper:ident),*) => {$(
        impl<T: OperationInput> OperationInput for $wrapper<T> {
            fn operation_input(context: &mut GenContext, operation: &mut Operation) {
                T::operation_input(context, operation);
            }

            fn inferred_early_responses(
                context: &mut GenContext,
                operation: &mut Operation,
            ) -> Vec<(Option<u16>, Response)> {
                T::inferred_early_responses(context, operation)
            }
        }
    )*};
}

as_the_parameter!(Deferred, Last, UnderLock);

/// Documents the responses of a handler that locks by hand.
impl OperationOutput for LockRejection {
    type Inner = Self;

    fn inferred_responses(_: &mut GenContext, _: &mut Operation) -> Vec<(Option<u16>, Response)> {
        responses()
    }
}
