//! Which node has which server.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Maps voters to servers, so that no server votes twice, even if it returns later under another name.
#[derive(Debug, Default)]
pub(crate) struct ServerRegistry {
    servers: Mutex<Vec<RegisteredServer>>,
}

#[derive(Debug)]
struct RegisteredServer {
    server: Weak<()>,
    /// The name of the node that votes. The masters of a cluster share it, and no other nodes do.
    voter: Arc<str>,
    run_id: String,
}

impl ServerRegistry {
    /// Records the identity of a server, or returns the name of the other node that has this server.
    pub(crate) fn register(
        &self,
        server: &Arc<()>,
        voter: &Arc<str>,
        run_id: &str,
    ) -> Option<Arc<str>> {
        let server = Arc::downgrade(server);
        let mut servers = self.servers.lock();
        servers.retain(|known| known.server.strong_count() > 0 && !known.server.ptr_eq(&server));
        let same = servers
            .iter()
            .find(|known| known.run_id == run_id && !Arc::ptr_eq(&known.voter, voter));
        if let Some(same) = same {
            return Some(Arc::clone(&same.voter));
        }
        let (voter, run_id) = (Arc::clone(voter), run_id.to_owned());
        servers.push(RegisteredServer { server, voter, run_id });
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that is listed twice would vote twice. The names of two nodes may be the same.
    #[test]
    fn only_the_masters_of_one_cluster_may_be_the_same_server() {
        let registry = ServerRegistry::default();
        let [one, other] = [(); 2].map(|()| Arc::<str>::from("a:1"));
        let [first, second, third] = [(); 3].map(|()| Arc::default());
        assert_eq!(registry.register(&first, &one, "run"), None);
        assert_eq!(registry.register(&second, &one, "run"), None);
        assert_eq!(registry.register(&third, &other, "run"), Some(Arc::clone(&one)));
        assert_eq!(registry.register(&third, &other, "another"), None);
        drop((first, second));
        assert_eq!(registry.register(&third, &other, "run"), None, "the servers are gone");
    }
}
