//! `ulnet obj create`: makes objects.

use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::client;

/// How many.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet obj create --target ost-0@10.0.0.1@tcp,10.0.0.2@tcp\n  \
    ulnet obj create --target ost-0@10.0.0.1@tcp --count 10 --json")]
pub(crate) struct Options {
    #[command(flatten)]
    client: client::Access,
    /// Objects
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
}

/// Runs the command.
///
/// # Errors
/// As [`super::with`].
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { client, count } = options;
    let made: Vec<_> = super::with(client, None, |obj| {
        (0..*count).map(|_| Ok(super::name(obj.create()?))).collect()
    })?;
    if client.way.json {
        println!("{:#}", json!(made));
    } else {
        made.iter().for_each(|name| println!("{name}"));
    }
    Ok(())
}
