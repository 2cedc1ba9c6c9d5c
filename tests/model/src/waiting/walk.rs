//! One walk through a world, by choices that a caller makes: for worlds whose states are too many to visit all.

use stateright::Model;

use super::claim::Claim;
use super::world::{Waiting, World};

/// Walks through a world: each choice picks one of the possible steps. Returns the number of steps.
///
/// # Errors
///
/// Returns the name of a broken claim, and the steps that break it.
pub fn walk(world: World, choices: &[u16]) -> Result<usize, (&'static str, Vec<String>)> {
    let model = Waiting { world, claim: None };
    let claims = Claim::ALL.map(|claim| (claim.name(), claim.property().condition));
    let mut state = model.init_states().remove(0);
    let (mut steps, mut actions) = (Vec::new(), Vec::new());
    for choice in choices {
        actions.clear();
        model.actions(&state, &mut actions);
        // A step that changes nothing is none, as for the checker.
        let next = |action| model.next_state(&state, action).map(|next| (action, next));
        let mut possible: Vec<_> = actions.drain(..).filter_map(next).collect();
        if possible.is_empty() {
            break;
        }
        let (action, next) = possible.swap_remove(usize::from(*choice) % possible.len());
        steps.push(action.to_string());
        state = next;
        if let Some((claim, _)) = claims.iter().find(|(_, holds)| !holds(&model, &state)) {
            return Err((claim, steps));
        }
    }
    Ok(steps.len())
}
