//! Generated code neither sees nor shadows the names of the code around it.

use std::time::Duration;

use axum::Router;
use axum::http::{Method, StatusCode};
use axum::routing::get as on_get;
use redlock_axum::{HeldLock, LockError, LockManager, RunError, redis_lock};

use crate::support::{get, held_by_another, is_held_by_caller, memory, send, text};

#[tokio::test]
async fn parameters_may_have_any_name() {
    #[redis_lock(key = "{key}:{request}:{guard}:{lock}:{error}:{arg0}:{type}", manager = locks)]
    async fn names(
        (key, request): (u8, u8),
        guard: u8,
        lock: u8,
        error: u8,
        arg0: u8,
        r#type: u8,
        locks: &LockManager,
    ) -> Result<String, LockError> {
        assert!(is_held_by_caller(locks, "1:2:3:4:5:6:7").await);
        Ok(format!("{key}{request}{guard}{lock}{error}{arg0}{type}"))
    }

    let (locks, _) = memory().await;
    assert_eq!(names((1, 2), 3, 4, 5, 6, 7, &locks).await.unwrap(), "1234567");
}

/// `diesel::table!` generates a unit struct for each column. A pattern with the name of such a
/// struct matches the struct instead of binding a variable.
#[tokio::test]
async fn lower_case_structs_may_be_in_scope() {
    mod odd {
        #![allow(dead_code, non_camel_case_types)]

        use axum::extract::{Path, State};
        use redlock_axum::{LockManager, RunError, redis_lock};

        struct arg0;
        struct arg1;
        struct error;
        struct hold;
        struct key;
        struct lock;
        struct made;
        struct output;
        struct request;
        struct response;
        struct result;

        #[redis_lock(key = "request:{number}", on_lost = abort)]
        pub(super) async fn handler(Path(number): Path<u64>, _: State<LockManager>) -> String {
            number.to_string()
        }

        #[redis_lock(key = "request:{number}", on_lost = abort, manager = manager)]
        pub(super) async fn function(
            manager: &LockManager,
            (number, _): (u64, u64),
        ) -> Result<u64, RunError> {
            Ok(number)
        }

        pub(super) struct Till(pub(super) LockManager);

        impl Till {
            #[redis_lock(key = "request:{number}", on_lost = abort, manager = self.0)]
            pub(super) async fn method(&self, (number, _): (u64, u64)) -> Result<u64, RunError> {
                Ok(number)
            }
        }
    }

    let (locks, _) = memory().await;
    let _: axum::routing::MethodRouter<LockManager> = axum::routing::get(odd::handler);
    assert_eq!(odd::function(&locks, (7, 8)).await.unwrap(), 7);
    assert_eq!(odd::Till(locks).method((7, 8)).await.unwrap(), 7);
}

/// The user may name a function like a local variable of the generated code.
#[tokio::test]
async fn a_function_may_have_any_name() {
    #[redis_lock(key = "a", manager = locks, on_lost = abort)]
    async fn hold(locks: &LockManager) -> Result<u8, RunError> {
        assert!(is_held_by_caller(locks, "a").await);
        Ok(1)
    }

    #[redis_lock(key = "a", manager = locks)]
    async fn request(locks: &LockManager) -> Result<u8, LockError> {
        assert!(is_held_by_caller(locks, "a").await);
        Ok(2)
    }

    let (locks, _) = memory().await;
    assert_eq!(hold(&locks).await.unwrap() + request(&locks).await.unwrap(), 3);
}

