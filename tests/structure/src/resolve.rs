//! Finds the module to which a path leads.

use crate::names::Path;
use crate::tree::{Module, Tree};

/// The target of a path.
enum Place {
    Module(usize),
    /// An item that is defined in this module.
    Item(usize),
}

impl Tree {
    /// Returns the modules that a path in the code of `module` names, and the modules that define an item
    /// which it names.
    ///
    /// There may be several, because a module, a function and a macro may have the same name. There is
    /// none if the path leads out of the crate.
    pub(crate) fn resolve(&self, module: usize, path: &[String]) -> Vec<usize> {
        let places = self.places(module, path, &mut Vec::new());
        places.into_iter().map(|(Place::Module(id) | Place::Item(id))| id).collect()
    }

    fn places(&self, module: usize, path: &[String], seen: &mut Vec<Path>) -> Vec<Place> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        let mut places = match first.as_str() {
            "crate" => vec![Place::Module(0)],
            "self" => vec![Place::Module(module)],
            "super" => vec![Place::Module(self.modules[module].parent)],
            name => self.lookup(module, name, seen),
        };
        for name in rest {
            let outer = places.iter().find_map(|place| match place {
                Place::Module(id) => Some(*id),
                Place::Item(_) => None,
            });
            // `name` is a variant, a method or a constant of an item.
            let Some(outer) = outer else { break };
            if name == "super" {
                places = vec![Place::Module(self.modules[outer].parent)];
                continue;
            }
            places = self.lookup(outer, name, seen);
            if places.is_empty() {
                // A macro of `outer` defines the name, or `outer` re-exports it from another crate.
                places.push(Place::Item(outer));
            }
        }
        places
    }

    /// Returns the targets of a name in a module. `seen` contains the names whose lookup is not finished.
    fn lookup(&self, module: usize, name: &str, seen: &mut Vec<Path>) -> Vec<Place> {
        let Module { path, children, names, .. } = &self.modules[module];
        let full = [&path[..], &[name.to_owned()]].concat();
        if seen.contains(&full) {
            return Vec::new();
        }
        seen.push(full);
        let mut places = Vec::new();
        let is_name = |id: &&usize| self.modules[**id].path.last().is_some_and(|last| last == name);
        places.extend(children.iter().filter(is_name).map(|id| Place::Module(*id)));
        if names.definitions.iter().any(|definition| definition == name) {
            places.push(Place::Item(module));
        }
        for (_, path) in names.imports.iter().filter(|(import, _)| import == name) {
            places.extend(self.places(module, path, seen));
        }
        if places.is_empty() {
            for glob in &names.globs {
                for place in self.places(module, glob, seen) {
                    if let Place::Module(id) = place {
                        places.extend(self.lookup(id, name, seen));
                    }
                }
            }
        }
        seen.pop();
        places
    }
}
