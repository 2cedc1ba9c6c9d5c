//! Runs the rules on code and documents that are given as texts.

use crate::circles::Graph;
use crate::code::SourceFile;
use crate::tables::{differences, feature_rows, features, fields, names, options};
use crate::tree::Tree;
use crate::walls::Wall;
use crate::{drops, papers, patterns, types};

/// The texts, each with a rule and its findings.
const ROWS: &str = include_str!("rows.txt");

/// The code without which some rules report that they find nothing.
const HOMES: &str = "@redlock-core/src/validity.rs\nconst A: T = from_millis(10) + s(604_800);\n\
                     @redlock-core/src/options/table.rs\nfn max_hold() {}\n";

const WALL: Wall = Wall {
    room: "store",
    shared: Some(&["kit"]),
    below: &["node"],
    above: Some(&[("manager", &["", "one"])]),
};

/// A room whose modules may import each other, and that every other module may import.
const OPEN_WALL: Wall = Wall { room: "options", shared: None, below: &["lock"], above: None };

#[test]
fn each_rule_finds_what_breaks_it_and_nothing_else() {
    for row in ROWS.split("\n== ").skip(1) {
        let (head, row) = row.split_once('\n').unwrap();
        let (text, expected): (Vec<_>, Vec<_>) =
            row.lines().partition(|line| !line.starts_with("-> "));
        let expected: Vec<_> = expected.into_iter().map(|line| &line[3..]).collect();
        let text = text.join("\n");
        let found = match head.split(':').next().unwrap() {
            "circles" => circles(&text),
            "folder_circles" => lines(&Graph::of(&tree(&files(&text))).folder_circles(&["old"])),
            "imports" => {
                text.lines().filter(|code| circle_by(code).is_empty()).map(str::to_owned).collect()
            }
            "no_imports" => text.lines().flat_map(circle_by).collect(),
            "walls" => WALL.check(&Graph::of(&tree(&files(&text)))),
            "open_walls" => OPEN_WALL.check(&Graph::of(&tree(&files(&text)))),
            "types" => types::check(&sources(&text)),
            "patterns" => patterns::check(&sources(&format!("{HOMES}{text}"))),
            "mains" => patterns::mains("a.md", &text),
            "feature_tables" => feature_tables(&text),
            "option_tables" => option_tables(&text),
            "papers" => papers(&text),
            "drops" => drops::silent("a.rs", &text),
            "invariants" => invariants(&text),
            other => panic!("there is no rule {other}"),
        };
        assert_eq!(found, expected, "{head}");
    }
}

#[test]
fn a_rule_that_finds_nothing_where_it_should_is_noticed() {
    assert_eq!(patterns::check(&sources("@a.rs\nfn f() {}")).len(), 3);
}

/// Returns the files in a text. Each begins with `@` and its path.
fn files(text: &str) -> Vec<(&str, &str)> {
    text.split('@').skip(1).map(|file| file.split_once('\n').unwrap_or((file, ""))).collect()
}

fn tree(files: &[(&str, &str)]) -> Tree {
    let read = |file: &str| {
        let found = files.iter().find(|(name, _)| file.strip_prefix("src/") == Some(*name));
        found.map(|(_, text)| (*text).to_owned())
    };
    Tree::read("src", &read).unwrap()
}

fn sources(text: &str) -> Vec<SourceFile> {
    let read = |(path, text): (&str, &str)| {
        let SourceFile { code, .. } = tree(&[("lib.rs", text)]).files.remove(0);
        SourceFile { path: path.to_owned(), code }
    };
    files(text).into_iter().map(read).collect()
}

fn circles(text: &str) -> Vec<String> {
    lines(&Graph::of(&tree(&files(text))).circles())
}

fn lines(texts: &[String]) -> Vec<String> {
    texts.iter().flat_map(|text| text.lines()).map(|line| line.trim().to_owned()).collect()
}

/// The circle of a module `b` that imports `a`, and of `a` with this code.
fn circle_by(code: &str) -> Vec<String> {
    circles(&format!("@lib.rs\nmod a; mod b;\n@a.rs\n{code}\n@b.rs\nuse crate::a; pub fn f() {{}}"))
}

/// The differences between a manifest, its list for docs.rs, and a page.
fn feature_tables(text: &str) -> Vec<String> {
    let [(_, docs_rs), (_, page)] = files(text)[..] else { panic!("{text}") };
    let table = "[features]\ndefault = ['a']\na = []\nb = []\nunstable-c = []";
    let (features, listed) = features(&format!("[package.metadata.docs.rs]\n{docs_rs}\n{table}"));
    let names = features.keys().map(|name| (name.clone(), String::new())).collect();
    let mut found = differences("a.toml", "feature", &names, &listed);
    found.extend(differences("a.md", "feature", &features, &feature_rows(page)));
    found
}

fn option_tables(text: &str) -> Vec<String> {
    let [(_, code), (_, page)] = files(text)[..] else { panic!("{text}") };
    let listed = ["OPTIONS", "known"].into_iter().flat_map(|item| names(code, item));
    differences("a.md", "option", &listed.chain(fields(code)).collect(), &options(page))
}

fn papers(text: &str) -> Vec<String> {
    let exists = |path: &str| path == "queue/waiter.rs" || path == "queue/";
    papers::missing("a.md", text, &exists, &|name| name == "a_waiter_leaves_the_queue")
}

/// The differences between the invariants of a page and those of the modules after it.
fn invariants(text: &str) -> Vec<String> {
    let mut files = files(text).into_iter();
    let (_, page) = files.next().unwrap();
    let modules = files
        .filter_map(|(path, text)| Some((path.to_owned(), papers::invariants(text)?)))
        .collect();
    papers::unlisted(page, &modules)
}
