//! The receiving node of the demo.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use lnet::MatchEntry;
use lnet_rt::{AttachOptions, Attachment, Buffer};
use sha2::{Digest as _, Sha256};

use super::link::{self, ChildReport, Order, ReceiveReport};
use super::protocol::{self, BEGIN, BITS, CHUNK, CHUNK_MAX, END, STATE, STATE_HEAD};
use super::rails::Rails;
use super::send::obey;

/// Buffers for chunks, posted one behind the other; a portal that runs dry holds messages back.
const BUFFERS: usize = 8;
const BUFFER_BYTES: usize = 8 * CHUNK_MAX as usize;
/// How long the state stays readable after an error, so that the sender can read it.
const LINGER: Duration = Duration::from_secs(3);

pub(crate) fn run() -> anyhow::Result<bool> {
    let orders = link::orders();
    let Ok(Order::Receive { port, ips, copy }) = orders.recv() else {
        bail!("no order to receive");
    };
    let rails = Rails::start(&ips, port)?;
    let begin = attach(&rails, BEGIN, Buffer::zeroed(64), AttachOptions::PUT)?;
    let end = attach(&rails, END, Buffer::zeroed(128), AttachOptions::PUT)?;
    rails
        .node
        .call(|stack, now| stack.node_mut().set_lazy(now, CHUNK, true))
        .blocking()?
        .context("portal of the chunks")?;
    let chunks = AttachOptions { max_size: Some(CHUNK_MAX), ..AttachOptions::PUT };
    let mut posted = Vec::new();
    for _ in 0..BUFFERS {
        posted.push(attach(&rails, CHUNK, Buffer::zeroed(BUFFER_BYTES), chunks)?);
    }
    link::report(&ChildReport::Ready);
    let obedient = rails.clone();
    thread::spawn(move || follow(&orders, &obedient));
    let announced = begin.recv_blocking().ok_or_else(|| anyhow!("node stopped"))?;
    let (size, chunk) = protocol::parse_begin(&announced)
        .ok_or_else(|| anyhow!("announcement of {} bytes makes no sense", announced.len()))?;
    let count = size.div_ceil(u64::from(chunk));
    let bitmap = usize::try_from(count.div_ceil(8)).context("file too large")?;
    let state = Buffer::zeroed(STATE_HEAD + bitmap);
    let state = attach(&rails, STATE, state, AttachOptions::GET)?;
    let outcome = receive(&rails, &mut posted, chunks, &state, &copy, size, chunk);
    let report = match outcome {
        Ok(report) => report,
        Err(e) => {
            // The sender asks why its chunks get no answer.
            let head = protocol::state_head(&format!("{e:#}"));
            state.write_at_blocking(0, head)?;
            posted.clear();
            thread::sleep(LINGER);
            return Err(e);
        }
    };
    let last = end.recv_blocking().ok_or_else(|| anyhow!("node stopped"))?;
    let sent = String::from_utf8_lossy(&last).into_owned();
    if sent != report.sha256 {
        bail!("{}: SHA-256 {} here, {sent} at the sender", copy.display(), report.sha256);
    }
    link::report(&ChildReport::Received(report));
    // The conductor ends us when it has both reports.
    loop {
        thread::park();
    }
}

fn attach(
    rails: &Rails,
    portal: u32,
    buffer: Buffer,
    options: AttachOptions,
) -> anyhow::Result<Attachment> {
    rails
        .node
        .attach(portal, MatchEntry::bits(BITS), buffer, options)
        .map_err(|e| anyhow!("buffer at portal {portal}: {}", e.error))
}

/// Obeys the conductor until it is gone; then there is nothing left to do here.
fn follow(orders: &Receiver<Order>, rails: &Rails) {
    while let Ok(order) = orders.recv() {
        if let Err(e) = obey(rails, &order) {
            link::report(&ChildReport::Failed { why: format!("{e:#}") });
        }
    }
    process::exit(0);
}

/// Takes chunks until all are there, then checks what lies on the disk.
fn receive(
    rails: &Rails,
    posted: &mut Vec<Attachment>,
    options: AttachOptions,
    state: &Attachment,
    copy: &Path,
    size: u64,
    chunk: u32,
) -> anyhow::Result<ReceiveReport> {
    let named = || format!("copy {}", copy.display());
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(copy)
        .with_context(named)?;
    let count = size.div_ceil(u64::from(chunk));
    let mut bitmap = vec![0u8; usize::try_from(count.div_ceil(8)).context("file too large")?];
    let (mut have, mut bytes, mut duplicates) = (0, 0, 0);
    while have < count {
        let inbox = posted.first().ok_or_else(|| anyhow!("no buffer posted"))?;
        let Some(delivery) = inbox.recv_blocking() else {
            // Spent and emptied: post it again behind the others.
            let buffer = posted.remove(0).detach_blocking()?;
            posted.push(attach(rails, CHUNK, buffer, options)?);
            continue;
        };
        let n = delivery.event.hdr_data;
        let at = n.saturating_mul(u64::from(chunk));
        if delivery.event.status.is_err() {
            // Broken off in the middle of its payload: as if it had never come.
            continue;
        }
        let expected = size.saturating_sub(at).min(u64::from(chunk));
        if n >= count || delivery.len() as u64 != expected {
            bail!("chunk {n} of {count} has {} bytes, expected {expected}", delivery.len());
        }
        file.write_all_at(&delivery, at).with_context(named)?;
        let (byte, bit) = ((n / 8) as usize, 1u8 << (n % 8));
        let Some(marks) = bitmap.get_mut(byte) else { continue };
        if *marks & bit != 0 {
            duplicates += 1;
            continue;
        }
        *marks |= bit;
        have += 1;
        bytes += delivery.len() as u64;
        state.write_at_blocking((STATE_HEAD + byte) as u64, vec![*marks])?;
    }
    file.set_len(size).with_context(named)?;
    // A disk that is full or fails may only say so now.
    file.sync_all().with_context(named)?;
    let sha256 = hash(&file).with_context(named)?;
    Ok(ReceiveReport { sha256, bytes, duplicates })
}

fn hash(file: &File) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut block = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let n = file.read_at(&mut block, at)?;
        if n == 0 {
            return Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect());
        }
        hash.update(&block[..n]);
        at += n as u64;
    }
}
