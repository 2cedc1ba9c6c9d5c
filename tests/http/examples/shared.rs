//! The examples `catalogue` and `exports`: shared locks and permits.

use std::time::Duration;

use redlock_tests::{RedisServer, Service, eventually};
use tokio::task::JoinSet;

use crate::walkthrough::Walkthrough;
use crate::{FIRST, OTHER};

const EXPORTS: &str = env!("CARGO_BIN_EXE_exports");
const SOON: Duration = Duration::from_secs(30);

/// Returns the lines of a service's log about its work, such as `read begins`.
fn work(service: &Service) -> Vec<String> {
    let log = service.log();
    let words = log.lines().filter(|line| line.ends_with("begins") || line.ends_with("ends"));
    words.filter_map(|line| Some(line.rsplit_once(": ")?.1.to_owned())).collect()
}

#[tokio::test]
async fn the_example_catalogue_answers_as_its_readme_says() {
    let program = env!("CARGO_BIN_EXE_catalogue");
    let mut walkthrough = Walkthrough::run("catalogue", program).await.unwrap();
    assert_eq!(walkthrough.background().await, "coat, hat\n");
    assert_eq!(walkthrough.background().await, "boat is added\n");
    assert_eq!(walkthrough.background().await, "the import is checked\n");
    let expected = [
        // Two readers at once. A change waits for the longer one, and the next reader waits for the change.
        "read begins",
        "read begins",
        "read ends",
        "read ends",
        "change begins",
        "change ends",
        "read begins",
        "read ends",
        // The import has its lock alone at first, and then together with a reader.
        "import begins",
        "read begins",
        "read ends",
        "import ends",
    ];
    assert_eq!(work(walkthrough.service()), expected);
    assert_eq!(walkthrough.redis.probe().await.keys().await, [""; 0], "a lock was not released");
    walkthrough.stop(FIRST).await;
}

#[tokio::test]
async fn the_example_exports_answers_as_its_readme_says() {
    let mut walkthrough = Walkthrough::run("exports", EXPORTS).await.unwrap();
    for _ in 0..3 {
        assert_eq!(walkthrough.background().await, "the data of tenant 7\n");
    }
    let work = work(walkthrough.service());
    assert_eq!(work[work.len() - 2..], ["relocation begins", "relocation ends"]);
    assert!(work[..work.len() - 2].iter().all(|line| line.starts_with("export ")), "{work:?}");
    walkthrough.stop(FIRST).await;
    walkthrough.stop(OTHER).await;
}

#[tokio::test]
async fn the_exports_of_a_killed_copy_make_room_when_their_leases_end() {
    let redis = RedisServer::start().await;
    let environment = [("REDIS_URLS", redis.url())];
    let killed = Service::start(EXPORTS, &environment).await;
    let other = Service::start(EXPORTS, &environment).await;
    let export = |service: &Service, hold_ms: u32| {
        let url = service.url(&format!("/tenants/7/exports?hold_ms={hold_ms}"));
        async move { reqwest::Client::new().post(url).send().await.map(|sent| sent.status().as_u16()) }
    };
    let mut lost = JoinSet::new();
    for _ in 0..3 {
        lost.spawn(export(&killed, 60_000));
    }
    eventually("three exports run", SOON, async || (work(&killed).len() == 3).then_some(())).await;
    assert_eq!(export(&other, 0).await.unwrap(), 409);
    killed.kill();
    eventually("the permits are free", SOON, async || {
        (export(&other, 0).await.unwrap() == 200).then_some(())
    })
    .await;
    assert!(lost.join_all().await.iter().all(Result::is_err));
}
