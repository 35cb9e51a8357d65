//! Doing it again: from the state that a recording begins with, the same calls, and the same things
//! asked for at the same points. Whatever comes out differently is named.

use super::{Input, Mark, MarkKind, Recording, RecordingError, Stretch};
use crate::Node;

/// A recording has been replayed and did the same.
#[derive(Debug)]
pub struct Replayed {
    /// The node as it was when the recording was taken out.
    pub node: Node,
    /// Calls made.
    pub calls: usize,
    /// Outputs, events, verdicts, reports and notices compared.
    pub compared: usize,
}

/// The first thing that was not the same.
#[derive(Debug, thiserror::Error)]
pub enum Difference {
    /// The recording itself is damaged.
    #[error(transparent)]
    Unreadable(#[from] RecordingError),
    /// The node gave something else.
    #[error("call {call} ({name}): {kind} {nth} was not what was recorded: {what}")]
    Given {
        /// Number of the call, from 1.
        call: usize,
        /// Its name.
        name: String,
        /// What differs.
        kind: MarkKind,
        /// Which one of them after this call, from 1.
        nth: usize,
        /// In which way.
        what: &'static str,
    },
    /// The node ended in another state.
    #[error("after call {call} the state of the node is not what was recorded")]
    State {
        /// Number of calls made.
        call: usize,
    },
}

impl Recording {
    /// Makes all calls again.
    ///
    /// # Errors
    /// The first [`Difference`].
    pub fn replay(&self) -> Result<Replayed, Difference> {
        let (mut calls, mut compared) = (0, 0);
        let mut node = None;
        for (n, stretch) in self.stretches.iter().enumerate() {
            let mut one = read(&stretch.state)?;
            run(&mut one, stretch, calls)?;
            calls += stretch.calls.len();
            compared += stretch.marks.len();
            let next = self.stretches.get(n + 1).map_or(&self.end, |s| &s.state);
            if one.written().as_ref() != Some(next) {
                return Err(Difference::State { call: calls });
            }
            node = Some(one);
        }
        let node = node.ok_or(RecordingError::Damaged)?;
        Ok(Replayed { node, calls, compared })
    }

    /// The calls, in order.
    pub fn inputs(&self) -> impl Iterator<Item = &Input> {
        self.stretches.iter().flat_map(|s| &s.calls)
    }
}

fn read(state: &[u8]) -> Result<Node, RecordingError> {
    postcard::from_bytes(state).map_err(|_| RecordingError::Damaged)
}

/// One stretch; `before` calls were made before it.
fn run(node: &mut Node, stretch: &Stretch, before: usize) -> Result<(), Difference> {
    let mut marks = stretch.marks.iter().peekable();
    // What was asked for before the first call belongs to call 0 of the stretch.
    for made in 0..=stretch.calls.len() {
        let call = made.checked_sub(1).and_then(|n| stretch.calls.get(n));
        let mut verdict = call.and_then(|call| node.apply(call.clone()));
        let mut nth = 0;
        while let Some((_, mark)) = marks.next_if(|(at, _)| *at as usize == made) {
            nth += 1;
            let given = match mark.kind {
                MarkKind::Verdict => verdict.take(),
                MarkKind::Output => node.poll_output().as_ref().map(Mark::of_output),
                MarkKind::Event => node.poll_event().as_ref().map(Mark::of_event),
                MarkKind::Report => node.poll_report().as_ref().map(Mark::of_report),
                MarkKind::Notice => node.poll_notice().as_ref().map(Mark::of_notice),
            };
            let what = match given {
                Some(given) if given == *mark => continue,
                Some(_) => "it is another one",
                None => "there is none",
            };
            let name = call.map_or_else(String::new, name_of);
            return Err(Difference::Given {
                call: before + made,
                name,
                kind: mark.kind,
                nth,
                what,
            });
        }
    }
    match marks.next() {
        None => Ok(()),
        Some(_) => Err(RecordingError::Damaged.into()),
    }
}

/// The name of a call: the first word of what it prints.
fn name_of(call: &Input) -> String {
    let all = format!("{call:?}");
    all.split([' ', '{']).next().unwrap_or_default().to_owned()
}
