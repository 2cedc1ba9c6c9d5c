//! Collects the panics of background tasks, which would go unnoticed otherwise.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Collects the panics of this thread from now on.
pub(super) fn watch() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            SEEN.with_borrow_mut(|seen| seen.push(panic.to_string()));
            usual(panic);
        }));
    });
    let _ = take();
}

/// Returns the panics since the last call.
pub(super) fn take() -> Vec<String> {
    SEEN.take()
}

#[test]
fn a_panic_in_a_task_is_collected() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    watch();
    let _ = runtime.block_on(async { tokio::spawn(async { panic!("on purpose") }).await });
    let seen = take();
    assert!(seen.len() == 1 && seen[0].contains("on purpose"), "{seen:?}");
}
