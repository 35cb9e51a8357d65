//! The server: buffers that are written, read and echoed. It has no knowledge of tests; a client
//! queries the counters that it needs (`protocol.rs`).

use std::io::{self, Write as _};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::Context as _;
use lnet::{EventKind, MatchEntry, MdOptions, MdSpec, Put};
use lnet_rt::{Buffer, Spin, Stack};
use lnet_types::{MdId, Net, ProcessId, RegionId, Span};

use super::options::{Server, Size, addresses};
use super::protocol::{CLIENT, COUNTERS, Counters, ECHO, SERVER, SINK, SOURCE, cpu_time};
use super::{bare, node, rpc};

/// What the server says when it is ready to be measured.
pub(super) const READY: &str = "ready";

pub(super) fn run(options: &Server) -> anyhow::Result<()> {
    if options.until_eof {
        thread::spawn(|| {
            // An error is the end as well.
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            std::process::exit(0);
        });
    }
    let network = &options.network;
    let common = &network.common(&options.common)?;
    let given = network.given(&options.addr)?;
    let at = |stack| addresses(&given, common.rails, 1, stack);
    let ready = |at: &[IpAddr]| ready(network.net, at);
    if options.bare {
        anyhow::ensure!(!network.is_rdma(), "--bare: expected a tcp network, not {}", network.net);
        let ip = at(0).first().copied().context("no address")?;
        return bare::serve(ip, common.port, common.inline, || ready(&[ip]));
    }
    let stacks = if common.inline { common.threads } else { 1 };
    let mut ready_stacks = Vec::new();
    for n in 0..stacks {
        let mut stack = node::stack(common, network.net, &at(n))?;
        install(&mut stack)?;
        if options.rpc {
            rpc::stand(&mut stack).context("request layer")?;
        }
        ready_stacks.push(stack);
    }
    if !common.inline {
        // One stack, and it lives as long as its handle.
        let handles = ready_stacks
            .into_iter()
            .map(|stack| stack.spawn("lnet", Spin::default()))
            .collect::<io::Result<Vec<_>>>()?;
        ready(&at(0));
        while !handles.iter().all(lnet_rt::NodeHandle::is_stopped) {
            thread::park();
        }
        return Ok(());
    }
    ready(&at(0));
    let wait = node::wait();
    thread::scope(|scope| {
        for mut stack in ready_stacks {
            scope.spawn(move || {
                loop {
                    stack.turn(wait);
                    while stack.poll_event().is_some() {}
                }
            });
        }
    });
    Ok(())
}

fn ready(net: Net, at: &[IpAddr]) {
    let at: Vec<String> = at.iter().map(|ip| format!("{ip}@{net}")).collect();
    println!("{READY} {}", at.join(","));
    let _ = io::stdout().flush();
}

/// Posts the server's buffers.
fn install(stack: &mut Stack) -> anyhow::Result<()> {
    let puts = Arc::new(AtomicU64::new(0));
    let target = |region: RegionId, stack: &Stack, options| MdSpec {
        options: options | MdOptions::MANAGE_REMOTE | MdOptions::TRUNCATE,
        ..MdSpec::new(stack.region(region), 0)
    };

    let sink = stack.lend(Buffer::zeroed(Size::MAX as usize)).map_err(|e| e.error)?;
    let spec = target(sink, stack, MdOptions::OP_PUT);
    let counted = Arc::clone(&puts);
    stack.attach_handler(SERVER, MatchEntry::bits(SINK), spec, move |_, event| {
        if event.kind == EventKind::Put && event.status.is_ok() {
            // One thread writes it.
            counted.store(counted.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    })?;

    let source = stack.lend(Buffer::zeroed(Size::MAX as usize)).map_err(|e| e.error)?;
    let spec = MdSpec { events: false, ..target(source, stack, MdOptions::OP_GET) };
    stack.attach(SERVER, MatchEntry::bits(SOURCE), spec)?;

    let echo = stack.lend(Buffer::zeroed(Size::MAX as usize)).map_err(|e| e.error)?;
    let spec = target(echo, stack, MdOptions::OP_PUT);
    let mut bound: Vec<(u32, MdId)> = Vec::new();
    stack.attach_handler(SERVER, MatchEntry::bits(ECHO), spec, move |stack, event| {
        if event.kind != EventKind::Put || event.status.is_err() {
            return;
        }
        let md = bound.iter().find(|(len, _)| *len == event.mlength).map(|(_, md)| *md);
        let md = md.or_else(|| {
            let span = Span { region: echo, len: event.mlength, offset: 0 };
            let buf = [span].into_iter().collect();
            let md = stack.bind(MdSpec { events: false, ..MdSpec::new(buf, 0) }).ok()?;
            bound.push((event.mlength, md));
            Some(md)
        });
        answer(stack, md, event.initiator, ECHO);
    })?;

    let asked = stack.lend(Buffer::zeroed(8)).map_err(|e| e.error)?;
    let reported = stack.lend(Buffer::zeroed(Counters::LEN)).map_err(|e| e.error)?;
    let buf = stack.region(reported);
    let md = stack.bind(MdSpec { events: false, ..MdSpec::new(buf, 0) })?;
    let spec = target(asked, stack, MdOptions::OP_PUT);
    stack.attach_handler(SERVER, MatchEntry::bits(COUNTERS), spec, move |stack, event| {
        if event.kind != EventKind::Put || event.status.is_err() {
            return;
        }
        let counters = Counters { puts: puts.load(Ordering::Relaxed), cpu: cpu_time() };
        let span = Span { region: reported, len: Counters::LEN as u32, offset: 0 };
        stack.bytes_mut(span).copy_from_slice(&counters.to_bytes());
        answer(stack, Some(md), event.initiator, COUNTERS);
    })?;
    Ok(())
}

fn answer(stack: &mut Stack, md: Option<MdId>, to: ProcessId, bits: u64) {
    let Some(md) = md else { return };
    // A client that is gone, or has more under way than fits, is not answered.
    let _ = stack.put(Put {
        md,
        ack: false,
        src: None,
        target: to,
        portal: CLIENT,
        match_bits: bits,
        offset: 0,
        hdr_data: 0,
        timeout: None,
    });
}

/// Reads the first line of a server's output, which says that it is ready.
pub(super) fn wait_ready(from: &mut impl io::Read) -> anyhow::Result<()> {
    // A byte at a time: what follows the line is not ours to read.
    let (mut line, mut byte) = (Vec::new(), [0]);
    while from.read(&mut byte)? == 1 && byte != *b"\n" {
        line.extend_from_slice(&byte);
    }
    let line = String::from_utf8_lossy(&line);
    anyhow::ensure!(line.starts_with(READY), "the server did not start: '{line}'");
    Ok(())
}
