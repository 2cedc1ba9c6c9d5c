//! Checks rules about the source code of the product crates, and fails if one is broken.
//!
//! | module | rule |
//! |---|---|
//! | `circles` | no modules import each other, directly or through others, and no files and folders of one folder do, with two exceptions |
//! | `circles` also | the files of the command `redlock`, which is a crate of its own |
//! | `walls` | a few rooms import only what they may: a store the protocol of nodes, the kit, and values, and no other store; options no manager that has them. Only the manager, and what plays its servers, import a store |
//! | `types` | each name of a type is defined once in the product crates; variants of public enums can get more fields |
//! | `patterns` | a crate names each item that it exports; a page of documentation is visible whatever the features are; only one file contains the shortest and the longest lease; only a few files name an option of a lock; the programs in the READMEs print an error by `Display` |
//! | `tables` | the tables of options and of features in the documents have a row for each one; docs.rs documents all stable features of a crate |
//! | `examples` | each example has a section in examples/README.md, and a test that starts it |
//! | `drops` | each `Drop` says in a comment what it does |
//! | `papers` | ARCHITECTURE.md names files and tests that exist; each invariant that it lists is in the docs of a module, with tests that exist |
//!
//! Clippy checks that public enums can get more variants, and public structs more fields.
//!
//! Run it in the folder of the workspace. Comments, and code that only tests or rustdoc compile, are not
//! checked.
//!
//! A module imports another module if its code names that module or an item that is defined in it: in
//! a `use`, or by a path in code, types, attributes and macros. Imports between a module and its child
//! modules do not count. Whether product code names test code is not checked, because such code would not
//! compile.

mod circles;
mod code;
mod drops;
mod examples;
mod names;
mod papers;
mod patterns;
mod resolve;
mod tables;
#[cfg(test)]
mod tests;
mod tree;
mod types;
mod walls;

use std::fs;
use std::process::ExitCode;

use circles::Graph;
use tree::Tree;

const PRODUCT: [&str; 3] = ["redlock-core", "redlock-macros", "redlock-axum"];
/// The command, a crate of its own: it reaches only what the library exports.
const COMMAND: &str = "redlock-core/src/bin/redlock";

/// The folders whose files and folders import each other, of each crate. The root of a crate has no name.
const FOLDERS_WITH_CIRCLES: [(&str, &str); 2] = [("redlock-core", "waiting"), ("redlock-axum", "")];

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

/// Checks every rule. Returns a summary, or the findings that break a rule.
fn check() -> Result<String, Vec<String>> {
    let mut files = Vec::new();
    let mut imports = 0;
    let mut findings = Vec::new();
    for name in PRODUCT {
        let tree = Tree::read(&format!("{name}/src"), &|file| fs::read_to_string(file).ok())
            .map_err(|error| vec![error])?;
        let graph = Graph::of(&tree);
        imports += graph.imports();
        let exempt = FOLDERS_WITH_CIRCLES.iter().filter(|(krate, _)| *krate == name);
        let exempt: Vec<_> = exempt.map(|(_, folder)| *folder).collect();
        let circles = [graph.circles(), graph.folder_circles(&exempt)].concat();
        findings.extend(circles.iter().map(|circle| format!("{name}: {circle}")));
        if name == "redlock-core" {
            findings.extend(walls::WALLS.iter().flat_map(|wall| wall.check(&graph)));
        }
        findings.extend(drops::check(&format!("{name}/src")));
        files.extend(tree.files);
    }
    let command =
        Tree::read(COMMAND, &|file| fs::read_to_string(file).ok()).map_err(|error| vec![error])?;
    let graph = Graph::of(&command);
    let circles = [graph.circles(), graph.folder_circles(&[])].concat();
    findings.extend(circles.iter().map(|circle| format!("{COMMAND}: {circle}")));
    findings.extend(types::check(&files));
    files.extend(command.files);
    findings.extend(patterns::check(&files));
    findings.extend(patterns::check_readmes());
    findings.extend(examples::check());
    findings.extend(papers::check());
    findings.extend(tables::check());
    if !findings.is_empty() {
        return Err(findings);
    }
    Ok(format!("{} files, {imports} imports from module to module: no rule is broken", files.len()))
}
