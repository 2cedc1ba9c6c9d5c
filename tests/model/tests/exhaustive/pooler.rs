//! A failover behind a pooler that keeps the connections.

use redlock_model::pooler::{self, Rule};

#[test]
fn behind_a_pooler_that_hides_a_failover_one_process_relies_on_the_lock() {
    pooler::holds();
    for rule in [Rule::CompareSessions, Rule::DistinctNumbers, Rule::MeasureEachConnection] {
        pooler::needs(rule);
    }
}
