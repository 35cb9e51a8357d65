//! `ulnet tuning log`: console lines of kernel nodes and ours.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, stdin};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use lustre_tuning::log::{LINE_MAX, Reader, Report};
use lustre_tuning::{AT_MAX, AT_MIN};
use serde::Serialize;

use super::{Bounds, print, print_json};

#[derive(Debug, Args)]
pub(super) struct Options {
    /// The log; - is standard input
    file: PathBuf,
    #[command(flatten)]
    bounds: Bounds,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    report: &'a Report,
    ldlm_enqueue_min: Option<lustre_tuning::EnqueueMin>,
}

pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let Options { file, bounds, json } = options;
    let shown = file.display();
    let report = if file.as_os_str() == "-" {
        read(stdin().lock())
    } else {
        let open = File::open(file).with_context(|| format!("can't read {shown}"))?;
        read(BufReader::new(open))
    };
    let report = report.with_context(|| format!("can't read {shown}"))?;
    // For a site as it is advised.
    let (at_min, at_max) = (bounds.at_min.unwrap_or(AT_MIN), bounds.at_max.unwrap_or(AT_MAX));
    let proposed = report.enqueue_min((at_min, at_max)).transpose()?;
    if *json {
        return print_json(&Document { report: &report, ldlm_enqueue_min: proposed });
    }
    print(&report.to_string());
    if let Some(proposed) = proposed {
        print(&format!("ldlm_enqueue_min  {proposed}, at_min {at_min}\n"));
    }
    Ok(())
}

/// Reads line by line; of a long line the end is passed over.
fn read(mut from: impl BufRead) -> anyhow::Result<Report> {
    let mut reader = Reader::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        let n = (&mut from).take(LINE_MAX as u64).read_until(b'\n', &mut line)?;
        if n == 0 {
            return Ok(reader.report());
        }
        reader.line(&String::from_utf8_lossy(&line))?;
        if line.last() != Some(&b'\n') {
            from.skip_until(b'\n')?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_and_bytes_that_are_no_text_do_not_hide_what_follows() {
        let mut bytes = vec![0xff; 3 * LINE_MAX];
        bytes.extend(b"\n[1.0] LNet: Quiesce start\n\xff\n[2.5] LNet: Quiesce complete");
        let report = read(&bytes[..]).unwrap();
        assert_eq!(report.outages[0].quiesces[0].seconds(), Some(1.5));
    }
}
