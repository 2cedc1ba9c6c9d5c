//! Leaders, and the drain of a manager.

use redlock_model::drain;
use redlock_model::lead::{Check, Claim, Rule};

#[test]
fn one_leader_works_at_a_time_and_resigned_leaders_leave_no_key() {
    let leaders = Check { freezes: false };
    leaders.holds();
    for (rule, claim) in [
        (Rule::StopAtLoss, Claim::OneWorks),
        (Rule::EvidenceFromSending, Claim::OneWorks),
        (Rule::StopBeforeRelease, Claim::OneWorks),
        (Rule::ReleaseAtResignation, Claim::NoKeyLeft),
        (Rule::CleanUpOfTheWait, Claim::NoKeyLeft),
        (Rule::DrainBeforeGrant, Claim::NoTermAfterDrain),
    ] {
        leaders.needs(rule, claim);
    }
}

#[test]
fn the_resource_accepts_no_step_of_a_former_leader_that_was_frozen() {
    let leaders = Check { freezes: true };
    leaders.holds();
    leaders.needs(Rule::FencedSteps, Claim::NoLateStep);
}

#[test]
fn a_drain_serves_holders_and_answers_all_others() {
    use drain::{Claim, Rule};

    drain::holds();
    for (rule, claim) in [
        (Rule::ServeHolders, Claim::HoldersAreServed),
        (Rule::RefuseOthers, Claim::NoNewHolder),
        (Rule::NoHandOver, Claim::NoNewHolder),
        (Rule::WakeAll, Claim::AllAreAnswered),
        (Rule::RegisterFirst, Claim::AllAreAnswered),
        (Rule::EndsWakeTheDrain, Claim::AllAreAnswered),
    ] {
        drain::needs(rule, claim);
    }
}
