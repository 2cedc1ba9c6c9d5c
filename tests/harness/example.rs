//! The programs of the folder `examples` and the command `redlock`, which Cargo builds with the tests of the workspace.

use std::path::{Path, PathBuf};

const BUILD: &str = "cargo build -p redlock-examples --examples";
const BUILD_COMMAND: &str = "cargo build -p redlock-core --features cli --bin redlock";

/// Returns the path of the example with this name, to be started by a test.
///
/// # Panics
///
/// If the program is missing, or older than one of its sources. `cargo test` and `cargo nextest run` of the workspace
/// build it, but not if they are told to build one test alone.
pub fn example(name: &str) -> PathBuf {
    let program = built(Path::new("examples").join(name));
    if let Err(why) = check(&program) {
        panic!("the example {name} {why}; build it: {BUILD}");
    }
    program
}

/// Returns the path of the command `redlock`.
pub(crate) fn command() -> PathBuf {
    let program = built("redlock");
    if let Err(why) = check(&program) {
        panic!("the command redlock {why}; build it: {BUILD_COMMAND}");
    }
    program
}

/// Returns the path of a program in the folder of the build.
fn built(program: impl AsRef<Path>) -> PathBuf {
    let test = std::env::current_exe().expect("the path of this program");
    // The tests are in `deps`.
    test.ancestors().nth(2).expect("the folder of the build").join(program)
}

/// Compares a program with the sources that Cargo lists beside it.
fn check(program: &Path) -> Result<(), String> {
    let changed = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    let built = changed(program).ok_or_else(|| format!("is not built ({})", program.display()))?;
    let list = std::fs::read_to_string(program.with_extension("d")).unwrap_or_default();
    let is_newer = |source: &PathBuf| changed(source) > Some(built);
    match sources(&list).find(is_newer) {
        Some(source) => Err(format!("is older than {}", source.display())),
        None => Ok(()),
    }
}

/// Returns the sources in a line `program: source source`, in which a blank of a path follows a backslash.
fn sources(list: &str) -> impl Iterator<Item = PathBuf> {
    let (_, sources) = list.split_once(": ").unwrap_or_default();
    let sources = sources.trim_end().replace("\\ ", "\0");
    let sources: Vec<_> = sources.split(' ').map(|source| source.replace('\0', " ")).collect();
    sources.into_iter().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::fs::{File, write};
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn an_example_that_is_missing_or_older_than_a_source_is_named_with_the_reason() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = |name: &str| dir.path().join(name);
        let (program, source) = (path("index"), path("its source.rs"));
        assert!(check(&program).expect_err("no program").starts_with("is not built"));
        for file in [&program, &source] {
            write(file, "").expect("a file");
        }
        let escaped = source.display().to_string().replace(' ', "\\ ");
        write(path("index.d"), format!("{}: {escaped} /no/such\n", program.display()))
            .expect("a file");
        let later = SystemTime::now() + Duration::from_secs(60);
        let set =
            |file| File::open(file).and_then(|file| file.set_modified(later)).expect("a time");
        set(&source);
        let expected = format!("is older than {}", source.display());
        assert_eq!(check(&program), Err(expected));
        set(&program);
        assert_eq!(check(&program), Ok(()));
    }
}
