//! The example `modes`: readers and writers, permits, and several keys.

use redlock_tests::{RedisServer, Service, eventually};
use reqwest::{Client, StatusCode};
use tokio::task::JoinSet;

use super::walkthrough::Walkthrough;
use crate::{SOON, decided, start};

/// Follows the commands of the README, on the same two copies.
const MORE: &str = r#"
```console
$ curl -X POST '127.0.0.1:3000/catalogue/import?hold_ms=3000' & sleep 1; curl 127.0.0.1:3000/catalogue
boat, coat, hat, umbrella
$ curl -X POST '127.0.0.1:3000/tenants/7/exports?hold_ms=6000' & sleep 1; redis-cli -p 7001 ZCARD export:7
(integer) 2
$ curl -X POST '127.0.0.1:3000/tenants/7/exports?hold_ms=6000' & sleep 1; redis-cli -p 7001 ZCARD export:7
(integer) 3
$ curl -X POST '127.0.0.1:3000/tenants/7/exports?hold_ms=6000' & sleep 1; redis-cli -p 7001 ZCARD export:7
(integer) 4
$ curl -X POST 127.0.0.1:3001/tenants/7/exports
{..,"status":409,..}
$ curl -X POST 127.0.0.1:3001/tenants/8/exports
the data of tenant 8
$ curl -X POST 127.0.0.1:3000/tenants/7/relocation
tenant 7 has another database
$ curl -X POST '127.0.0.1:3000/orders?hold_ms=4000' --json '[{"sku":"shoe","count":1},{"sku":"hat","count":2},{"sku":"boot","count":1},{"sku":"SHOE","count":1}]' & sleep 1; curl -X POST 127.0.0.1:3001/orders --json '[{"sku":"coat","count":1}]'
1 articles are ordered
$ curl -X POST 127.0.0.1:3001/articles/boot/count
{..,"status":409,..}
$ curl -X POST 127.0.0.1:3001/orders --json '[]'
{..,"status":400,"code":"invalid_key","detail":"the list of the resources is empty"}
$ redis-cli -p 7001 EXISTS sku:boot sku:hat sku:shoe
(integer) 3
```"#;

/// Returns the lines of a service's log about its work, such as `read begins`.
fn work(service: &Service) -> Vec<String> {
    let log = service.log();
    let words = log.lines().filter(|line| line.ends_with("begins") || line.ends_with("ends"));
    words.filter_map(|line| Some(line.rsplit_once(": ")?.1.to_owned())).collect()
}

#[tokio::test]
async fn the_example_modes_answers_as_its_readme_says() {
    let mut walkthrough = Walkthrough::run("modes").await.unwrap();
    walkthrough.follow(MORE).await;
    let work = work(walkthrough.service());
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
    let is_export = |line: &&String| line.starts_with("export ");
    // An export may begin before the import has ended.
    let others: Vec<_> = work.iter().filter(|line| !is_export(line)).collect();
    assert_eq!(others[..expected.len()], expected);
    // The relocation waits for all exports.
    assert_eq!(others[expected.len()..], ["relocation begins", "relocation ends"]);
    assert_eq!(work[work.len() - 2..], ["relocation begins", "relocation ends"]);
    walkthrough.promises("4 articles are ordered");
    let readme = ["coat, hat", "boat is added", "4 articles are ordered"];
    let exports = ["the data of tenant 7"; 3];
    let more = [&["the import is checked"], &exports[..], &["5 articles are ordered"]].concat();
    walkthrough.ends_with(&[&readme[..], &more].concat()).await;
}

#[tokio::test]
async fn the_exports_of_a_killed_copy_make_room_when_their_leases_end() {
    let redis = RedisServer::start().await;
    let environment = [("LOCKS_URLS", redis.url())];
    let (killed, other) = (start("modes", &environment).await, start("modes", &environment).await);
    let export = |service: &Service, hold_ms: u32| {
        let url = service.url(&format!("/tenants/7/exports?hold_ms={hold_ms}"));
        decided(Client::new().post(url))
    };
    let mut lost = JoinSet::new();
    for _ in 0..3 {
        lost.spawn(export(&killed, 60_000));
    }
    eventually("three exports run", SOON, async || (work(&killed).len() == 3).then_some(())).await;
    assert_eq!(export(&other, 0).await.unwrap().status(), StatusCode::CONFLICT);
    killed.kill();
    eventually("the permits are free", SOON, async || {
        (export(&other, 0).await.unwrap().status() == StatusCode::OK).then_some(())
    })
    .await;
    assert!(lost.join_all().await.iter().all(Result::is_err));
}
