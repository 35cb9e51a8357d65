//! Doing it again: from the state that a recording begins with, the same calls, and the same things
//! asked for at the same points. Whatever comes out differently is named.

use core::fmt::Debug;

use super::given::{Given, Mark, MarkKind, Sums};
use super::{Input, Recording, RecordingError, Stretch};
use crate::check::Invariants;
use crate::{Event, Node, Output, Verdict};

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
    /// The node did not give something, or another one.
    #[error("call {call} ({name}): {kind} {nth} was not what was recorded: {what}")]
    One {
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
    /// The node gave as many outputs and events, and other ones.
    #[error("call {call} ({name}): what it gave was not what was recorded; this time: {now}")]
    Given {
        /// Number of the call, from 1.
        call: usize,
        /// Its name.
        name: String,
        /// The verdict, outputs and events of the replay.
        now: String,
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
            compared += stretch.things();
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
    let mut node: Node = postcard::from_bytes(state).map_err(|_| RecordingError::Damaged)?;
    node.invariants = Invariants::of_file();
    Ok(node)
}

impl Stretch {
    /// Verdicts, outputs, events, reports and notices.
    fn things(&self) -> usize {
        let verdicts = self.calls.iter().filter(|call| matches!(call, Input::RxHeader { .. }));
        let count = |given: &Given| match given {
            Given::Usual { outputs, events, .. } => usize::from(*outputs) + usize::from(*events),
            Given::One(_) => 1,
        };
        verdicts.count() + self.given.iter().map(|(_, given)| count(given)).sum::<usize>()
    }
}

/// One stretch; `before` calls were made before it.
fn run(node: &mut Node, stretch: &Stretch, before: usize) -> Result<(), Difference> {
    let mut given = stretch.given.iter().peekable();
    let mut sums = Sums::default();
    // What was asked for before the first call belongs to call 0 of the stretch.
    for made in 0..=stretch.calls.len() {
        let call = made.checked_sub(1).and_then(|n| stretch.calls.get(n));
        let mut this = Call { number: before + made, call, ..Call::default() };
        this.verdict = call.and_then(|call| node.apply(call.clone()));
        if let Some(verdict) = &this.verdict {
            sums.verdict(verdict);
        }
        while let Some((_, given)) = given.next_if(|(at, _)| *at as usize == made) {
            match given {
                Given::One(mark) => this.gives_one(node, *mark)?,
                Given::Usual { outputs, events, sum } => {
                    for _ in 0..*outputs {
                        this.gives_output(node, &mut sums)?;
                    }
                    for _ in 0..*events {
                        this.gives_event(node, &mut sums)?;
                    }
                    if sums.all() != *sum {
                        return Err(this.gave());
                    }
                }
            }
        }
    }
    match given.next() {
        None => Ok(()),
        Some(_) => Err(RecordingError::Damaged.into()),
    }
}

/// A call that is made again, and what it has given this time.
#[derive(Default)]
struct Call<'a> {
    number: usize,
    call: Option<&'a Input>,
    verdict: Option<Verdict>,
    outputs: Vec<Output>,
    events: Vec<Event>,
    ones: usize,
}

/// So much of what a call gave is shown.
const SHOWN_MAX: usize = 2000;

impl Call<'_> {
    fn gives_output(&mut self, node: &mut Node, sums: &mut Sums) -> Result<(), Difference> {
        let nth = self.outputs.len() + 1;
        let output = node.poll_output().ok_or_else(|| self.lacks(MarkKind::Output, nth))?;
        sums.output(&output);
        self.outputs.push(output);
        Ok(())
    }

    fn gives_event(&mut self, node: &mut Node, sums: &mut Sums) -> Result<(), Difference> {
        let nth = self.events.len() + 1;
        let event = node.poll_event().ok_or_else(|| self.lacks(MarkKind::Event, nth))?;
        sums.event(&event);
        self.events.push(event);
        Ok(())
    }

    fn gives_one(&mut self, node: &mut Node, recorded: Mark) -> Result<(), Difference> {
        self.ones += 1;
        let mark = match recorded.kind {
            MarkKind::Report => node.poll_report().as_ref().map(Mark::of_report),
            _ => node.poll_notice().as_ref().map(Mark::of_notice),
        };
        match mark {
            Some(mark) if mark == recorded => Ok(()),
            Some(_) => Err(self.differs(recorded.kind, self.ones, "it is another one")),
            None => Err(self.lacks(recorded.kind, self.ones)),
        }
    }

    fn lacks(&self, kind: MarkKind, nth: usize) -> Difference {
        self.differs(kind, nth, "there is none")
    }

    fn differs(&self, kind: MarkKind, nth: usize, what: &'static str) -> Difference {
        Difference::One { call: self.number, name: self.name(), kind, nth, what }
    }

    fn gave(&self) -> Difference {
        let verdict = self.verdict.iter().map(|verdict| verdict as &dyn Debug);
        let outputs = self.outputs.iter().map(|output| output as &dyn Debug);
        let events = self.events.iter().map(|event| event as &dyn Debug);
        let all: Vec<_> = verdict.chain(outputs).chain(events).collect();
        let now = format!("{all:?}").chars().take(SHOWN_MAX).collect();
        Difference::Given { call: self.number, name: self.name(), now }
    }

    /// The first word of what the call prints.
    fn name(&self) -> String {
        let all = self.call.map_or_else(String::new, |call| format!("{call:?}"));
        all.split([' ', '{']).next().unwrap_or_default().to_owned()
    }
}
