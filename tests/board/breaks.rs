//! An operator looks up a lock and breaks it, by the keyboard, beside 10,000 held locks and a killed server.

use std::time::Duration;

use fantoccini::Locator;
use fantoccini::key::Key;
use redlock_axum::{LockGuard, LockManager, board};
use redlock_tests::{RedisServer, Servers, eventually, skip};

use crate::browser::Browser;
use crate::{SOON, serve};

const LEASE: Duration = Duration::from_secs(120);

async fn process(servers: &Servers, label: &str) -> LockManager {
    redlock_tests::builder(servers.urls()).owner_label(label).connect().await.unwrap()
}

async fn held(locks: &LockManager, key: &str) -> LockGuard {
    locks.lock(key).expire(LEASE).renew(true).acquire().await.unwrap()
}

/// Opens the dialog from the field with the key.
async fn open_dialog(browser: &Browser) {
    browser.find("key").await.send_keys(&Key::Tab.to_string()).await.unwrap();
    browser.press(&Key::Tab.to_string()).await;
    assert_eq!(browser.focused().await, "Break…");
    browser.press(&Key::Enter.to_string()).await;
    browser.reads("dialog-title", |text| text == "Break this lock?").await;
}

async fn is_open(browser: &Browser) -> bool {
    let open = browser.client.find(Locator::Css("dialog[open]")).await;
    open.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_breaks_a_lock_beside_10000_others_and_a_killed_server() {
    let browser = match Browser::start().await {
        Ok(browser) => browser,
        Err(why) => return skip(&why),
    };
    let mut servers = Servers::start(3).await;
    let (shop, ops) = (process(&servers, "shop-7f9c:4121").await, process(&servers, "ops:1").await);
    let mut many = Vec::new();
    for first in (0..10_000).step_by(100) {
        let some = (first..first + 100).map(|number| {
            let ops = ops.clone();
            tokio::spawn(async move { held(&ops, &format!("order:{number:05}")).await })
        });
        for one in some.collect::<Vec<_>>() {
            many.push(one.await.unwrap());
        }
    }
    let guard = held(&shop, "order:42").await;
    let killed: &mut RedisServer = &mut servers[1];
    killed.kill();
    let app = board(&ops).may_break(|_| true).local_only();
    let address = serve(app).await;
    browser.client.goto(&format!("http://{address}/")).await.unwrap();

    browser.ask("order:42").await;
    browser.reads("state", |text| text == "order:42: exclusive").await;
    browser
        .reads("holders", |text| text.contains("shop-7f9c:4121") && text.contains("2 of 3"))
        .await;
    browser.reads("nodes", |text| text.contains("down: ")).await;
    browser.reads("totals", |text| text.contains("It holds 10,000 locks.")).await;

    // Cancelled by Escape, and the focus is where it was.
    open_dialog(&browser).await;
    let facts = browser.reads("facts", |text| text.contains("order:42")).await;
    for fact in ["shop-7f9c:4121", "2 of 3", "ago"] {
        assert!(facts.contains(fact), "{facts}");
    }
    assert!(!browser.find("own").await.is_displayed().await.unwrap());
    browser.press(&format!("never sent{}", Key::Escape)).await;
    assert!(!is_open(&browser).await && guard.is_valid());
    assert_eq!(browser.focused().await, "Break…");
    // The next look at the lock leaves the focus there.
    let fresh = browser.reads("fresh", |_| true).await;
    browser.reads("fresh", |text| text != fresh).await;
    assert_eq!(browser.focused().await, "Break…");
    assert_eq!(browser.console().await, [""; 0]);

    // Refused with 409: another holder has the lock by now.
    browser.press(&Key::Enter.to_string()).await;
    guard.release().await.unwrap();
    let guard = held(&shop, "order:42").await;
    browser.press(&format!("the pod is lost{}", Key::Enter)).await;
    let refused = browser.reads("failed", |text| text.starts_with("Not broken: ")).await;
    assert!(refused.contains("or no longer; its holder is "), "{refused}");
    let console = browser.console().await;
    assert!(matches!(&console[..], [line] if line.contains("409")), "{console:?}");
    browser.press(&Key::Escape.to_string()).await;
    assert!(guard.is_valid());

    // Broken, with the answer of the killed server.
    let present = ops.status("order:42").await.unwrap().holders()[0].id().to_string();
    browser.reads("holders", |text| text.contains(&present)).await;
    open_dialog(&browser).await;
    browser.press(&format!("the pod is lost{}", Key::Enter)).await;
    let broken = browser.reads("result", |text| text.contains("order:42: broken.")).await;
    assert!(broken.contains("may believe in its lock for") && broken.contains(" agreed"), "{broken}");
    assert!(!is_open(&browser).await);
    assert_eq!(browser.focused().await, broken);
    browser.reads("state", |text| text == "order:42: free").await;
    eventually("the loss", SOON, async || (!guard.is_valid()).then_some(())).await;

    // The dialog warns of a holder of the process itself.
    browser.ask("order:00042").await;
    browser.reads("state", |text| text == "order:00042: exclusive").await;
    open_dialog(&browser).await;
    assert!(browser.find("own").await.is_displayed().await.unwrap());
    browser.find("cancel").await.click().await.unwrap();
    assert!(many[42].is_valid() && !is_open(&browser).await);
    assert_eq!(browser.console().await, [""; 0]);
    browser.close().await;
}
