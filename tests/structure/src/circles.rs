//! Finds circular imports between the modules of a crate.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

use crate::tree::Tree;

/// The ids of an importing module and of the imported module.
type Edge = (usize, usize);

/// The line of an import, and the imported path as it is written.
struct Import {
    line: usize,
    path: String,
}

/// The imports between the modules of a crate: the first import for each pair of modules, without the imports
/// between a module and its child modules.
pub(crate) struct Graph<'a> {
    tree: &'a Tree,
    imports: BTreeMap<Edge, Import>,
}

impl<'a> Graph<'a> {
    pub(crate) fn of(tree: &'a Tree) -> Self {
        let mut imports = BTreeMap::new();
        for (from, module) in tree.modules.iter().enumerate() {
            for (path, line) in &module.names.mentions {
                let counts = |to: &usize| !related(&module.path, &tree.modules[*to].path);
                for to in tree.resolve(from, path).into_iter().filter(counts) {
                    let import = || Import { line: *line, path: path.join("::") };
                    imports.entry((from, to)).or_insert_with(import);
                }
            }
        }
        Self { tree, imports }
    }

    /// Returns the number of pairs of modules of which the first imports the second.
    pub(crate) fn imports(&self) -> usize {
        self.imports.len()
    }

    /// Returns the path of the importing module and of the imported one, and the place of each import.
    pub(crate) fn edges_by_path(&self) -> impl Iterator<Item = (&[String], &[String], String)> {
        self.imports.iter().map(|((from, to), Import { line, path })| {
            let (from, to) = (&self.tree.modules[*from], &self.tree.modules[*to]);
            (&from.path[..], &to.path[..], format!("{}:{line}: {path}", from.file))
        })
    }

    /// Describes each group of modules that import each other, directly or through others of the group.
    pub(crate) fn circles(&self) -> Vec<String> {
        let reach: Vec<_> = (0..self.tree.modules.len()).map(|id| self.reachable(id)).collect();
        let group = |id: usize| -> BTreeSet<usize> {
            reach[id].iter().filter(|other| reach[**other].contains(&id)).copied().collect()
        };
        let groups: BTreeSet<_> = (0..reach.len()).map(group).collect();
        groups.iter().filter(|group| !group.is_empty()).map(|group| self.describe(group)).collect()
    }

    /// Describes the imports that close a circle of neighbours (files and folders of one folder), below all folders but
    /// `exempt`. The modules in the folders need not import each other for that.
    pub(crate) fn folder_circles(&self, exempt: &[&str]) -> Vec<String> {
        let mut units: BTreeMap<&[String], BTreeMap<&[String], Edge>> = BTreeMap::new();
        for (from, to) in self.imports.keys().copied() {
            let [one, other] = [from, to].map(|id| &self.tree.modules[id].path[..]);
            let common = one.iter().zip(other).take_while(|(one, other)| one == other).count();
            if exempt.contains(&&*one[..common].join("::")) {
                continue;
            }
            let (one, other) = (&one[..=common], &other[..=common]);
            units.entry(one).or_default().entry(other).or_insert((from, to));
        }
        let reach = |from| {
            let (mut reached, mut ahead) = (BTreeSet::new(), vec![from]);
            while let Some(at) = ahead.pop() {
                let next = units.get(at).into_iter().flat_map(BTreeMap::keys);
                ahead.extend(next.copied().filter(|to| reached.insert(*to)));
            }
            reached
        };
        let mut found = Vec::new();
        for (from, imports) in &units {
            for (to, edge) in imports {
                if reach(to).contains(from) {
                    let mut text = format!("{} is in a circle of neighbours:\n", from.join("::"));
                    self.write(&mut text, *edge);
                    found.push(text);
                }
            }
        }
        found
    }

    /// Returns the modules that a module imports, directly or through others.
    fn reachable(&self, from: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut ahead = vec![from];
        while let Some(at) = ahead.pop() {
            ahead.extend(self.edges(at).map(|(_, to)| to).filter(|to| reached.insert(*to)));
        }
        reached
    }

    fn edges(&self, from: usize) -> impl Iterator<Item = Edge> {
        self.imports.range((from, 0)..(from + 1, 0)).map(|(edge, _)| *edge)
    }

    /// Describes a group of modules: its shortest circle, and then its other imports.
    fn describe(&self, group: &BTreeSet<usize>) -> String {
        let circles = group.iter().filter_map(|id| self.circle(*id));
        let circle = circles.min_by_key(Vec::len).unwrap_or_default();
        let mut text = format!("{} modules import each other. The shortest circle:\n", group.len());
        for edge in &circle {
            self.write(&mut text, *edge);
        }
        let inside = |(from, to): &&Edge| group.contains(from) && group.contains(to);
        let rest = self.imports.keys().filter(inside).filter(|edge| !circle.contains(edge));
        for (index, edge) in rest.enumerate() {
            if index == 0 {
                text.push_str("  The other imports among them:\n");
            }
            self.write(&mut text, *edge);
        }
        text
    }

    fn write(&self, text: &mut String, (from, to): Edge) {
        let Import { line, path } = &self.imports[&(from, to)];
        let (from, to) = (&self.tree.modules[from], &self.tree.modules[to]);
        let (file, from, to) = (&from.file, from.path.join("::"), to.path.join("::"));
        _ = writeln!(text, "    {from} -> {to}    {file}:{line}: {path}");
    }

    /// Returns the shortest circle through a module.
    fn circle(&self, through: usize) -> Option<Vec<Edge>> {
        let mut ways = VecDeque::from([(through, Vec::new())]);
        let mut seen = BTreeSet::new();
        while let Some((at, way)) = ways.pop_front() {
            if at == through && !way.is_empty() {
                return Some(way);
            }
            for edge in self.edges(at).filter(|edge| seen.insert(edge.1)) {
                ways.push_back((edge.1, [&way[..], &[edge]].concat()));
            }
        }
        None
    }
}

/// Returns whether two modules are the same, or one of them contains the other.
fn related(one: &[String], other: &[String]) -> bool {
    one.starts_with(other) || other.starts_with(one)
}
