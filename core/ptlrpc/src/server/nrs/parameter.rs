//! The parameters of policies, as they are written and read (P-120): `nrs_policies`,
//! `nrs_crrn_quantum`, `nrs_delay_min`, `nrs_delay_max`, `nrs_delay_pct`.

use lnet_types::{Errno, Prng};

use super::{Head, Place, Policy, PolicyKind};
use crate::server::heads::Heads;
use crate::table::ServedId;

/// Why a parameter keeps its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NrsError {
    /// There is no such service.
    #[error("no such service")]
    NoService,
    /// The name is none of a parameter.
    #[error(
        "parameter {0}: expected nrs_policies, nrs_crrn_quantum, nrs_delay_min, nrs_delay_max or \
         nrs_delay_pct"
    )]
    Unknown(String),
    /// The value of `nrs_policies` can't be read.
    #[error("nrs_policies {0:?}: expected fifo, crrn or delay, then nothing, reg or hp")]
    Policy(String),
    /// The value of a number can't be read, or is out of its bounds.
    #[error(
        "{parameter} {value:?}: expected a whole number from {least} to {most}, or \
         reg_{short}:NUMBER, hp_{short}:NUMBER or both"
    )]
    Value {
        /// Name of the parameter.
        parameter: &'static str,
        /// Its name behind `reg_` and `hp_`.
        short: &'static str,
        /// What was written.
        value: String,
        /// Lower bound.
        least: u16,
        /// Upper bound.
        most: u16,
    },
    /// The two ends of the range of delays would change places.
    #[error(
        "{parameter} {value}: {other} is {is}, and nrs_delay_min must not be above nrs_delay_max"
    )]
    Crossed {
        /// Name of the parameter.
        parameter: &'static str,
        /// What was written.
        value: u16,
        /// Name of the other end.
        other: &'static str,
        /// Value of the other end.
        is: u16,
    },
    /// The service has one head only.
    #[error("{parameter} {value:?}: the service has no high-priority head")]
    NoHead {
        /// Name of the parameter.
        parameter: &'static str,
        /// What was written.
        value: String,
    },
    /// The policy that the parameter belongs to does not run.
    #[error("{parameter}: policy {} must be started first, on this head", policy.name())]
    NotStarted {
        /// Name of the parameter.
        parameter: &'static str,
        /// Its policy.
        policy: PolicyKind,
    },
}

impl NrsError {
    /// The error number that stands for it (P-120).
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Unknown(_) => Errno::ENOENT,
            Self::Policy(_) | Self::Value { .. } | Self::Crossed { .. } => Errno::EINVAL,
            Self::NoService | Self::NoHead { .. } | Self::NotStarted { .. } => Errno::ENODEV,
        }
    }
}

/// One of the heads of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeadName {
    Regular,
    High,
}

/// A parameter that is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Quantum,
    Min,
    Max,
    Pct,
}

impl Number {
    const ALL: [Self; 4] = [Self::Quantum, Self::Min, Self::Max, Self::Pct];

    /// Name, name behind `reg_` and `hp_`, bounds, policy.
    const fn row(self) -> (&'static str, &'static str, u16, u16, PolicyKind) {
        match self {
            Self::Quantum => ("nrs_crrn_quantum", "quantum", 1, u16::MAX, PolicyKind::Crrn),
            Self::Min => ("nrs_delay_min", "delay_min", 0, u16::MAX, PolicyKind::Delay),
            Self::Max => ("nrs_delay_max", "delay_max", 0, u16::MAX, PolicyKind::Delay),
            Self::Pct => ("nrs_delay_pct", "delay_pct", 0, 100, PolicyKind::Delay),
        }
    }

    /// The value for each head that is named; one number is for both.
    fn parse(self, value: &str) -> Option<Vec<(Option<HeadName>, u16)>> {
        let (_, short, least, most, _) = self.row();
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            let number = if digits { text.parse().ok()? } else { return None };
            (least..=most).contains(&number).then_some(number)
        };
        let mut values: Vec<(Option<HeadName>, u16)> = Vec::new();
        for word in value.split_ascii_whitespace() {
            let (head, text) = match word.split_once(':') {
                None => (None, word),
                Some((name, text)) => {
                    let head = match name.split_once('_')? {
                        ("reg", rest) if rest == short => HeadName::Regular,
                        ("hp", rest) if rest == short => HeadName::High,
                        _ => return None,
                    };
                    (Some(head), text)
                }
            };
            // Each head once, and a number for both stands alone.
            if values
                .iter()
                .any(|(before, _)| *before == head || before.is_none() || head.is_none())
            {
                return None;
            }
            values.push((head, number(text)?));
        }
        (!values.is_empty()).then_some(values)
    }
}

impl Head {
    fn number(&self, which: Number) -> Option<u16> {
        match (&self.primary.as_ref()?.policy, which) {
            (Policy::Crrn(crrn), Number::Quantum) => Some(crrn.quantum),
            (Policy::Delay(delay), Number::Min) => Some(delay.range.min),
            (Policy::Delay(delay), Number::Max) => Some(delay.range.max),
            (Policy::Delay(delay), Number::Pct) => Some(delay.range.pct),
            _ => None,
        }
    }