#[tokio::test]
async fn the_prelude_may_be_shadowed() {
    mod odd {
        #![allow(dead_code)]

        use redlock_axum::redis_lock;

        struct Ok;
        struct Err;
        struct Some;
        struct None;
        struct Response;
        trait From {}
        mod core {}
        mod std {}

        macro_rules! format {
            () => {};
        }
        pub(super) use format;

        #[redis_lock(key = "a:{id}", wait_time = 1, manager = locks)]
        pub(super) async fn function(
            locks: &redlock_axum::LockManager,
            id: u8,
        ) -> Result<u8, redlock_axum::LockError> {
            Result::Ok(id)
        }

        #[redis_lock(key = "a")]
        pub(super) async fn handler() {}
    }

    let (locks, _) = memory().await;
    odd::format!();
    let _: axum::routing::MethodRouter<LockManager> = axum::routing::get(odd::handler);
    assert_eq!(odd::function(&locks, 7).await.unwrap(), 7);
}

/// Without the prelude, generated code that names `Some` or calls a method of `Into` would not compile.
#[tokio::test]
async fn the_prelude_may_be_missing() {
    mod bare {
        #![no_implicit_prelude]

        use ::redlock_axum::redis_lock;

        const SHOP: &str = "a";

        pub(super) struct Till(pub(super) ::redlock_axum::LockManager);

        impl Till {
            #[redis_lock(key("{SHOP}:{}:{id}", coins), manager = self.0, on_lost = abort, renew)]
            pub(super) async fn count(
                &self,
                (coins, id): (u64, u64),
            ) -> ::std::result::Result<u64, ::redlock_axum::RunError> {
                ::std::result::Result::Ok(coins + id)
            }

            #[redis_lock(key = SHOP, manager = locks, error = own_error, wait_time = "forever")]
            pub(super) async fn convert(
                locks: &::redlock_axum::LockManager,
            ) -> ::std::result::Result<Self, ::std::string::String> {
                ::std::result::Result::Ok(Self(::std::clone::Clone::clone(locks)))
            }
        }

        fn own_error(error: impl ::std::error::Error) -> ::std::string::String {
            ::std::string::ToString::to_string(&error)
        }

        #[redis_lock(key = "a:{id}", expire = "5s", keep, dialect = plain, fenced, on_lost = abort)]
        pub(super) async fn handler(
            ::axum::extract::Path(id): ::axum::extract::Path<u64>,
            _: ::redlock_axum::FencedLock,
        ) -> ::std::string::String {
            ::std::string::ToString::to_string(&id)
        }

        #[redis_lock(key = "a", min_hold = 1, reentrant)]
        pub(super) async fn empty() {}
    }

    let (locks, _) = memory().await;
    let _: axum::routing::MethodRouter<LockManager> =
        axum::routing::get(bare::handler).post(bare::empty);
    let till = bare::Till::convert(&locks).await.unwrap();
    assert_eq!(till.count((7, 8)).await.unwrap(), 15);
}

#[tokio::test]
async fn a_macro_may_write_the_function() {
    macro_rules! locked {
        ($name:ident, $key:literal, $expire:expr, $id:ident, $result:expr) => {
            #[redis_lock(key = $key, expire = $expire, manager = locks)]
            async fn $name(locks: &LockManager, $id: u64) -> Result<String, LockError> {
                assert!(is_held_by_caller(locks, "order:7").await);
                Ok($result)
            }

            impl Till {
                #[redis_lock(key = $key, expire = $expire, manager = self.0)]
                async fn $name(&self, $id: u64) -> Result<String, LockError> {
                    assert!(is_held_by_caller(&self.0, "order:7").await);
                    Ok($result)
                }
            }
        };
    }

    struct Till(LockManager);

    locked!(pay, "order:{id}", 5, id, id.to_string());

    let (locks, _) = memory().await;
    assert_eq!(pay(&locks, 7).await.unwrap(), "7");
    assert_eq!(Till(locks).pay(7).await.unwrap(), "7");
}

