//! Makes states equal for the checker if they differ only in the names of nodes and clients.
//!
//! The rules treat all nodes alike and all clients alike. If the checker has visited the state in which
//! node 1 has a key and node 2 has none, it need not visit the state with nodes 1 and 2 exchanged. That
//! saves up to eleven of twelve states. The checker compares states by their hashes, so all states that
//! differ only in names have the hash of one representative.

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
    /// Returns the clients and the nodes, both sorted. Equal clients can be sorted in several ways: the
    /// representative is the one with the smallest list of nodes.
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

    /// Returns the nodes, sorted, with each client named by its place in `order`.
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
            let connections = order.map(|client| site.connections[client]);
            Site { node, connections, readers: order.map(|client| site.readers[client]) }
        });
        sites.sort_unstable();
        sites
    }
}

/// Rearranges `order` into its lexicographically next permutation; returns `false` after the last one.
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
    use crate::client::Hold;
    use crate::network::{Attempt, Message, Request};
    use crate::rules::Rules;
    use crate::world::World;

    /// Returns the hash of the state after a client has asked and its SET has arrived at `nodes`.
    fn asked(client: usize, nodes: &[usize]) -> u64 {
        let mut state = State::<3, 3>::new([0; 3]);
        state.ask(client, Hold::Exclusive);
        for &node in nodes {
            let (attempt, request) = (Attempt::Present, Request::Set);
            let message = Message { client, node, attempt, request };
            state.arrive(message, World::CALM, Rules::KEPT);
        }
        BuildHasherDefault::<DefaultHasher>::default().hash_one(state)
    }

    #[test]
    fn states_that_differ_only_in_names_have_one_hash() {
        assert_eq!(asked(0, &[0]), asked(2, &[1]));
        assert_eq!(asked(0, &[0, 1]), asked(1, &[2, 0]));
    }

    #[test]
    fn other_states_have_different_hashes() {
        assert_ne!(asked(0, &[]), asked(0, &[0]));
        assert_ne!(asked(0, &[0]), asked(0, &[0, 1]));
    }
}
