//! Looks for import circles between the modules of the product crates, and fails if there are any.
//!
//! Run in the folder of the workspace. A module imports another one if its code names it, or an item
//! that is defined in it: in a `use`, or by a path in code, types, attributes and macros. Imports
//! between a module and the modules inside of it do not count. Code that only tests or rustdoc compile
//! is left out. That the other code does not name such code needs no check here: it would not compile.

mod cfg;
mod circles;
mod names;
mod resolve;
#[cfg(test)]
mod tests;
mod tree;

use std::fs;
use std::process::ExitCode;

use circles::Graph;
use tree::Tree;

const PRODUCT: [&str; 3] = ["redlock-core", "redlock-macros", "redlock-axum"];

fn main() -> ExitCode {
    let mut files = 0;
    let mut imports = 0;
    let mut clean = true;
    for name in PRODUCT {
        let tree = match Tree::read(&format!("{name}/src"), &|file| fs::read_to_string(file).ok()) {
            Ok(tree) => tree,
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        };
        let graph = Graph::of(&tree);
        files += tree.files;
        imports += graph.imports();
        for circle in graph.circles() {
            clean = false;
            eprintln!("{name}: {circle}");
        }
    }
    if !clean {
        return ExitCode::FAILURE;
    }
    println!("{files} files, {imports} imports from module to module, no circle");
    ExitCode::SUCCESS
}