/// A macro passes an expression in a group without delimiters. The clock is paused, so that the rest of each lease is the
/// same on a busy machine.
#[tokio::test(start_paused = true)]
async fn a_macro_may_write_the_values_of_options() {
    macro_rules! locked {
        ($name:ident, $lease:expr, $wait:literal, $permits:expr, $status:expr, $renew:expr) => {
            #[redis_lock(
                                                                key = "a",
                                                                expire = $lease,
                                                                wait_time = $wait,
                                                                permits = $permits,
                                                                renew = $renew,
                                                                contended_status = $status,
                                                                retry_after_max = $wait
                                                            )]
            async fn $name(lock: HeldLock) -> String {
                lock.remaining().as_secs_f64().ceil().to_string()
            }
        };
    }

    const LEASE: Duration = Duration::from_secs(40);

    locked!(literals, 50, 1, 1, 423, false);
    locked!(texts, "1m", "1s", 1, 423, true);
    locked!(constants, LEASE, "1s", 1, StatusCode::LOCKED, true);

    let (locks, node) = memory().await;
    let router = Router::new()
        .route("/literals", on_get(literals))
        .route("/texts", on_get(texts))
        .route("/constants", on_get(constants))
        .with_state(locks);
    // 1 % and 2 ms of the lease are the margin for clock drift.
    for (path, seconds) in [("/literals", "50"), ("/texts", "60"), ("/constants", "40")] {
        assert_eq!(get(&router, path).await.body, seconds, "{path}");
    }
    let _other = held_by_another(&node, "a").await;
    let answer = get(&router, "/literals").await;
    assert_eq!(answer.status, StatusCode::LOCKED);
    assert_eq!(answer.headers["retry-after"], "1");
}

/// The words of options are no names of the program.
#[tokio::test]
async fn the_words_of_options_may_be_names_of_the_user() {
    mod odd {
        #![allow(dead_code, non_camel_case_types, non_upper_case_globals)]

        use axum::response::IntoResponse;
        use redlock_axum::{HeldLock, redis_lock};

        fn abort() {}
        fn plain() {}
        struct keep_going;
        const end_of_body: u8 = 7;
        const response: &str = "response";
        const renew: bool = false;

        #[redis_lock(
            key = "a",
            renew,
            on_lost = abort,
            dialect = plain,
            hold_until = end_of_body
        )]
        pub(super) async fn streams(_lock: HeldLock) -> impl IntoResponse {
            "streams"
        }

        #[redis_lock(key = "a", on_lost = keep_going, hold_until = response)]
        pub(super) async fn answers(_lock: HeldLock) -> impl IntoResponse {
            "answers"
        }
    }

    let (locks, node) = memory().await;
    let router = Router::new()
        .route("/streams", on_get(odd::streams))
        .route("/answers", on_get(odd::answers))
        .with_state(locks);
    for (path, keys) in [("/streams", 1), ("/answers", 0)] {
        let response = send(&router, Method::GET, path).await;
        assert_eq!(node.len(), keys, "{path}");
        assert_eq!(text(response).await, path[1..]);
        assert!(node.is_empty(), "{path}");
    }
}

#[tokio::test]
async fn the_crate_may_be_reexported() {
    mod platform {
        pub(super) mod locking {
            pub(crate) use redlock_axum::__private;
        }
    }

    #[redis_lock(key = "a", manager = locks, crate = platform::locking)]
    async fn through(locks: &LockManager) -> Result<(), LockError> {
        assert!(is_held_by_caller(locks, "a").await);
        Ok(())
    }

    struct Till(LockManager);

    impl Till {
        #[redis_lock(key = "a", manager = self.0, crate = platform::locking)]
        /// Documentation.
        async fn through(&self) -> Result<(), LockError> {
            assert!(is_held_by_caller(&self.0, "a").await);
            Ok(())
        }
    }

    let (locks, _) = memory().await;
    through(&locks).await.unwrap();
    Till(locks).through().await.unwrap();
}

