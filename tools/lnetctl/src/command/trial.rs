//! Steps that a copy of the node tries before they are made, or instead: one judgement for both.

use lnet_admin::{
    ClientError, PEER_NIDS_PER_REQUEST, Reply, Request, TRIAL_STEPS_PER_REQUEST, TrialPart,
};
use lnet_config::Step;
use lnet_config::yaml::Pos;

use super::configuration;
use crate::Session;
use crate::report::{INVALID, Place};

/// Reports the first step that the node would refuse, as if it had been made, and gives the return code.
pub(super) fn run(session: &mut Session<'_>, place: Place, steps: &[Step]) -> i32 {
    let (mut number, mut rest) = (0, steps);
    while !rest.is_empty() {
        let (part, behind) = rest.split_at(fitting(rest).max(1).min(rest.len()));
        let request = Request::Trial(TrialPart {
            number,
            first: rest.len() == steps.len(),
            last: behind.is_empty(),
            steps: part.iter().cloned().map(Request::from).collect(),
        });
        rest = behind;
        let refused = match session.ask(&request) {
            Ok(Reply::Trial { number: given, refused }) => {
                number = given;
                refused
            }
            Ok(_) => return fail(session, place, &ClientError::Unexpected),
            Err(e) => return fail(session, place, &e),
        };
        let Some((index, refusal)) = refused else { continue };
        let step = usize::try_from(index).ok().and_then(|index| part.get(index));
        let Some(step) = step else { return fail(session, place, &ClientError::Unexpected) };
        let e = ClientError::Refused(refusal);
        // They follow from the whole file.
        return configuration::refused_step(session, place, (Pos::default(), step), &e);
    }
    0
}

fn fail(session: &mut Session<'_>, place: Place, e: &ClientError) -> i32 {
    session.failed(place, e, |r| r.text.clone(), Some(INVALID))
}

/// How many of the steps fit into one request.
fn fitting(steps: &[Step]) -> usize {
    let nids = |step: &Step| match step {
        Step::PeerAdd(peer) => 1 + peer.nids.len(),
        _ => 1,
    };
    let sums = steps.iter().take(TRIAL_STEPS_PER_REQUEST).scan(0, |sum, step| {
        *sum += nids(step);
        Some(*sum)
    });
    sums.take_while(|sum| *sum <= PEER_NIDS_PER_REQUEST).count()
}
