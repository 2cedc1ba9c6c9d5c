//! The page in wide and narrow windows, in light and in dark.

use std::time::Duration;

use redlock_axum::{LockGuard, LockManager, board};
use redlock_tests::{Servers, skip};
use serde_json::json;

use crate::browser::Browser;
use crate::serve;

/// Long enough for a busy machine, and short enough for a test that waits until a lock is held for longer.
const LEASE: Duration = Duration::from_secs(6);

/// Returns how many pixels the page is wider than its window, and the texts whose contrast is below 4.5 to 1 (WCAG 2.2, AA).
const FAULTS: &str = r"
const rgb = color => color.match(/[\d.]+/g).map(Number);
const light = color => rgb(color).slice(0, 3).map(part => part / 255)
  .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
  .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
const back = element => {
  const color = getComputedStyle(element).backgroundColor;
  return rgb(color)[3] === 0 && element.parentElement ? back(element.parentElement) : color;
};
const hasText = element => [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
const pale = [...document.querySelectorAll('body *')].filter(hasText).filter(element => element.checkVisibility()).filter(element => {
  const [low, high] = [light(getComputedStyle(element).color), light(back(element))].sort((one, other) => one - other);
  return (high + 0.05) / (low + 0.05) < 4.5;
});
return [document.documentElement.scrollWidth - document.documentElement.clientWidth, pale.map(element => element.textContent)];
";

async fn process(servers: &Servers, label: &str) -> LockManager {
    redlock_tests::builder(servers.urls()).owner_label(label).connect().await.unwrap()
}

async fn held(locks: &LockManager, key: &str) -> LockGuard {
    locks.lock(key).expire(LEASE).renew(true).acquire().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_fits_narrow_windows_and_is_legible_in_light_and_dark() {
    let browser = match Browser::start().await {
        Ok(browser) => browser,
        Err(why) => return skip(&why),
    };
    let mut servers = Servers::start(3).await;
    let shop = process(&servers, "shop-7f9c:4121").await;
    let ops = process(&servers, "ops-85b6d:1").await;
    let long = format!("article:{}", "0123456789abcdef".repeat(12));
    let guards = [held(&shop, "report:daily").await, held(&shop, &long).await];
    let busy = held(&ops, "order:42").await;
    let slow = shop.lock("settlement:2026-11").expire(LEASE / 60).acquire().await.unwrap();
    slow.lost().await;
    let waits = shop.lock("order:42");
    let waiting = tokio::spawn(async move { waits.acquire().await.map(drop) });
    servers[1].kill();
    let address = serve(board(&shop).may_break(|_| true).local_only()).await;

    browser.client.goto(&format!("http://{address}/#order%3A42")).await.unwrap();
    browser.reads("state", |text| text == "order:42: exclusive").await;
    browser.reads("held", |text| text.contains("report:daily")).await;
    browser.reads("waiting", |text| text.contains("order:42")).await;
    browser.reads("lost", |text| text.contains("settlement:2026-11")).await;
    for (width, size) in [(360, "narrow"), (768, "middle"), (1100, "wide")] {
        for scheme in ["light", "dark"] {
            browser.show(width, scheme).await;
            browser.picture(&format!("{size}-{scheme}")).await;
            assert_eq!(browser.faults(FAULTS).await, json!([0, []]), "{size} {scheme}");
            browser.click("#holders button").await;
            browser.reads("dialog-title", |text| text == "Break this lock?").await;
            browser.picture(&format!("{size}-{scheme}-dialog")).await;
            assert_eq!(browser.faults(FAULTS).await, json!([0, []]), "the dialog, {size} {scheme}");
            browser.find("cancel").await.click().await.unwrap();
        }
    }
    browser.close().await;
    waiting.abort();
    drop((guards, busy, slow));
}
