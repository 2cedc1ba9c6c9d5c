//! A method of a tonic service under a lock, as `tonic-build` declares it.

use redlock_axum::test_util::TestLocks;
use redlock_axum::{LockError, LockManager, redis_lock};
use tonic::{Code, Request, Response, Status};

#[derive(Clone)]
struct Order {
    id: u64,
}

#[tonic::async_trait]
trait PaymentsServer {
    async fn pay(&self, request: Request<Order>) -> Result<Response<String>, Status>;
}

struct Payments {
    locks: LockManager,
}

fn refused(error: LockError) -> Status {
    match error {
        error if error.is_contended() || error.is_split() => {
            Status::aborted("another request works on it")
        }
        LockError::InvalidKey(_) => Status::invalid_argument("the order"),
        _ => Status::unavailable("try again later"), // and a log line with `diagnostics`
    }
}

#[tonic::async_trait]
impl PaymentsServer for Payments {
    #[redis_lock(key("order:{}", request.get_ref().id), manager = self.locks, error = refused)]
    async fn pay(&self, request: Request<Order>) -> Result<Response<String>, Status> {
        Ok(Response::new(format!("order {} is paid", request.get_ref().id)))
    }
}

#[tokio::test]
async fn a_refusal_is_aborted_or_unavailable() {
    let test = TestLocks::new(1);
    let payments = Payments { locks: test.manager() };
    let pay = || payments.pay(Request::new(Order { id: 42 }));
    assert_eq!(pay().await.unwrap().into_inner(), "order 42 is paid");

    let other_copy = test.builder().connect().await.unwrap();
    let guard = other_copy.lock("order:42").acquire().await.unwrap();
    assert_eq!(pay().await.unwrap_err().code(), Code::Aborted);
    guard.release().await.unwrap();

    test.nodes()[0].fail();
    assert_eq!(pay().await.unwrap_err().code(), Code::Unavailable);
}
