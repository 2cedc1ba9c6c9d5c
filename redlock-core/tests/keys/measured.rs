//! The time for keys and templates of a megabyte.

use std::time::Duration;

use redlock_core::{KeyError, KeyTemplate};

use crate::model::{encode, render, shortened};

const MIB: usize = 1024 * 1024;

/// Returns the CPU time of this thread, which does not depend on the load of the machine.
#[cfg(target_os = "linux")]
fn now() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

#[cfg(not(target_os = "linux"))]
fn now() -> Duration {
    static BEGUN: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    BEGUN.elapsed()
}

/// Returns the shortest of three measured times.
fn time<T>(mut work: impl FnMut() -> T) -> Duration {
    let once = |_| {
        let begun = now();
        std::hint::black_box(work());
        now().saturating_sub(begun)
    };
    (0..3).map(once).min().unwrap()
}

/// Asserts that the time grows linearly: 16 times the input may not take 256 times as long.
fn assert_linear<T>(what: &str, large: impl FnMut() -> T, small: impl FnMut() -> T) {
    let (large, small) = (time(large), time(small));
    assert!(large < small * 100 + Duration::from_millis(50), "{what}: {large:?}, small: {small:?}");
}

#[test]
fn a_value_of_a_megabyte_gives_a_short_key_in_bounded_time() {
    for (template, unit) in
        [("{a}:{b}", "x"), ("{a}:{b}", "%"), ("{a:lower}:{b}", "É"), ("{a:u64}:{b}", "0")]
    {
        let value = |size: usize| format!("{}1", unit.repeat(size / unit.len()));
        let (large, small) = (value(MIB), value(MIB / 64));
        let key = |value: &str| render(template, &[("a", value), ("b", "c")]).unwrap();
        if template.contains("u64") {
            assert_eq!(key(&large).as_str(), "1:c");
        } else {
            let lower = template.contains("lower");
            let taken = if lower { large.to_lowercase() } else { large.clone() };
            let in_full = format!("{}:c", encode(&taken));
            assert_eq!(key(&large).as_str(), shortened(&in_full));
            assert_ne!(key(&large), key(&small));
        }
        let (large, small) = (value(MIB / 4), small);
        assert_linear(template, || key(&large), || key(&small));
    }
    let wrong = "x".repeat(MIB);
    for template in ["{a:u64}", "{a:i64}", "{a:uuid}"] {
        let error = render(template, &[("a", &wrong)]).unwrap_err();
        assert!(matches!(error, KeyError::WrongType { .. }));
        assert!(error.to_string().len() < 200, "the message repeats the value");
    }
}

#[test]
fn a_template_of_a_megabyte_is_parsed_in_bounded_time() {
    for unit in ["x", "{{", "}}", "{a}:", "{a:lower}é", "{", "}", "{a", "{a}"] {
        let template = |size: usize| unit.repeat(size / unit.len());
        let (large, small) = (template(MIB), template(MIB / 64));
        let read = |source: &str| KeyTemplate::new(source).map(|read| read.placeholders().count());
        if let Ok(count) = read(&large) {
            assert_eq!(count, if unit.contains("{a") { MIB / unit.len() } else { 0 });
            assert!(render(&large, &[("a", "v")]).unwrap().as_str().len() <= 200);
        }
        let (large, small) = (template(MIB / 4), small);
        assert_linear(unit, || read(&large), || read(&small));
    }
}
