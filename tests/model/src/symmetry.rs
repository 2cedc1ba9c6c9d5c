//! Which states are the same but for the names of nodes and clients.
//!
//! The rules treat all nodes alike and all clients alike. A state in which node 1 has a key and
//! node 2 has none needs no look if the one with 1 and 2 exchanged had one: that saves the checker
//! up to eleven of twelve states. It compares states by their hash, so the hash is taken of one
//! representative of all that differ in names alone.

use std::hash::{Hash, Hasher};

use crate::client::Client;
use crate::state::{Site, State};

impl<const NODES: usize, const CLIENTS: usize> Hash for State<NODES, CLIENTS> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let (clients, sites) = self.representative();
        clients.hash(hasher);
        sites.hash(hasher);
        self.handed_out.hash(hasher);
    }
}

impl<const NODES: usize, const CLIENTS: usize> State<NODES, CLIENTS> {
    /// The clients in order, and of all orders of clients that are equal the one that makes the
    /// least of the nodes, in order too.
    fn representative(&self) -> ([Client; CLIENTS], [Site<CLIENTS>; NODES]) {
        let mut order = std::array::from_fn(|client| client);
        let mut least = None;
        loop {
            let clients = order.map(|client| self.clients[client]);
            if clients.is_sorted() {
                let sites = self.sites_with(order);
                if least.as_ref().is_none_or(|(_, found)| sites < *found) {
                    least = Some((clients, sites));
                }
            }
            if !advance(&mut order) {
                return least.unwrap_or((self.clients, self.sites));
            }
        }
    }

    /// The nodes in order, when the clients are called by their place in `order`.
    fn sites_with(&self, order: [usize; CLIENTS]) -> [Site<CLIENTS>; NODES] {
        let mut name = [0; CLIENTS];
        for (new, old) in (0..).zip(order) {
            name[old] = new;
        }
        let mut sites = self.sites.map(|site| {
            let mut node = site.node;
            if let Some(key) = &mut node.key {
                key.owner.client = name[usize::from(key.owner.client)];
            }
            Site { node, connections: order.map(|client| site.connections[client]) }
        });
        sites.sort_unstable();
        sites
    }
}

/// Makes the next order of the same values, in the order of the dictionary; `false` after the last.
fn advance(order: &mut [usize]) -> bool {
    let Some(pivot) = order.windows(2).rposition(|pair| pair[0] < pair[1]) else { return false };
    let greater = order.iter().rposition(|value| *value > order[pivot]).unwrap_or(pivot);
    order.swap(pivot, greater);
    order[pivot + 1..].reverse();
    true
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

    use super::*;
    use crate::network::{Attempt, Message, Request};
    use crate::rules::Rules;
    use crate::world::World;

    /// A client has asked, and its SET has arrived at these nodes.
    fn asked(client: usize, nodes: &[usize]) -> u64 {
        let mut state = State::<3, 3>::new([0; 3]);
        state.ask(client);
        for &node in nodes {
            let (attempt, request) = (Attempt::Present, Request::Set);
            let message = Message { client, node, attempt, request };
            state.arrive(message, World::CALM, Rules::KEPT);
        }
        BuildHasherDefault::<DefaultHasher>::default().hash_one(state)
    }

    #[test]
    fn names_make_no_difference() {
        assert_eq!(asked(0, &[0]), asked(2, &[1]));
        assert_eq!(asked(0, &[0, 1]), asked(1, &[2, 0]));
    }

    #[test]
    fn all_else_does() {
        assert_ne!(asked(0, &[]), asked(0, &[0]));
        assert_ne!(asked(0, &[0]), asked(0, &[0, 1]));
    }
}
