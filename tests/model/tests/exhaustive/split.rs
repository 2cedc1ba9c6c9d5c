//! Callers that ask at the same moment, without a waiting time.

use redlock_model::checks_large_worlds;
use redlock_model::split::{Check, Rule};

#[test]
fn one_of_the_callers_that_ask_at_the_same_moment_gets_the_lock() {
    let two: Check<2, 2> = Check { down: 0, attempts: 3 };
    two.holds();
    two.needs(Rule::Repetition);
    two.needs(Rule::CleanUpFirst);
    let three: Check<3, 3> = Check { down: 0, attempts: 2 };
    three.needs(Rule::Repetition);
    Check::<3, 3> { attempts: 3, ..three }.needs(Rule::LeftIsNobody);
    if checks_large_worlds() {
        three.holds();
    }
}

/// Each caller gets one of two nodes, and the third may have the same holder as the other one.
#[test]
fn one_of_the_callers_gets_the_lock_while_a_node_is_down() {
    let three: Check<3, 2> = Check { down: 1, attempts: 3 };
    three.holds();
    three.needs(Rule::DoubtIsRepeated);
}
