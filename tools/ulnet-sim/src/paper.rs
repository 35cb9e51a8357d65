//! `ulnet sim paper`: what the paper on time-outs of Lustre says, and what is played.

use std::io::Write as _;

use clap::{Args, ValueEnum};
use lnet_sim::paper_rpc;

/// Plays small worlds, each for one figure of the paper on time-outs of Lustre, and prints the table.
#[derive(Clone, Debug, Args)]
pub(super) struct Paper {
    /// Of which part of it.
    part: Part,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Part {
    /// The request layer.
    Rpc,
}

impl Paper {
    pub(super) fn run(&self) {
        let rows = match self.part {
            Part::Rpc => paper_rpc(),
        };
        let mut text = format!("{:<62} {:>8} {:>12}\n", "", "paper", "played");
        for row in rows {
            text.push_str(row.to_string().trim_end());
            text.push('\n');
        }
        // A reader that has gone away is no error of ours.
        let _ = std::io::stdout().write_all(text.as_bytes());
    }
}
