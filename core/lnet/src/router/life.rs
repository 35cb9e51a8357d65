//! What is believed of a gateway as a node (behaviour.md 7.3), and what changes that belief: pure.
//!
//! ```text
//!            answered, up, traffic*                 answered, up, traffic
//!   Assumed ───────────────────────► Alive ◄──────────────────────────────── Dead
//!   Unproven ──────────────────────►   │                                      ▲
//!      ╰───────────── failed, down ────┴──────── failed, down ────────────────╯
//! ```
//!
//! (*) Traffic proves nothing about a gateway that is believed alive anyway: `Assumed` stays.

/// What is believed of a gateway as a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Life {
    /// Never checked, believed alive.
    #[default]
    Assumed,
    /// Never checked, not to be used before it was (`check_routers_before_use`).
    Unproven,
    /// It answered the last check, or was heard from since.
    Alive,
    /// It did not.
    Dead,
}

/// What may change that belief.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Sign {
    /// A discovery of it succeeded (R-34).
    Answered,
    /// A discovery of it failed (R-34).
    Failed,
    /// A forwarded message came through it (R-36).
    Traffic,
    /// Reported up (R-62).
    Up,
    /// Reported down (R-62).
    Down,
}

impl Life {
    /// Whether routes through it may be used at all (R-30.1).
    pub(crate) const fn is_alive(self) -> bool {
        match self {
            Self::Assumed | Self::Alive => true,
            Self::Unproven | Self::Dead => false,
        }
    }

    /// The belief after a sign.
    pub(crate) const fn after(self, sign: Sign) -> Self {
        match (self, sign) {
            // It is there, whatever was believed.
            (
                Self::Assumed | Self::Unproven | Self::Alive | Self::Dead,
                Sign::Answered | Sign::Up,
            ) => Self::Alive,
            // It is not there.
            (
                Self::Assumed | Self::Unproven | Self::Alive | Self::Dead,
                Sign::Failed | Sign::Down,
            ) => Self::Dead,
            // Believed alive without proof; a first check is still to come.
            (Self::Assumed, Sign::Traffic) => Self::Assumed,
            // A node that forwards is alive.
            (Self::Unproven | Self::Alive | Self::Dead, Sign::Traffic) => Self::Alive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Life::{Alive, Assumed, Dead, Unproven};

    #[test]
    fn each_sign_moves_each_belief_as_the_table_says() {
        // Columns: Answered, Failed, Traffic, Up, Down.
        let table = [
            (Assumed, [Alive, Dead, Assumed, Alive, Dead]),
            (Unproven, [Alive, Dead, Alive, Alive, Dead]),
            (Alive, [Alive, Dead, Alive, Alive, Dead]),
            (Dead, [Alive, Dead, Alive, Alive, Dead]),
        ];
        let signs = [Sign::Answered, Sign::Failed, Sign::Traffic, Sign::Up, Sign::Down];
        for (from, to) in table {
            for (sign, expected) in signs.into_iter().zip(to) {
                assert_eq!(from.after(sign), expected, "{from:?} after {sign:?}");
            }
        }
    }

    #[test]
    fn only_an_unproven_or_dead_gateway_is_not_used() {
        let usable = [Assumed, Unproven, Alive, Dead].map(Life::is_alive);
        assert_eq!(usable, [true, false, true, false]);
    }
}
