//! The swarm: worlds, programs and faults drawn at random from a seed, each played under all
//! checkers and under a reference model ([`Model`]) without paths, credits or retries.
//!
//! A round has two phases. *Safety*: faults rage, and nothing wrong may happen. *Liveness*: all
//! faults are over and the world is left alone; what is begun then succeeds at once, credits come
//! home, all are healthy and record their peers as they are.
//!
//! What a round plays is a scenario's text (`draw.rs`; `rpc.rs` draws worlds of the request layer,
//! `locks.rs` worlds of locks, `files.rs` worlds of files, with what these have in common in `scene.rs`;
//! their models are in `../rpc/`), so it can be read, changed and played with the other tools; `model.rs` says what a program may see. The n-th seed of a swarm depends on its
//! first seed and n alone ([`seed_of`]): shards split the same rounds among them.

mod draw;
mod files;
mod locks;
mod model;
mod rpc;
mod scene;

use std::sync::Arc;

use lnet_scenario::{Scenario, ScenarioError, parse};
use lnet_types::Prng;

use crate::check::{Bounds, all_checkers};
use crate::play::{Played, play_under};
use crate::trace::Detail;

pub use model::Model;

/// What a swarm plays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Floor {
    /// LNet, and programs on it.
    #[default]
    Lnet,
    /// The same on RDMA networks alone, with what befalls adapters.
    Rdma,
    /// The request layer: targets and clients.
    Rpc,
    /// Locks: lock targets, and programs that take locks.
    Locks,
    /// Files: a file system, and programs that visit it.
    Files,
}

impl Floor {
    /// All of them, by their words.
    pub const ALL: [(&str, Self); 5] = [
        ("lnet", Self::Lnet),
        ("rdma", Self::Rdma),
        ("rpc", Self::Rpc),
        ("locks", Self::Locks),
        ("files", Self::Files),
    ];

    /// The word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lnet => "lnet",
            Self::Rdma => "rdma",
            Self::Rpc => "rpc",
            Self::Locks => "locks",
            Self::Files => "files",
        }
    }
}

/// One round: a world and what befalls it.
#[derive(Clone, Debug)]
pub struct Round {
    /// What it was drawn from.
    pub seed: u64,
    /// The scenario as a text.
    pub text: String,
    /// The same, read.
    pub scenario: Arc<Scenario>,
}

impl Round {
    /// Draws the round of a seed.
    ///
    /// # Errors
    /// What was drawn is no scenario: a defect of the drawing, which tests rule out for many seeds.
    pub fn draw(seed: u64) -> Result<Self, ScenarioError> {
        Self::draw_on(Floor::Lnet, seed)
    }

    /// Draws the round of a seed on a floor.
    ///
    /// # Errors
    /// As [`Round::draw`].
    pub fn draw_on(floor: Floor, seed: u64) -> Result<Self, ScenarioError> {
        let text = match floor {
            Floor::Lnet => draw::text(seed, false),
            Floor::Rdma => draw::text(seed, true),
            Floor::Rpc => rpc::text(seed),
            Floor::Locks => locks::text(seed),
            Floor::Files => files::text(seed),
        };
        let scenario = Arc::new(parse(&format!("swarm-{seed}.toml"), &text)?);
        Ok(Self { seed, text, scenario })
    }

    /// Plays it at its fidelity, under all checkers and the model.
    pub fn play(&self, detail: Detail) -> Played {
        // Every round ends in peace, and there was time.
        let peace = !model::jams(&self.scenario);
        let (must_be_well, must_be_home) = (peace, peace);
        let bounds = Bounds { must_be_well, must_be_home, ..Bounds::for_scenario(&self.scenario) };
        let mut judges = all_checkers(&bounds);
        judges.push(Box::new(Model::new(&self.scenario)));
        play_under(self.scenario.clone(), None, detail, judges)
    }
}

/// One round in so many has nodes that behave in one or two ways as another profile's.
const FLIPS_ONE_IN: u64 = 4;
/// The last byte of the seed of such a round.
const FLIPS: u64 = 0xFF;

/// The seed of round number `round` of the swarm that began with `first`; 63 bits, as scenarios
/// have them.
pub fn seed_of(first: u64, round: u64) -> u64 {
    let seed = Prng::new(first ^ round.wrapping_mul(0xA076_1D64_78BD_642F)).next_u64() >> 1;
    let flips = seed & 0xFF == FLIPS;
    match round % FLIPS_ONE_IN {
        0 => seed | FLIPS,
        _ if flips => seed ^ 1,
        _ => seed,
    }
}
