//! The tunables by name: one table, which parameter files, commands and documents read. The names are
//! those of parameters of kernel nodes, where these have one.

use core::time::Duration;

use lnet_types::Errno;

use crate::tunables::Tunables;

/// A tunable that is a whole number.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Its unit, empty for a plain number.
    pub unit: &'static str,
    /// Smallest value.
    pub min: u32,
    /// Largest value.
    pub max: u32,
    /// What it is.
    pub help: &'static str,
    get: fn(&Tunables) -> u32,
    set: fn(&mut Tunables, u32),
}

/// Why a tunable keeps its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// It would be out of its bounds.
    #[error("{name} {value}: expected {min} to {max}")]
    Bounds {
        /// Name of the tunable.
        name: &'static str,
        /// What was to be set.
        value: u32,
        /// Smallest value.
        min: u32,
        /// Largest value.
        max: u32,
    },
    /// The two bounds of estimates would change places.
    #[error("{name} {value}: {other} is {is}, and at_min must not be above at_max")]
    Crossed {
        /// Name of the tunable.
        name: &'static str,
        /// What was to be set.
        value: u32,
        /// Name of the other bound.
        other: &'static str,
        /// Value of the other bound.
        is: u32,
    },
}

impl SettingError {
    /// The error number of kernel nodes.
    pub const fn errno(&self) -> Errno {
        Errno::EINVAL
    }
}

/// A row of a time in whole seconds.
macro_rules! seconds {
    ($name:literal, $field:ident, $min:literal, $help:literal) => {
        Setting {
            name: $name,
            unit: "s",
            min: $min,
            max: MOST,
            help: $help,
            get: |t| whole(t.$field),
            set: |t, n| t.$field = Duration::from_secs(n.into()),
        }
    };
}

/// A row of a number.
macro_rules! number {
    ($name:literal, $field:ident, $min:literal, $max:literal, $help:literal) => {
        Setting {
            name: $name,
            unit: "",
            min: $min,
            max: $max,
            help: $help,
            get: |t| t.$field,
            set: |t, n| t.$field = n,
        }
    };
}

/// The longest time that can be set: a month.
const MOST: u32 = 2_592_000;

/// Whole seconds, as kernel nodes have them; a fraction counts as a whole one.
fn whole(time: Duration) -> u32 {
    crate::estimate::wire_secs(time)
}

impl Setting {
    /// What it is set to.
    pub fn value(&self, tunables: &Tunables) -> u32 {
        (self.get)(tunables)
    }
}

impl Tunables {
    /// All that can be set by name.
    pub const TABLE: &'static [Setting] = &[
        seconds!("timeout", obd_timeout, 1, "base of all times that are not adaptive"),
        seconds!(
            "ping_interval",
            ping_interval,
            1,
            "an import without traffic pings after so long"
        ),
        seconds!("at_min", at_min, 0, "the least that an estimate says"),
        seconds!("at_max", at_max, 0, "the most that an estimate says; 0: times are not adaptive"),
        seconds!("at_history", at_history, 1, "how long estimates remember a peak"),
        seconds!(
            "at_early_margin",
            at_early_margin,
            1,
            "an early reply leaves so long before the deadline"
        ),
        seconds!("at_extra", at_extra, 1, "an early reply asks for so much more"),
        number!(
            "at_unhealthy_factor",
            at_unhealthy_factor,
            1,
            1000,
            "times at_max without a request taken: unhealthy"
        ),
        seconds!(
            "bulk_timeout",
            bulk_timeout,
            1,
            "the most that the bulk data of one request take"
        ),
        seconds!(
            "ldlm_enqueue_min",
            ldlm_enqueue_min,
            1,
            "the least time for what a server asks of its clients"
        ),
        number!(
            "evict_factor",
            evict_factor,
            5,
            1000,
            "tenths of timeout of silence until a client is evicted"
        ),
    ];

    /// The row of a tunable.
    pub fn setting(name: &str) -> Option<&'static Setting> {
        Self::TABLE.iter().find(|row| row.name == name)
    }

    /// These with another value for one tunable.
    ///
    /// # Errors
    /// The value is out of its bounds, or at_min would be above at_max.
    pub fn with(&self, row: &Setting, value: u32) -> Result<Self, SettingError> {
        self.with_all(&[(row, value)])
    }

    /// These with other values for some tunables, set together: their order does not matter.
    ///
    /// # Errors
    /// As of [`Tunables::with`].
    pub fn with_all(&self, settings: &[(&Setting, u32)]) -> Result<Self, SettingError> {
        let mut next = self.clone();
        for &(&Setting { name, min, max, set, .. }, value) in settings {
            if !(min..=max).contains(&value) {
                return Err(SettingError::Bounds { name, value, min, max });
            }
            set(&mut next, value);
        }
        if next.at_min > next.at_max && !next.at_max.is_zero() {
            let at_min = settings.iter().any(|(row, _)| row.name == "at_min");
            let (set, fixed) = if at_min {
                (("at_min", next.at_min), ("at_max", next.at_max))
            } else {
                (("at_max", next.at_max), ("at_min", next.at_min))
            };
            let ((name, value), (other, is)) = (set, fixed);
            return Err(SettingError::Crossed { name, value: whole(value), other, is: whole(is) });
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tunable_of_the_table_is_set_for_itself_and_refused_beyond_its_bounds() {
        let defaults = Tunables::default();
        for row in Tunables::TABLE {
            let other = if row.value(&defaults) == row.min { row.min + 1 } else { row.min };
            let set = defaults.with(row, other).unwrap();
            for each in Tunables::TABLE {
                let expected = if each.name == row.name { other } else { each.value(&defaults) };
                assert_eq!(each.value(&set), expected, "{} after {}", each.name, row.name);
            }
            let &Setting { name, min, max, .. } = row;
            let beyond = defaults.with(row, max + 1).unwrap_err();
            assert_eq!(beyond, SettingError::Bounds { name, value: max + 1, min, max });
            assert_eq!(Tunables::setting(name).unwrap().name, name);
        }
        assert!(Tunables::setting("at_most").is_none());
    }

    #[test]
    fn at_min_stays_below_at_max_unless_that_is_off() {
        let defaults = Tunables::default();
        let row = |name| Tunables::setting(name).unwrap();
        let e = defaults.with(row("at_min"), 601).unwrap_err();
        assert_eq!(e.to_string(), "at_min 601: at_max is 600, and at_min must not be above at_max");
        let e = defaults.with(row("at_max"), 4).unwrap_err();
        assert_eq!(e.to_string(), "at_max 4: at_min is 5, and at_min must not be above at_max");
        assert!(defaults.with(row("at_max"), 0).is_ok());
        // Together they may pass each other's old value, in either order.
        let both = [(row("at_max"), 4), (row("at_min"), 3)];
        let swapped = [both[1], both[0]];
        assert_eq!(defaults.with_all(&both).unwrap(), defaults.with_all(&swapped).unwrap());
        let e = defaults.with_all(&[(row("at_max"), 4), (row("at_min"), 9)]).unwrap_err();
        assert_eq!(e.to_string(), "at_min 9: at_max is 4, and at_min must not be above at_max");
    }
}
