//! Java programs and their libraries.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};

/// These options make Java start faster.
pub(crate) const QUICK: [&str; 3] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m"];

/// The class paths of the programs that this process has prepared.
static PREPARED: LazyLock<Mutex<HashMap<String, Result<String, String>>>> =
    LazyLock::new(Mutex::default);

/// Returns the class path of the program in the folder `interop/java/<name>`. The first call prepares it, which takes a
/// while: it downloads the libraries and compiles the program.
pub(crate) fn class_path(name: &str) -> Result<String, String> {
    class_path_with(name, None)
}

fn class_path_with(name: &str, version: Option<&str>) -> Result<String, String> {
    let folder = version.map_or_else(|| name.to_owned(), |version| format!("{name}-{version}"));
    let mut prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner);
    let prepare = || prepare(name, &target().join(&folder), version);
    prepared.entry(folder.clone()).or_insert_with(prepare).clone()
}

/// Returns the command that starts the Java program in the folder `interop/java/<name>`: `redisson` or `curator`. Its
/// arguments are the class and those of the program.
///
/// # Errors
///
/// The JDK or Maven is missing, or the libraries cannot be downloaded. The error is the reason.
pub fn java(name: &str) -> Result<Command, String> {
    Ok(command(&class_path(name)?))
}

/// Returns the same command with this version of Redisson, or of ZooKeeper for `curator`.
///
/// # Errors
///
/// As for [`java`].
pub fn java_with(name: &str, version: &str) -> Result<Command, String> {
    Ok(command(&class_path_with(name, Some(version))?))
}

fn command(class_path: &str) -> Command {
    let mut java = Command::new("java");
    java.args(QUICK).args(["-cp", class_path]);
    java
}

fn prepare(name: &str, directory: &Path, version: Option<&str>) -> Result<String, String> {
    let why = |error: String| format!("no {name} (needs a JDK and Maven): {}", error.trim());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop/java/prepare.sh");
    match Command::new(script).arg(name).arg(directory).args(version).output() {
        Ok(output) if output.status.success() => {
            let lib = directory.join("lib");
            Ok(format!("{0}:{0}/*", lib.display()))
        }
        Ok(output) => Err(why(String::from_utf8_lossy(&output.stderr).into_owned())),
        Err(error) => Err(why(error.to_string())),
    }
}

/// Returns the target folder, in which `tests/run.sh` prepares the programs too. Cargo writes this file into it.
pub fn target() -> PathBuf {
    let program = std::env::current_exe().expect("the path of this program");
    let target = program.ancestors().find(|folder| folder.join(".rustc_info.json").exists());
    target.expect("the target folder").to_owned()
}
