//! `ulnet tuning enqueue-min`: the formula of the lock callback timer (L-64).

use clap::Args;
use lustre_tuning::EnqueueMin;

use super::{Bounds, print, print_json, seconds};

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Latency of the network as requests estimate it
    #[arg(value_parser = seconds)]
    net: u32,
    /// Time of a service as requests estimate it
    #[arg(value_parser = seconds)]
    service: u32,
    /// Time in which all clients reconnect to all targets after a quiesce
    #[arg(value_parser = seconds)]
    quiesce: u32,
    #[command(flatten)]
    bounds: Bounds,
    /// Print the terms as well, as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let Options { net, service, quiesce, bounds, json } = options;
    let all = EnqueueMin::of(*net, *service, *quiesce, bounds.or_default())?;
    if *json {
        return print_json(&all);
    }
    print(&format!("{}\n", all.seconds));
    Ok(())
}
