//! What is wrong with a scenario, and where.

use thiserror::Error;

/// A text that is no scenario. Prints as `file:line:column: what is wrong: expected …`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{file}:{line}:{column}: {what}")]
pub struct ScenarioError {
    /// The file, as the caller named it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// The part, the value, and what was expected.
    pub what: String,
}
