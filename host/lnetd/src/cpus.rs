//! The CPU partitions of the machine, as they were asked for when the daemon started (N-16). They stay
//! as they are: what is tied to them can change, they can't.

use core::fmt::Write as _;

use anyhow::bail;
use lnet_config::ModuleParameters;
use lnet_types::{CptTable, CpuPattern};

use crate::options::Options;

/// What the system calls the distance to oneself.
const LOCAL: u32 = 10;

/// How the machine is parted.
#[derive(Debug)]
pub(crate) struct Cpus {
    pattern: CpuPattern,
    table: CptTable,
    distances: Vec<Vec<Option<u32>>>,
}

impl Cpus {
    /// By module parameters, else by the command line.
    pub(crate) fn new(options: &Options, parameters: &ModuleParameters) -> anyhow::Result<Self> {
        let pattern = match &parameters.cpus {
            Some(pattern) => pattern.clone(),
            None => {
                let text = options.cpu_pattern.as_deref().unwrap_or_default();
                let asked = options.cpu_npartitions.unwrap_or(0);
                let pattern = CpuPattern::parse(text, asked)?;
                if pattern.npartitions() != asked {
                    bail!(
                        "cpu_npartitions {asked}: cpu_pattern '{text}' says how many, expected 0"
                    );
                }
                pattern
            }
        };
        let table = lnet_rt::cpt_table(&pattern)?;
        let distances = lnet_rt::cpt_distances(&table);
        Ok(Self { pattern, table, distances })
    }

    pub(crate) const fn pattern(&self) -> &CpuPattern {
        &self.pattern
    }

    pub(crate) const fn table(&self) -> &CptTable {
        &self.table
    }

    /// The file `cpu_partition_table`.
    pub(crate) fn shown(&self) -> String {
        let mut text = String::new();
        for cpt in 0..self.table.count() {
            let _ = write!(text, "{cpt}\t:");
            for cpu in self.table.cpus_of(&[cpt].into()) {
                // Infallible: writing to a String.
                let _ = write!(text, " {cpu}");
            }
            text.push('\n');
        }
        text
    }

    /// The file `cpu_partition_distance`. A machine that does not say is one place.
    pub(crate) fn shown_distances(&self) -> String {
        let mut text = String::new();
        for (from, row) in self.distances.iter().enumerate() {
            let _ = write!(text, "{from}\t:");
            for (to, distance) in row.iter().enumerate() {
                let _ = write!(text, " {to}:{}", distance.unwrap_or(LOCAL));
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_a_line_for_each_partition() {
        let machine = (0..4).map(|cpu| (cpu, cpu / 2)).collect();
        let pattern = CpuPattern::parse("0[0-2] 1[3]", 0).unwrap();
        let table = CptTable::new(&pattern, &machine).unwrap();
        let distances = lnet::cpt_distances(&table, &[vec![10, 21], vec![21, 10]]);
        let cpus = Cpus { pattern, table, distances };
        assert_eq!(cpus.shown(), "0\t: 0 1 2\n1\t: 3\n");
        assert_eq!(cpus.shown_distances(), "0\t: 0:21 1:21\n1\t: 0:21 1:10\n");
        let distances = lnet::cpt_distances(&cpus.table, &[]);
        let silent = Cpus { distances, ..cpus };
        assert_eq!(silent.shown_distances(), "0\t: 0:10 1:10\n1\t: 0:10 1:10\n");
    }
}
