//! The tests of the contract of a node, over a node that is written against the public trait alone. Its stores are in
//! `src/test_store.rs`.

use redlock_actor_node::{ActorNode, UnorderedNode};

async fn actor() -> ActorNode {
    redlock_logs::watch();
    ActorNode::start("actor")
}

async fn unordered() -> UnorderedNode {
    UnorderedNode::new(&actor().await)
}

async fn actors() -> Vec<ActorNode> {
    redlock_logs::watch();
    (1..=3).map(|number| ActorNode::start(&format!("actor-{number}"))).collect()
}

async fn unordered_ones() -> Vec<UnorderedNode> {
    actors().await.iter().map(UnorderedNode::new).collect()
}

mod one {
    redlock_core::node_tests!(super::actor);
}

mod one_without_order {
    redlock_core::node_tests!(super::unordered);
}

mod three {
    redlock_core::node_tests!(several: super::actors);
}

mod three_without_order {
    redlock_core::node_tests!(several: super::unordered_ones);
}
