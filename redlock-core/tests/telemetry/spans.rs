use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::{Mutex, Once};
use std::time::Duration;

use redlock_core::LockManager;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Instrument, Level, Subscriber, info_span};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// A span that has ended, or lives.
#[derive(Debug, Default, Clone)]
struct Seen {
    name: &'static str,
    parent: Option<u64>,
    fields: BTreeMap<&'static str, String>,
    entered: usize,
    is_closed: bool,
}

static SPANS: Mutex<BTreeMap<u64, Seen>> = Mutex::new(BTreeMap::new());
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records the spans of the whole process. An id is not used again, because no span is removed.
#[derive(Debug)]
struct Collect;

struct Fields<'a>(&'a mut BTreeMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collect {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if IGNORES_SPANS.get() {
            return;
        }
        let parent = context.span(id).and_then(|span| span.parent()).map(|span| key(&span.id()));
        let mut seen = Seen { name: attributes.metadata().name(), parent, ..Seen::default() };
        attributes.record(&mut Fields(&mut seen.fields));
        SPANS.lock().unwrap().insert(key(id), seen);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        if let Some(seen) = SPANS.lock().unwrap().get_mut(&key(id)) {
            values.record(&mut Fields(&mut seen.fields));
        }
    }

    fn on_enter(&self, id: &Id, _: Context<'_, S>) {
        if let Some(seen) = SPANS.lock().unwrap().get_mut(&key(id)) {
            seen.entered += 1;
        }
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        if let Some(seen) = SPANS.lock().unwrap().get_mut(&key(&id)) {
            seen.is_closed = true;
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() <= Level::WARN {
            let mut text = Text(String::new());
            event.record(&mut text);
            WARNINGS.lock().unwrap().push(text.0);
        }
    }
}

fn key(id: &Id) -> u64 {
    id.into_u64()
}

thread_local! {
    static IGNORES_SPANS: Cell<bool> = const { Cell::new(false) };
}

/// Does not collect the spans of this thread, for a test that counts memory.
pub(crate) fn ignore_spans() {
    IGNORES_SPANS.set(true);
}

/// Begins to collect the spans and warnings of this process.
pub(crate) fn collect() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        tracing::subscriber::set_global_default(Registry::default().with(Collect)).unwrap();
    });
}

/// Returns a copy, because a test that fails under the lock would hide why.
fn spans() -> BTreeMap<u64, Seen> {
    SPANS.lock().unwrap().clone()
}

pub(crate) fn warnings() -> Vec<String> {
    WARNINGS.lock().unwrap().clone()
}

/// Returns the children of a request's span, by their names.
fn children(request: &str) -> BTreeMap<&'static str, Seen> {
    let spans = spans();
    let is_it = |seen: &Seen| seen.fields.get("request").is_some_and(|name| name == request);
    let (parent, _) = spans.iter().find(|(_, seen)| is_it(seen)).unwrap();
    let children: Vec<_> = spans.values().filter(|seen| seen.parent == Some(*parent)).collect();
    assert_eq!(children.len(), 2, "{children:?}");
    children.into_iter().map(|seen| (seen.name, seen.clone())).collect()
}

/// Two requests take turns in one thread. The second one waits for the first.
#[test]
fn interleaved_requests_have_only_their_own_spans_which_name_the_holder_and_no_key() {
    collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let [first_reader, joined_reader] = runtime.block_on(async {
        let node = redlock_core::MemoryNode::new();
        let builder = || LockManager::builder().memory_node(&node);
        let holder = builder().owner_label("holder:1").connect().await.unwrap();
        let waiter = builder().owner_label("waiter:2").connect().await.unwrap();
        let request = async |locks: &LockManager, pause: u64| {
            let request = locks.lock("order:s3cret").named("spans").fenced(true);
            let guard = request.wait_time(Duration::from_secs(60)).acquire().await.unwrap();
            for _ in 0..pause {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            guard.extend(Duration::from_secs(30)).await.unwrap();
            guard.release().await.unwrap();
        };
        tokio::join!(
            request(&holder, 50).instrument(info_span!("request", request = "first")),
            request(&waiter, 1).instrument(info_span!("request", request = "second")),
        );
        let contended = async {
            let _held = holder.lock("order:s3cret").named("spans").try_acquire().await.unwrap();
            let refused = waiter.lock("order:s3cret").named("spans").try_acquire();
            refused.instrument(info_span!("request", request = "refused")).await.unwrap_err();
        };
        contended.await;
        let read = |number: usize| {
            let request = holder.lock("order:s3cret").named("spans").shared(true).try_acquire();
            request.instrument(info_span!("request", request = format!("reader {number}")))
        };
        // On a busy machine, the second reader may come too late to join.
        for number in 0.. {
            let _first = read(2 * number).await.unwrap();
            if read(2 * number + 1).await.unwrap().has_joined() {
                return [2 * number, 2 * number + 1];
            }
        }
        unreachable!("no reader has joined the lock of another one")
    });
    let mut numbers = Vec::new();
    for (request, is_waiter) in [("first", false), ("second", true)] {
        let children = children(request);
        let (acquire, hold) = (&children["redlock.acquire"], &children["redlock.hold"]);
        for span in [acquire, hold] {
            assert!(span.is_closed && span.entered == 0, "{span:?}");
            assert_eq!(span.fields["lock"], "spans");
        }
        for (name, value) in
            [("outcome", "acquired"), ("otel.kind", "client"), ("granted", "1"), ("nodes", "1")]
        {
            assert_eq!(acquire.fields.get(name).map(String::as_str), Some(value), "{acquire:?}");
        }
        assert!(!acquire.fields.contains_key("error.type"), "{acquire:?}");
        let holder = acquire.fields.get("holder").map(String::as_str);
        assert_eq!(holder, is_waiter.then_some("holder:1"), "{acquire:?}");
        let waited: u64 = acquire.fields["waited_ms"].parse().unwrap();
        // On a busy machine, the first request waits for its processor.
        assert!(waited >= 10 || !is_waiter, "{acquire:?}");
        assert_eq!(hold.fields["end"], "released");
        assert_eq!(hold.fields["renewals"], "1");
        numbers.push(hold.fields["number"].parse::<i64>().unwrap());
    }
    assert!(numbers[0] < numbers[1], "{numbers:?}");
    for (reader, joined) in [(first_reader, None), (joined_reader, Some("true"))] {
        let acquire = &children(&format!("reader {reader}"))["redlock.acquire"];
        assert_eq!(acquire.fields.get("joined").map(String::as_str), joined, "{acquire:?}");
    }
    let spans = spans();
    let refused = spans.values().find(|seen| seen.fields.contains_key("error.type")).unwrap();
    for (name, value) in
        [("outcome", "contended"), ("error.type", "contended"), ("holder", "holder:1")]
    {
        assert_eq!(refused.fields.get(name).map(String::as_str), Some(value), "{refused:?}");
    }
    let ours = spans.values().filter(|seen| seen.name.starts_with("redlock."));
    let all = format!("{:?}", ours.collect::<Vec<_>>());
    assert!(!all.contains("s3cret") && !all.contains("memory"), "{all}");
}
