//! Routes inside a fabric whose blades stand in a ring, and the check of their tables: a packet that follows
//! them from any blade to any other must arrive. Pure; `sim/coordinate.rs` changes tables in time.

/// Nodes of one blade's router, as on Aries.
pub(crate) const NODES_PER_BLADE: usize = 4;

/// Where a packet goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// To the next blade of lower number.
    Down,
    /// To the next one of higher number.
    Up,
}

/// Pairs of blades whose packets don't arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inconsistent {
    /// They go round for ever.
    pub(crate) loops: u64,
    /// They come to a link that has failed.
    pub(crate) dead_ends: u64,
}

/// What becomes of a packet from a blade.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Unknown,
    OnTheWay,
    Arrives,
    Loops,
    Ends,
}

/// A ring of blades with a failed link, before and after its routes have changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    blades: usize,
    /// The link from this blade to the next one has failed.
    failed: usize,
}

impl Ring {
    /// A ring for so many nodes, without the link behind the blade of one of them.
    pub(crate) fn new(nodes: usize, node: usize) -> Self {
        // In fewer blades there is no other way round.
        let blades = nodes.div_ceil(NODES_PER_BLADE).max(4);
        Self { blades, failed: (node / NODES_PER_BLADE) % blades }
    }

    /// How many blades there are.
    pub(crate) const fn blades(&self) -> usize {
        self.blades
    }

    /// The shorter way round.
    fn before(&self, from: usize, to: usize) -> Side {
        let up = (to + self.blades - from) % self.blades;
        if up <= self.blades / 2 { Side::Up } else { Side::Down }
    }

    /// The way round that does not lead over the failed link.
    fn after(&self, from: usize, to: usize) -> Side {
        // Blades in a row that begins behind the link.
        let place = |blade: usize| (blade + self.blades - self.failed - 1) % self.blades;
        if place(from) < place(to) { Side::Up } else { Side::Down }
    }

    /// What does not arrive while the first so many blades have the new routes and the rest the old ones.
    pub(crate) fn check(&self, installed: usize) -> Inconsistent {
        let mut found = Inconsistent::default();
        let mut fates = vec![Fate::Unknown; self.blades];
        let mut path = Vec::new();
        for to in 0..self.blades {
            fates.fill(Fate::Unknown);
            if let Some(fate) = fates.get_mut(to) {
                *fate = Fate::Arrives;
            }
            for from in 0..self.blades {
                let fate = self.follow(from, to, installed, &mut fates, &mut path);
                found.loops += u64::from(fate == Fate::Loops);
                found.dead_ends += u64::from(fate == Fate::Ends);
            }
        }
        found
    }

    fn follow(
        &self,
        from: usize,
        to: usize,
        installed: usize,
        fates: &mut [Fate],
        path: &mut Vec<usize>,
    ) -> Fate {
        let mut at = from;
        let fate = loop {
            match fates.get(at).copied().unwrap_or(Fate::Ends) {
                Fate::Unknown => {}
                Fate::OnTheWay => break Fate::Loops,
                known => break known,
            }
            if let Some(fate) = fates.get_mut(at) {
                *fate = Fate::OnTheWay;
            }
            path.push(at);
            let side = if at < installed { self.after(at, to) } else { self.before(at, to) };
            let (link, next) = match side {
                Side::Up => (at, (at + 1) % self.blades),
                Side::Down => {
                    let next = (at + self.blades - 1) % self.blades;
                    (next, next)
                }
            };
            if link == self.failed {
                break Fate::Ends;
            }
            at = next;
        };
        for blade in path.drain(..) {
            if let Some(known) = fates.get_mut(blade) {
                *known = fate;
            }
        }
        fate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_routes_avoid_the_failed_link_and_old_ones_end_at_it() {
        for node in [0, 5, 31] {
            let ring = Ring::new(32, node);
            assert_eq!(ring.check(ring.blades()), Inconsistent::default(), "{node}");
            let old = ring.check(0);
            assert_eq!(old.loops, 0);
            assert!(old.dead_ends > 0);
        }
    }

    #[test]
    fn pa081_a_mixture_of_old_and_new_routes_has_loops_and_dead_ends() {
        let ring = Ring::new(32, 13);
        let mixed: Vec<Inconsistent> = (1..ring.blades()).map(|n| ring.check(n)).collect();
        assert!(mixed.iter().any(|found| found.loops > 0), "{mixed:?}");
        assert!(mixed.iter().any(|found| found.dead_ends > 0), "{mixed:?}");
    }
}
