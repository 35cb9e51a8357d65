//! Both sides on this machine: the server as a process of its own, and the same over a bare socket in
//! between, so that whatever else the machine does meets both alike.

use std::env;
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use super::options::{Common, Local, Test, addresses};
use super::report::{Ratio, Report, Row, medians};
use super::{bare, client, serve};

/// PUTs and GETs of so many bytes or more are compared with a stream.
const BULK: u32 = 64 << 10;

/// A server that should end is looked at so often, at intervals of 10 ms.
const ENDING: u32 = 100;

/// A server that ends with this value.
pub(super) struct Served(Child);

impl Served {
    /// Starts one, with options of the server beside those that both sides have.
    pub(super) fn start(common: &Common, more: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(env::current_exe().context("own program")?);
        command.args(["perf", "server", "--until-eof"]);
        let numbers = [
            ("--port", common.port.into()),
            ("--rails", u32::from(common.rails)),
            ("--threads", common.threads.into()),
            ("--conns", common.conns.into()),
            ("--peer-credits", common.peer_credits),
            ("--credits", common.credits),
            ("--record", common.record),
        ];
        for (name, value) in numbers {
            command.args([name, &value.to_string()]);
        }
        command.args(common.inline.then_some("--inline")).args(more);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut this = Self(child.context("starting the server")?);
        let stdout = this.0.stdout.as_mut().context("the server's output")?;
        serve::wait_ready(stdout)?;
        Ok(this)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It ends by itself when its input does, which lets it write what a build for training
        // (`packaging/trained`) has counted; one that can't is ended.
        drop(self.0.stdin.take());
        for _ in 0..ENDING {
            match self.0.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(10)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn run(options: &Local) -> anyhow::Result<()> {
    let Local { baseline, rounds, network, common, work } = options;
    let common = &network.common(common)?;
    ensure!(
        !baseline || !network.is_rdma(),
        "--baseline: expected a tcp network, not {}: see perftest",
        network.net
    );
    let (server, own) = match network.given(&[])?[..] {
        [] => (addresses(&[], 1, 1, 0).first().copied().context("no address")?, vec![]),
        [server, client] if common.rails == 1 => (server, vec![client]),
        _ => bail!("--if: expected the server's interface and the client's, and one rail"),
    };
    let net = network.net.to_string();
    let mut of_server = vec!["--net", &net];
    of_server.extend(network.interfaces.first().into_iter().flat_map(|name| ["--if", name]));
    let mut rows = Vec::new();
    for _ in 0..*rounds {
        let served = Served::start(common, &of_server)?;
        let found = client::measure(common, network.net, &own, server, work)?;
        drop(served);
        if *baseline {
            let served = Served::start(common, &["--bare"])?;
            for row in &found {
                rows.extend(beside(options, server, row).transpose()?);
            }
            drop(served);
        }
        rows.extend(found);
    }
    let rows = medians(rows);
    let mut report = Report::new(common, common.rails.into(), *rounds, &rows);
    report.ratios = rows.iter().filter_map(|row| ratio(row, &rows)).collect();
    report.print(work.json)
}

/// The bare measurement that goes with a row, if there is one.
fn beside(options: &Local, server: IpAddr, row: &Row) -> Option<anyhow::Result<Row>> {
    let frame = match row.test {
        Test::Latency => row.wire_bytes.round() as u32,
        Test::Put if row.size >= BULK => row.size,
        Test::Put | Test::PutAck | Test::Get => return None,
    };
    let at = (server, options.common.port);
    let inline = options.common.inline;
    Some(bare::measure(at, inline, row.test, row.size, frame, options.work.limit()))
}

fn ratio(row: &Row, all: &[Row]) -> Option<Ratio> {
    let like = if row.test == Test::Latency { Test::Latency } else { Test::Put };
    let bare = all.iter().find(|r| r.over == "bare" && r.test == like && r.size == row.size)?;
    if row.over == "bare" {
        return None;
    }
    let cpu = |r: &Row| r.cpu_ns.0 + r.cpu_ns.1;
    let ratio = row.figure() / bare.figure();
    Some(Ratio { test: row.test, size: row.size, ratio, cpu: cpu(row) / cpu(bare) })
}
