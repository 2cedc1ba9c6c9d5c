//! This workspace follows the rules.

use std::path::Path;
use std::process::Command;

#[test]
fn no_rule_is_broken() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let checked = Command::new(env!("CARGO_BIN_EXE_redlock-structure"))
        .current_dir(workspace)
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
