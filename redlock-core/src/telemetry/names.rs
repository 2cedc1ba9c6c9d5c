//! The names of locks in the metrics of this process: a limited number, because each name is a label.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// The most names in the metrics of a process, besides `other`.
const MOST_NAMES: usize = 200;

static NAMES: Mutex<AdmittedNames> = Mutex::new(AdmittedNames::new());

#[derive(Debug)]
struct AdmittedNames {
    admitted: BTreeSet<Box<str>>,
    has_refused: bool,
}

/// Returns whether the metrics have this name. Each name after the first 200 counts as `other`, and a warning says so once.
pub(super) fn admit(name: &str) -> bool {
    let mut names = NAMES.lock();
    let is_admitted = names.admit(name);
    let is_first_refusal = !is_admitted && !std::mem::replace(&mut names.has_refused, true);
    drop(names);
    if is_first_refusal {
        tracing::warn!(
            name,
            limit = MOST_NAMES,
            "the locks of this process have too many names for the metrics: from this one on, each new name counts as \
             `other`; a name has no values of requests in it"
        );
    }
    is_admitted
}

impl AdmittedNames {
    const fn new() -> Self {
        Self { admitted: BTreeSet::new(), has_refused: false }
    }

    fn admit(&mut self, name: &str) -> bool {
        if self.admitted.contains(name) {
            return true;
        }
        let has_room = self.admitted.len() < MOST_NAMES;
        if has_room {
            self.admitted.insert(name.into());
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_200_names_are_admitted_for_ever_and_no_other() {
        let mut names = AdmittedNames::new();
        let admitted = (0..10_000).filter(|number| names.admit(&format!("order:{number}")));
        assert_eq!(admitted.collect::<Vec<_>>(), (0..200).collect::<Vec<_>>());
        assert!(names.admit("order:0") && !names.admit("order:200"));
        assert_eq!(names.admitted.len(), MOST_NAMES);
    }
}
