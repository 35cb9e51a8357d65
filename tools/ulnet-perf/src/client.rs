//! The measuring side: runs the tests asked for, one after the other, over whatever carries them.

use std::net::IpAddr;

use anyhow::{Context as _, ensure};
use hdrhistogram::Histogram;
use lnet_types::{Net, Nid, ProcessId};

use super::options::{Client, Common, Limit, Test, Work, addresses};
use super::report::{Ran, Report, Row};
use super::{bare, inline, threaded};

/// A way to run tests.
pub(super) trait Bench {
    /// Runs one test; with a histogram of round trips if it is about latency.
    fn run(
        &mut self,
        test: Test,
        size: u32,
        window: u16,
        limit: Limit,
    ) -> anyhow::Result<(Ran, Option<Histogram<u64>>)>;
}

pub(super) fn run(options: &Client) -> anyhow::Result<()> {
    let network = &options.network;
    let common = &network.common(&options.common)?;
    let addr = network.given(&options.addr)?;
    let (rails, rows) = if options.bare {
        ensure!(!network.is_rdma(), "--bare: expected a tcp network, not {}", network.net);
        let able = [Test::Latency, Test::Put];
        let mut rows = Vec::new();
        for (test, size) in options.work.list(&able) {
            ensure!(
                able.contains(&test),
                "test '{}': a bare socket has only latency and put",
                test.name()
            );
            let at = (options.server, common.port);
            rows.push(bare::measure(
                at,
                common.inline,
                test,
                size.0,
                size.0,
                options.work.limit(),
            )?);
        }
        (1, rows)
    } else {
        let own = addresses(&addr, common.rails, 129, 0);
        (own.len(), measure(common, network.net, &addr, options.server, &options.work)?)
    };
    Report::new(common, rails, 1, &rows).print(options.work.json)
}

/// Runs the tests of `work` over LNet against the server at `server`.
pub(super) fn measure(
    common: &Common,
    net: Net,
    addr: &[IpAddr],
    server: IpAddr,
    work: &Work,
) -> anyhow::Result<Vec<Row>> {
    let target = |ip| ProcessId::lustre(Nid::from_ip(net, ip));
    let mut bench: Box<dyn Bench> = if common.inline {
        let pair = |n| -> Option<_> {
            let own = addresses(addr, common.rails, 129, n);
            Some((own, target(*addresses(&[server], 1, 1, n).first()?)))
        };
        Box::new(inline::Inline::new(common, (0..common.threads).filter_map(pair).collect())?)
    } else {
        let own = addresses(addr, common.rails, 129, 0);
        Box::new(threaded::Threaded::new(common, &own, target(server))?)
    };
    let mut rows = Vec::new();
    for (test, size) in work.list(&Test::ALL) {
        let window = if test == Test::Latency { 1 } else { work.window };
        let (ran, latency) = bench
            .run(test, size.0, window, work.limit())
            .with_context(|| format!("{} of {size} bytes", test.name()))?;
        let row = Row::new(test, "lnet", size.0, window.into(), &ran);
        rows.push(match latency {
            Some(latency) => row.with_latency(&latency),
            None => row,
        });
    }
    Ok(rows)
}
