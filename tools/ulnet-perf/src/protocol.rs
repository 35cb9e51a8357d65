//! What the two sides say to each other: one portal each, match bits for each purpose, and the record
//! in which the server tells what has arrived.

/// The server's portal and the client's.
pub(super) const SERVER: u32 = 40;
pub(super) const CLIENT: u32 = 41;

/// PUTs that are counted.
pub(super) const SINK: u64 = 1;
/// Memory that GETs read.
pub(super) const SOURCE: u64 = 2;
/// PUTs that come back to the client's portal with the same bits.
pub(super) const ECHO: u64 = 3;
/// A PUT that is answered by a [`Counters`] record at the client's portal with the same bits.
pub(super) const COUNTERS: u64 = 4;

/// What the server has seen and spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// PUTs that have arrived whole at [`SINK`].
    pub(super) puts: u64,
    /// Processor time of the server's process, nanoseconds.
    pub(super) cpu: u64,
}

impl Counters {
    pub(super) const LEN: usize = 16;

    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        let (puts, cpu) = out.split_at_mut(8);
        puts.copy_from_slice(&self.puts.to_le_bytes());
        cpu.copy_from_slice(&self.cpu.to_le_bytes());
        out
    }

    /// `None` if the record is not one.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (puts, rest) = bytes.split_first_chunk()?;
        let (cpu, []) = rest.split_first_chunk()? else { return None };
        Some(Self { puts: u64::from_le_bytes(*puts), cpu: u64::from_le_bytes(*cpu) })
    }
}

/// Processor time of this process, nanoseconds.
pub(super) fn cpu_time() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_survive_the_way() {
        let c = Counters { puts: 7, cpu: u64::MAX };
        assert_eq!(Counters::from_bytes(&c.to_bytes()), Some(c));
        assert_eq!(Counters::from_bytes(&c.to_bytes()[1..]), None);
        assert_eq!(Counters::from_bytes(&[0; 17]), None);
    }
}
