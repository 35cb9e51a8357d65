//! Users, groups and projects that are at their limit of space on a target (C-225): nothing is cached for
//! them, so that a write says at once that there is no room.

use std::collections::BTreeSet;

use lustre_wire::fid::Valid;
use lustre_wire::ost::{Obdo, ObdoFlags};

use super::Payer;

/// Most of them that are remembered; more are cached for as if they had room.
const OVER_MAX: usize = 4096;

/// Whose number it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    User,
    Group,
    Project,
}

/// Those that are at their limit.
#[derive(Debug, Default)]
pub(super) struct Quota(BTreeSet<(Kind, u32)>);

fn of(payer: Payer) -> impl Iterator<Item = (Kind, u32)> {
    let Payer { uid, gid, project } = payer;
    let project = project.map(|id| (Kind::Project, id));
    [(Kind::User, uid), (Kind::Group, gid)].into_iter().chain(project)
}

impl Quota {
    /// What the reply to a write says of those who pay for it.
    pub(super) fn hear(&mut self, payer: Payer, body: &Obdo) {
        if !body.valid.contains(Valid::FLAGS) {
            return;
        }
        for (kind, id) in of(payer) {
            let (said, over) = match kind {
                Kind::User => (Valid::USRQUOTA, ObdoFlags::NO_USRQUOTA),
                Kind::Group => (Valid::GRPQUOTA, ObdoFlags::NO_GRPQUOTA),
                Kind::Project => (Valid::PRJQUOTA, ObdoFlags::NO_PRJQUOTA),
            };
            if !body.valid.contains(said) {
                continue;
            }
            if !body.flags.contains(over) {
                self.0.remove(&(kind, id));
            } else if self.0.len() < OVER_MAX {
                self.0.insert((kind, id));
            }
        }
    }

    /// Whether one of those who pay is at the limit.
    pub(super) fn is_over(&self, payer: Payer) -> bool {
        !self.0.is_empty() && of(payer).any(|who| self.0.contains(&who))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c225_who_is_at_the_limit_is_so_until_a_reply_says_otherwise() {
        let payer = Payer { uid: 1001, gid: 100, project: Some(7) };
        let all = Valid::FLAGS | Valid::USRQUOTA | Valid::GRPQUOTA | Valid::PRJQUOTA;
        let said = |valid, flags| {
            let flags = ObdoFlags::from_bits_retain(flags);
            Obdo { valid, flags, ..Obdo::default() }
        };
        let mut quota = Quota::default();
        assert!(!quota.is_over(payer));
        // As recorded: the user is, the others are not.
        quota.hear(payer, &said(all, 0x6100));
        assert!(quota.is_over(payer) && quota.is_over(Payer { uid: 1001, ..Payer::default() }));
        assert!(!quota.is_over(Payer { uid: 1002, ..payer }));
        // A reply that says nothing of quota, and one of another user.
        quota.hear(payer, &said(Valid::FLAGS, 0));
        quota.hear(Payer { uid: 1002, ..payer }, &said(all, 0x80));
        assert!(quota.is_over(Payer { uid: 3, ..payer }), "the project");
        assert!(!quota.is_over(Payer { uid: 3, project: None, ..payer }));
        quota.hear(payer, &said(all, 0x6000));
        assert!(!quota.is_over(payer));
        (0..2 * OVER_MAX as u32).for_each(|uid| {
            quota.hear(Payer { uid, ..payer }, &said(all, 0x100));
        });
        assert_eq!(quota.0.len(), OVER_MAX);
    }
}