    /// Whether the head takes this value.
    fn check(&self, which: Number, value: u16) -> Result<(), NrsError> {
        let (parameter, _, _, _, policy) = which.row();
        if self.number(which).is_none() {
            return Err(NrsError::NotStarted { parameter, policy });
        }
        let (other, crossed) = match which {
            Number::Min => (Number::Max, self.number(Number::Max).filter(|max| value > *max)),
            Number::Max => (Number::Min, self.number(Number::Min).filter(|min| value < *min)),
            Number::Quantum | Number::Pct => return Ok(()),
        };
        match crossed {
            Some(is) => Err(NrsError::Crossed { parameter, value, other: other.row().0, is }),
            None => Ok(()),
        }
    }

    fn put(&mut self, which: Number, value: u16) {
        match (self.primary.as_mut().map(|queue| &mut queue.policy), which) {
            (Some(Policy::Crrn(crrn)), Number::Quantum) => crrn.quantum = value,
            (Some(Policy::Delay(delay)), Number::Min) => delay.range.min = value,
            (Some(Policy::Delay(delay)), Number::Max) => delay.range.max = value,
            (Some(Policy::Delay(delay)), Number::Pct) => delay.range.pct = value,
            _ => {}
        }
    }
}

impl Heads {
    /// Sets a parameter; nothing changes if it is refused. What another policy had waiting has moved
    /// to the places that are returned.
    pub(crate) fn set(
        &mut self,
        name: &str,
        value: &str,
        prng: &mut Prng,
    ) -> Result<Vec<(ServedId, Place)>, NrsError> {
        if name == "nrs_policies" {
            return self.set_policy(value, prng);
        }
        let which = Number::ALL.into_iter().find(|which| which.row().0 == name);
        let which = which.ok_or_else(|| NrsError::Unknown(name.to_owned()))?;
        let (parameter, short, least, most, policy) = which.row();
        let values = which.parse(value).ok_or_else(|| {
            let value = value.to_owned();
            NrsError::Value { parameter, short, value, least, most }
        })?;
        let mut changes = Vec::new();
        for (head, number) in values {
            match head {
                Some(HeadName::High) if self.high.is_none() => {
                    return Err(NrsError::NoHead { parameter, value: value.to_owned() });
                }
                Some(head) => changes.push((head, number)),
                // For both: each head that runs the policy.
                None => {
                    let both = [HeadName::Regular, HeadName::High].into_iter();
                    let runs = both.filter(|h| self.head(*h).is_some_and(|h| h.policy() == policy));
                    changes.extend(runs.map(|head| (head, number)));
                    if changes.is_empty() {
                        return Err(NrsError::NotStarted { parameter, policy });
                    }
                }
            }
        }
        for (head, number) in &changes {
            if let Some(head) = self.head(*head) {
                head.check(which, *number)?;
            }
        }
        for (head, number) in changes {
            if let Some(head) = self.head_mut(head) {
                head.put(which, number);
            }
        }
        Ok(Vec::new())
    }

    fn set_policy(
        &mut self,
        value: &str,
        prng: &mut Prng,
    ) -> Result<Vec<(ServedId, Place)>, NrsError> {
        let parameter = "nrs_policies";
        let wrong = || NrsError::Policy(value.to_owned());
        let words: Vec<_> = value.split_ascii_whitespace().collect();
        let (name, heads): (_, &[HeadName]) = match words.as_slice() {
            [name] => (*name, &[HeadName::Regular, HeadName::High]),
            [name, "reg"] => (*name, &[HeadName::Regular]),
            [_, "hp"] if self.high.is_none() => {
                return Err(NrsError::NoHead { parameter, value: value.to_owned() });
            }
            [name, "hp"] => (*name, &[HeadName::High]),
            _ => return Err(wrong()),
        };
        let all = [PolicyKind::Fifo, PolicyKind::Crrn, PolicyKind::Delay];
        let kind = all.into_iter().find(|kind| kind.name() == name).ok_or_else(wrong)?;
        let mut moved = Vec::new();
        for head in heads {
            if let Some(head) = self.head_mut(*head) {
                moved.extend(head.start(kind, prng));
            }
        }
        Ok(moved)
    }

    /// What a parameter is set to, in the form in which it is written.
    pub(crate) fn get(&self, name: &str) -> Result<String, NrsError> {
        let heads = [("reg", Some(&self.regular)), ("hp", self.high.as_ref())];
        let heads = heads.into_iter().filter_map(|(prefix, head)| Some((prefix, head?)));
        if name == "nrs_policies" {
            let words = heads.map(|(prefix, head)| format!("{} {prefix}", head.policy().name()));
            return Ok(words.collect::<Vec<_>>().join("\n"));
        }
        let which = Number::ALL.into_iter().find(|which| which.row().0 == name);
        let which = which.ok_or_else(|| NrsError::Unknown(name.to_owned()))?;
        let (parameter, short, _, _, policy) = which.row();
        let words = heads
            .filter_map(|(prefix, head)| Some(format!("{prefix}_{short}:{}", head.number(which)?)));
        let words: Vec<_> = words.collect();
        if words.is_empty() {
            return Err(NrsError::NotStarted { parameter, policy });
        }
        Ok(words.join(" "))
    }

    const fn head(&self, name: HeadName) -> Option<&Head> {
        match name {
            HeadName::Regular => Some(&self.regular),
            HeadName::High => self.high.as_ref(),
        }
    }

    const fn head_mut(&mut self, name: HeadName) -> Option<&mut Head> {
        match name {
            HeadName::Regular => Some(&mut self.regular),
            HeadName::High => self.high.as_mut(),
        }
    }
}
