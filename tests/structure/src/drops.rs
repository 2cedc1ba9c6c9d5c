//! Each `Drop` of the product says in a comment what it does.

use std::path::Path;

use crate::papers::visit;

/// Finds implementations of `Drop` without a comment.
pub(crate) fn check(folder: &str) -> Vec<String> {
    let mut findings = Vec::new();
    visit(Path::new(folder), &mut |path, text| {
        // Tests watch drops.
        if !path.to_string_lossy().ends_with("tests.rs") {
            findings.extend(silent(&path.display().to_string(), text));
        }
    });
    findings
}

/// Returns a finding for each implementation without a comment above itself or its function, whose type has no comment
/// about its drop either.
pub(crate) fn silent(path: &str, text: &str) -> Vec<String> {
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines: Vec<&str> = product.lines().map(str::trim_start).collect();
    let is_comment = |index: usize| lines.get(index).is_some_and(|line| line.starts_with("///"));
    let mut findings = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some((_, ty)) = line.split_once(" Drop for ") else { continue };
        let name = ty.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let is_type = |line: &&str| {
            let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric()).collect();
            words.windows(2).any(|pair| pair == ["struct", name])
        };
        let at = lines.iter().position(is_type).unwrap_or_default();
        let mut above = lines[..at].iter().rev().take_while(|line| line.starts_with(['/', '#']));
        let is_said =
            above.any(|line| line.starts_with("///") && line.to_lowercase().contains("drop"));
        if !is_said && !is_comment(index + 1) && !is_comment(index.wrapping_sub(1)) {
            findings.push(format!(
                "{path}:{}: no comment says what the drop of `{name}` does",
                index + 1
            ));
        }
    }
    findings
}
