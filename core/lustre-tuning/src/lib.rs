//! The time-outs of a site as one set of values: which go together, which contradict each other, and
//! what a console log says of how long they must be. Pure: numbers and texts in, values out. Commands
//! (`ulnet tuning`), the doctor and the simulator stand on it, so that none has numbers of its own.
//!
//! ```text
//!  enqueue.rs   the formula of ldlm_enqueue_min (L-64)
//!  checks.rs    how routers are pinged, by role (PA-136 … PA-140)
//!  advise.rs    a site ─► tunables of each role, each with its reason: one table
//!  render.rs    the tunables of a role as a modprobe file, as YAML
//!  log/         console lines ─► quiesces, reconnects, evictions, the span to plan for
//! ```
//!
//! Begin with `enqueue.rs`. A value that contradicts another one is a [`Contradiction`], which names
//! the rule.

mod advise;
mod checks;
mod enqueue;
pub mod log;
mod render;
mod rule;

pub use advise::{Advice, Load, NetKind, Role, Site, VERY_LARGE, advise};
pub use checks::Checks;
pub use enqueue::{AT_MAX, AT_MIN, EnqueueMin, LONGEST, callback_deadline};
pub use render::{modprobe, yaml};
pub use rule::{Contradiction, Rule};
