//! Rules that values of a site must keep, and the error that names the rule.

use serde::Serialize;

/// A rule, by the statement that it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// A value is within the bounds of its tunable (P-3).
    Bounds,
    /// at_min is not above at_max (P-89).
    AtBounds,
    /// No estimate is above at_max (P-90).
    EstimateMax,
    /// ldlm_enqueue_min covers a lost message, a reconnect and a resend (L-64, L-67).
    EnqueueCovers,
    /// A router expects pings no more often than any node sends them (PA-140).
    RouterWaits,
    /// router_ping_timeout is not below the LND timeout (PA-135).
    PingWaits,
}

impl Rule {
    /// The rule in words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Bounds => "a value must be within the bounds of its tunable",
            Self::AtBounds => "at_min must not be above at_max",
            Self::EstimateMax => "an estimate is never above at_max",
            Self::EnqueueCovers => {
                "ldlm_enqueue_min must cover a lost message, a reconnect and a resend"
            }
            Self::RouterWaits => {
                "intervals and ping timeout of a router must be the largest of all nodes that ping it"
            }
            Self::PingWaits => "router_ping_timeout must not be below the LND timeout",
        }
    }
}

/// Values that do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {}", rule.text())]
pub struct Contradiction {
    /// The rule that they break.
    pub rule: Rule,
    /// The values: field, value, constraint.
    pub what: String,
}

impl Contradiction {
    pub(crate) fn new(rule: Rule, what: impl Into<String>) -> Self {
        Self { rule, what: what.into() }
    }
}

/// A value within its bounds.
pub(crate) fn within(name: &str, value: u32, least: u32, most: u32) -> Result<u32, Contradiction> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    let what = format!("{name} {value}: expected {least} to {most}");
    Err(Contradiction::new(Rule::Bounds, what))
}
