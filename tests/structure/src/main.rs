//! Checks rules about the source code of the product crates, and fails if one is broken.
//!
//! | module | rule |
//! |---|---|
//! | `circles` | no modules import each other, directly or through others |
//! | `globs` | no `pub use ..::*`: a crate names what it exports |
//! | `variants` | public enums and their variants can get more variants and fields |
//! | `options` | an option of a lock is named in a few files only |
//! | `limits` | the shortest and the longest lease are written down once |
//! | `papers` | ARCHITECTURE.md names files and tests that exist |
//!
//! Run in the folder of the workspace. Code that only tests or rustdoc compile is left out, and so are
//! comments.
//!
//! A module imports another one if its code names it, or an item that is defined in it: in a `use`, or by a path
//! in code, types, attributes and macros. Imports between a module and the modules inside of it do not count.
//! That product code does not name code for tests needs no check here: it would not compile.

mod cfg;
mod circles;
mod globs;
mod limits;
mod names;
mod options;
mod papers;
mod resolve;
#[cfg(test)]
mod tests;
mod tokens;
mod tree;
mod variants;

use std::fs;
use std::process::ExitCode;

use circles::Graph;
use tree::Tree;

const PRODUCT: [&str; 3] = ["redlock-core", "redlock-macros", "redlock-axum"];

fn main() -> ExitCode {
    match check() {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(findings) => {
            for finding in findings {
                eprintln!("{finding}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Checks every rule, and returns what breaks them.
fn check() -> Result<String, Vec<String>> {
    let mut files = Vec::new();
    let mut imports = 0;
    let mut findings = Vec::new();
    for name in PRODUCT {
        let tree = Tree::read(&format!("{name}/src"), &|file| fs::read_to_string(file).ok())
            .map_err(|error| vec![error])?;
        let graph = Graph::of(&tree);
        imports += graph.imports();
        findings.extend(graph.circles().iter().map(|circle| format!("{name}: {circle}")));
        files.extend(tree.files);
    }
    for rule in [globs::check, variants::check, options::check, limits::check] {
        findings.extend(rule(&files));
    }
    findings.extend(papers::check());
    if !findings.is_empty() {
        return Err(findings);
    }
    Ok(format!("{} files, {imports} imports from module to module: no rule is broken", files.len()))
}
