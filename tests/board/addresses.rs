//! The page asks below its own address, wherever it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Redirect};
use fantoccini::key::Key;
use redlock_axum::{LockManager, board};
use redlock_tests::skip;
use serde_json::json;

use crate::browser::Browser;
use crate::{proxy, serve};

/// A policy that forbids something, a missing file, or an exception would be in the console.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_works_at_every_address_with_an_empty_console() {
    let browser = match Browser::start().await {
        Ok(browser) => browser,
        Err(why) => return skip(&why),
    };
    let locks = LockManager::in_memory();
    let guard = locks.lock("order:42").try_acquire().await.unwrap();
    let label = locks.owner_label().unwrap().to_string();
    let direct = serve(board(&locks).local_only()).await;
    let nested = Router::new().nest_service("/ops/locks", board(&locks).unprotected());
    let nested = serve(nested).await;
    let proxied = serve(proxy::removing("/team/a", nested)).await;
    for address in [
        format!("http://{direct}/"),
        format!("http://localhost:{}/", direct.port()),
        format!("http://{nested}/ops/locks"),
        format!("http://{nested}/ops/locks/"),
        format!("http://{proxied}/team/a/ops/locks"),
        format!("http://{proxied}/team/a/ops/locks/"),
    ] {
        browser.client.goto(&address).await.unwrap();
        let scope = browser.reads("scope", |text| text.contains(&label)).await;
        assert!(scope.starts_with("This page shows one process"), "{scope}");
        browser.ask("order:42").await;
        browser.reads("state", |text| text == "order:42: exclusive").await;
        assert_eq!(
            browser.client.current_url().await.unwrap().as_str(),
            format!("{address}#order%3A42")
        );
        // The address with the key can be passed on.
        browser.client.refresh().await.unwrap();
        browser.reads("state", |text| text == "order:42: exclusive").await;
        assert_eq!(browser.console().await, [""; 0], "{address}");
    }
    drop(guard);
    browser.reads("state", |text| text == "order:42: free").await;
    pauses(&browser, &locks).await;
    shows_texts_as_they_are(&browser, &locks).await;
    assert_eq!(browser.console().await, [""; 0]);
    asks_to_sign_in(&browser, &locks).await;
    browser.close().await;
}

/// The session of an operator ends, and the login answers with a redirect to another site.
async fn asks_to_sign_in(browser: &Browser, locks: &LockManager) {
    let is_signed_in = Arc::new(AtomicBool::new(true));
    let login = {
        let is_signed_in = Arc::clone(&is_signed_in);
        move |request: Request, next: Next| {
            let is_signed_in = is_signed_in.load(Ordering::Relaxed);
            async move {
                let login = Redirect::to("https://login.example/");
                if is_signed_in { next.run(request).await } else { login.into_response() }
            }
        }
    };
    let address = serve(board(locks).behind(from_fn(login))).await;
    browser.client.goto(&format!("http://{address}/#order%3A42")).await.unwrap();
    browser.reads("state", |text| text == "order:42: free").await;
    is_signed_in.store(false, Ordering::Relaxed);
    let outage = browser.reads("outage", |text| !text.is_empty()).await;
    assert!(outage.contains("sign in again") && outage.contains("out of date"), "{outage}");
    is_signed_in.store(true, Ordering::Relaxed);
    browser.reads("outage", str::is_empty).await;
}

/// The timers of a page fire in their order: a page that were not paused would have asked twice before this timer.
const COUNT_LATER: &str = r"
const count = () => performance.getEntriesByType('resource').length;
const before = count();
setTimeout(() => arguments[0](count() - before), 2.5 * INTERVAL);
";

/// A paused page asks nothing, until it is asked or goes on.
async fn pauses(browser: &Browser, locks: &LockManager) {
    browser.find("pause").await.send_keys(&Key::Enter.to_string()).await.unwrap();
    browser.reads("pause", |text| text == "Go on").await;
    let guard = locks.lock("order:42").try_acquire().await.unwrap();
    browser.reads("fresh", |text| text.starts_with("Paused at ")).await;
    let asked = browser.client.execute_async(COUNT_LATER, Vec::new()).await.unwrap();
    assert_eq!(asked, json!(0));
    assert_eq!(browser.reads("state", |_| true).await, "order:42: free");
    browser.ask("order:42").await;
    browser.reads("state", |text| text == "order:42: exclusive").await;
    browser.find("pause").await.click().await.unwrap();
    drop(guard);
    browser.reads("state", |text| text == "order:42: free").await;
}

/// Keys come from requests: an attacker chooses them.
async fn shows_texts_as_they_are(browser: &Browser, locks: &LockManager) {
    let key = "<img src=x onerror=document.title=1>&%41#'\"";
    let guard = locks.lock(key).try_acquire().await.unwrap();
    browser.ask(key).await;
    browser.reads("state", |text| text == format!("{key}: exclusive")).await;
    let script = "return document.querySelectorAll('main img').length";
    assert_eq!(browser.faults(script).await, json!(0));
    drop(guard);
}