/// Under `#[forbid]`, an `#[allow]` in generated code is an error.
#[tokio::test]
async fn lints_may_be_forbidden() {
    mod strict {
        #![forbid(unused_variables, unused_mut, unused_braces, non_snake_case, deprecated)]

        use redlock_axum::{LockError, LockManager, redis_lock};

        #[redis_lock(key = "a:{id}")]
        pub(super) async fn handler(
            axum::extract::Path((id, name)): axum::extract::Path<(u8, u8)>,
        ) {
            let _ = name;
        }

        #[redis_lock(key = "a:{id}", manager = locks)]
        pub(super) async fn function(
            locks: &LockManager,
            (id, name): (u8, u8),
        ) -> Result<u8, LockError> {
            Ok(name)
        }

        pub(super) struct Till(pub(super) LockManager);

        impl Till {
            #[redis_lock(key = "a:{id}", manager = self.0)]
            pub(super) async fn method(
                mut self,
                (id, mut name): (u8, u8),
                mut one: u8,
                _unused: u8,
            ) -> Result<u8, LockError> {
                self.0 = self.0.clone();
                name += 1;
                one += 1;
                Ok(name + one)
            }
        }
    }

    let (locks, _) = memory().await;
    let _: axum::routing::MethodRouter<LockManager> = axum::routing::get(strict::handler);
    assert_eq!(strict::function(&locks, (7, 8)).await.unwrap(), 8);
    assert_eq!(strict::Till(locks).method((7, 8), 1, 0).await.unwrap(), 11);
}

/// Documentation, deprecation and lints belong to the function that callers see. Lints that concern
/// the body stay with the body.
#[tokio::test]
async fn other_attributes_go_to_the_right_function() {
    #[deprecated]
    #[derive(Clone, Copy)]
    struct Coin;

    struct Till(LockManager);

    impl Till {
        /// Counts.
        #[deprecated = "count twice"]
        #[redis_lock(key = "till", manager = self.0)]
        #[expect(clippy::unnecessary_cast)]
        async fn count(&self, coins: u64) -> Result<u64, LockError> {
            Ok(coins as u64)
        }

        #[redis_lock(key = "till", manager = self.0)]
        #[expect(deprecated)]
        async fn takes(&self, coin: Coin) -> Result<bool, LockError> {
            let _ = coin;
            Ok(self.0.lock("till").try_acquire().await.is_err())
        }
    }

    #[redis_lock(key = "a", manager = locks)]
    async fn parameters(
        locks: &LockManager,
        #[expect(unused_variables)] plain: u8,
        #[expect(unused_variables, unused_mut)] [first, mut second]: [u8; 2],
    ) -> Result<(), LockError> {
        Ok(())
    }

    #[redis_lock(key = "a", manager = locks)]
    #[expect(unused_variables)]
    #[cfg(not(any()))]
    async fn first(locks: &LockManager, unused: u8) -> Result<u8, LockError> {
        #![allow(clippy::no_effect)]
        1;
        Ok(1)
    }

    #[redis_lock(key = "a", manager = locks)]
    #[cfg(any())]
    async fn first(locks: &LockManager, unused: u8) -> Result<u8, LockError> {
        Ok(2)
    }

    let (locks, _) = memory().await;
    #[expect(deprecated)]
    let counted = Till(locks.clone()).count(3).await;
    assert_eq!(counted.unwrap(), 3);
    #[expect(deprecated)]
    let taken = Till(locks.clone()).takes(Coin).await;
    assert!(taken.unwrap());
    assert_eq!(first(&locks, 0).await.unwrap(), 1);
    parameters(&locks, 0, [1, 2]).await.unwrap();
}

#[tokio::test]
async fn futures_are_send() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }

    #[redis_lock(key("cell:{}", cell.get()), manager = locks)]
    async fn unshared(locks: &LockManager, cell: std::cell::Cell<u8>) -> Result<u8, LockError> {
        tokio::task::yield_now().await;
        Ok(cell.get())
    }

    let (locks, _) = memory().await;
    assert_eq!(is_send(unshared(&locks, std::cell::Cell::new(1))).await.unwrap(), 1);
}
