//! `ulnet sim paper`: what the paper on time-outs of Lustre says, and what is played.

use std::io::Write as _;

use clap::{Args, ValueEnum};
use lnet_sim::{LossRow, loss_sweep, paper_rpc};

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
    /// Calls while 0 to 5 % of all messages are lost.
    Loss,
}

impl Paper {
    pub(super) fn run(&self) {
        let (head, rows): (String, Vec<String>) = match self.part {
            Part::Rpc => (
                format!("{:<62} {:>8} {:>12}", "", "paper", "played"),
                paper_rpc().iter().map(ToString::to_string).collect(),
            ),
            Part::Loss => {
                (LossRow::HEAD.to_owned(), loss_sweep().iter().map(ToString::to_string).collect())
            }
        };
        let mut text = format!("{head}\n");
        for row in rows {
            text.push_str(row.trim_end());
            text.push('\n');
        }
        // A reader that has gone away is no error of ours.
        let _ = std::io::stdout().write_all(text.as_bytes());
    }
}
