//! `ulnet demo`: two real nodes in two processes, two rails between them; a file goes over, one rail
//! is cut in the middle and comes back, and every byte arrives once.
//!
//! This process only conducts: it starts the two nodes (`send.rs`, `receive.rs`), tells them when the
//! rail goes and comes, draws the progress, and judges the result. They talk to it in JSON lines
//! (`link.rs`) and to each other in LNet messages alone (`protocol.rs`).

mod link;
mod protocol;
mod rails;
mod receive;
mod send;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Parser;
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use link::{Child, ChildReport, Order};
use rails::RailView;

/// Moves a file between two LNet nodes over two rails, cuts one rail in the middle and restores it.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "ulnet demo",
    after_help = "Examples:\n  \
    ulnet demo README.md\n  \
    ulnet demo --seconds 0 big.iso --to /tmp/copy\n  \
    ulnet demo --no-cut"
)]
struct Options {
    /// The file to move; 256 MiB of made-up data if none is given.
    file: Option<PathBuf>,

    /// Directory for the copy at the far end; without it the copy is checked and removed.
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,

    /// Spread the transfer over about this many seconds, so that there is something to see; 0 is as
    /// fast as it goes.
    #[arg(long, value_name = "SECONDS", default_value_t = 4)]
    seconds: u32,

    /// Leave both rails alone.
    #[arg(long)]
    no_cut: bool,

    /// Run as one of the two nodes; used by the demo itself.
    #[arg(long, hide = true)]
    node: Option<Role>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Role {
    Send,
    Receive,
}

/// Bytes of the file that is made when none is given.
const MADE_UP_BYTES: u64 = 256 << 20;
/// Where the rail is cut and where it is restored, percent of the bytes.
const CUT_AT: u64 = 35;
const RESTORE_AT: u64 = 70;
/// How long the rail stays cut at least, however fast the file moves: the sender holds its rest back.
const CUT_MIN: Duration = Duration::from_millis(300);
/// A node that is silent for this long is abandoned.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The command line, for completions.
pub fn command() -> clap::Command {
    <Options as clap::CommandFactory>::command()
}

/// Runs the demo with the given arguments, the first of which is its name.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let options = match Options::try_parse_from(args) {
        Ok(options) => options,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(2));
        }
    };
    let outcome = match options.node {
        Some(Role::Send) => send::run(),
        Some(Role::Receive) => receive::run(),
        None => conduct(&options),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            if options.node.is_some() {
                link::report(&ChildReport::Failed { why: format!("{e:#}") });
            } else {
                eprintln!("ulnet demo: {e:#}");
            }
            ExitCode::FAILURE
        }
    }
}

/// The conductor's record when it is over.
#[derive(Debug, Default)]
struct Seen {
    rails: Vec<RailView>,
    lowest: Vec<u32>,
    sent: Option<link::SendReport>,
    received: Option<link::ReceiveReport>,
}

fn conduct(options: &Options) -> anyhow::Result<bool> {
    let scratch = Scratch::new()?;
    end_on_signals(&scratch).context("signals")?;
    let (file, made_up) = match &options.file {
        Some(file) => (file.clone(), false),
        None => (scratch.make_up_data()?, true),
    };
    let size = readable_size(&file)?;
    let to = match &options.to {
        Some(dir) => {
            fs::create_dir_all(dir).with_context(|| format!("directory {}", dir.display()))?;
            dir.clone()
        }
        None => scratch.dir.clone(),
    };
    let name = file.file_name().map_or_else(|| "data".into(), |n| n.to_os_string());
    let copy = to.join(if options.to.is_some() { name } else { "copy".into() });
    if fs::canonicalize(&copy).is_ok_and(|c| fs::canonicalize(&file).is_ok_and(|f| f == c)) {
        bail!("{}: the copy would overwrite the file itself", copy.display());
    }

    let here = [rail_ip(0, 1), rail_ip(1, 1)];
    let there = [rail_ip(0, 2), rail_ip(1, 2)];
    let port = free_port(&here, &there)?;
    say(&format!(
        "two nodes, two rails, port {port}:\n  sender    {}\n  receiver  {}\n",
        rails::nid_list(&here),
        rails::nid_list(&there)
    ));
    let mut receiver = Child::start("receive")?;
    receiver.order(&Order::Receive { port, ips: there.to_vec(), copy: copy.clone() })?;
    let mut seen = Seen::default();
    receiver.wait_for(SILENCE_MAX, |t| matches!(t, ChildReport::Ready))?;
    let mut sender = Child::start("send")?;
    sender.order(&Order::Send {
        port,
        ips: here.to_vec(),
        peer: there[0],
        file: file.clone(),
        size,
        seconds: options.seconds,
        free: if options.no_cut { 100 } else { RESTORE_AT },
    })?;
    let found = sender.wait_for(SILENCE_MAX, |t| matches!(t, ChildReport::Discovered { .. }))?;
    if let ChildReport::Discovered { primary, nids } = found {
        say(&format!("discovered {primary}, Multi-Rail, reachable as {}\n", nids.join(" and ")));
    }
    let shown =
        if made_up { "256 MiB of made-up data".to_owned() } else { file.display().to_string() };
    say(&format!("moving {shown}, {}\n", HumanBytes(size)));

    let outcome = watch(options, size, &mut sender, &mut receiver, &mut seen);
    if outcome.is_err() && options.to.is_some() {
        // Never a silent short file.
        let _ = fs::remove_file(&copy);
    }
    outcome?;
    let good = report(&seen, size, made_up, options.to.is_some().then_some(copy.as_path()));
    Ok(good)
}

/// Draws the progress, cuts and restores the rail, and collects both reports.
fn watch(
    options: &Options,
    size: u64,
    sender: &mut Child,
    receiver: &mut Child,
    seen: &mut Seen,
) -> anyhow::Result<()> {
    let bar = progress_bar(size);
    let (mut cut, mut restored) = (None, options.no_cut);
    let mut last = (Instant::now(), Vec::<u64>::new());
    while seen.sent.is_none() || seen.received.is_none() {
        if let Some(news) = receiver.poll(Duration::ZERO)? {
            match news {
                ChildReport::Received(report) => seen.received = Some(report),
                ChildReport::Failed { why } => bail!("receiver: {why}"),
                _ => {}
            }
        }
        if seen.sent.is_some() {
            // The sender is done and the receiver checks what it has.
            if seen.received.is_none() {
                match receiver.wait_for(SILENCE_MAX, |t| matches!(t, ChildReport::Received(_)))? {
                    ChildReport::Received(report) => seen.received = Some(report),
                    _ => unreachable!("only reports are waited for"),
                }
            }
            continue;
        }
        match sender.poll(Duration::from_millis(200))? {
            Some(ChildReport::Progress { done, rails }) => {
                seen.lowest.resize(rails.len(), 1000);
                for (low, rail) in seen.lowest.iter_mut().zip(&rails) {
                    *low = (*low).min(rail.health);
                }
                let elapsed = last.0.elapsed().as_secs_f64();
                if elapsed > 0.2 {
                    bar.set_message(rates(&rails, &last.1, elapsed));
                    last = (Instant::now(), rails.iter().map(|r| r.bytes).collect());
                }
                seen.rails = rails;
                bar.set_position(done);
                let percent = (done * 100).checked_div(size).unwrap_or(100);
                if cut.is_none() && !options.no_cut && percent >= CUT_AT {
                    cut = Some(Instant::now());
                    for child in [&mut *sender, &mut *receiver] {
                        child.order(&Order::Cut { rail: 1 })?;
                    }
                    announce(&bar, "--- rail 2 is cut ---");
                }
                let long_enough = cut.is_some_and(|cut| cut.elapsed() >= CUT_MIN);
                if long_enough && !restored && percent >= RESTORE_AT {
                    restored = true;
                    for child in [&mut *sender, &mut *receiver] {
                        child.order(&Order::Restore { rail: 1 })?;
                    }
                    announce(&bar, "--- rail 2 is back ---");
                }
            }
            Some(ChildReport::Healed { after_ms }) => {
                let seconds = after_ms as f64 / 1000.0;
                announce(
                    &bar,
                    &format!("--- rail 2 carries its share again after {seconds:.1} s ---"),
                );
            }
            Some(ChildReport::Sent(report)) => {
                seen.rails.clone_from(&report.rails);
                bar.set_position(size);
                bar.finish();
                seen.sent = Some(report);
            }
            Some(ChildReport::Failed { why }) => bail!("sender: {why}"),
            Some(_) => {}
            None if sender.silence() > SILENCE_MAX => bail!("sender: no sign of life"),
            None => {}
        }
    }
    Ok(())
}

/// The table at the end. True if every byte arrived once.
fn report(seen: &Seen, size: u64, made_up: bool, copy: Option<&Path>) -> bool {
    let (Some(sent), Some(received)) = (&seen.sent, &seen.received) else { return false };
    let mut out = String::new();
    out.push_str(
        "\nrail  local NID                              bytes sent      health (lowest)\n",
    );
    for (i, rail) in seen.rails.iter().enumerate() {
        let low = seen.lowest.get(i).copied().unwrap_or(1000).min(rail.health);
        out.push_str(&format!(
            "{:<5} {:<34} {:>14}      {} ({low})\n",
            i + 1,
            rail.nid,
            HumanBytes(rail.bytes).to_string(),
            rail.health
        ));
    }
    let equal = sent.sha256 == received.sha256 && received.bytes == size;
    out.push_str(&format!(
        "\nmessages sent again   {} by LNet, {} by the application\n\
         longest stall         {} ms\n\
         time                  {:.2} s\n\
         arrived               {} of {} bytes, {} chunks twice\n\
         SHA-256               {}\n\
         checksum              {}\n",
        sent.resent,
        sent.repeated,
        sent.stall_ms,
        sent.millis as f64 / 1000.0,
        received.bytes,
        size,
        received.duplicates,
        received.sha256,
        if equal { "equal" } else { "DIFFERENT" }
    ));
    if let Some(copy) = copy {
        out.push_str(&format!("copy                  {}\n", copy.display()));
    } else if !made_up {
        out.push_str("copy                  checked and removed (--to DIR keeps it)\n");
    }
    say(&out);
    equal && received.duplicates == 0
}

fn rates(rails: &[RailView], before: &[u64], seconds: f64) -> String {
    let rate = |i: usize, now: u64| {
        let moved = now.saturating_sub(before.get(i).copied().unwrap_or(now));
        format!("rail {} {:>10}/s", i + 1, HumanBytes((moved as f64 / seconds) as u64).to_string())
    };
    rails.iter().enumerate().map(|(i, r)| rate(i, r.bytes)).collect::<Vec<_>>().join("  ")
}

/// A line above the bar; without a terminal, where there is no bar, on standard output.
fn announce(bar: &ProgressBar, line: &str) {
    match bar.is_hidden() {
        true => say(&format!("{line}\n")),
        false => bar.println(line),
    }
}

fn progress_bar(size: u64) -> ProgressBar {
    let bar = ProgressBar::new(size);
    if !io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{bar:30} {percent:>3}% {bytes:>10}  {msg}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

fn rail_ip(rail: u8, host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 71, rail, host))
}

/// A port that is free on all of the addresses.
fn free_port(here: &[IpAddr], there: &[IpAddr]) -> anyhow::Result<u16> {
    for _ in 0..50 {
        let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free TCP port")?;
        let port = probe.local_addr()?.port();
        if here.iter().chain(there).all(|ip| TcpListener::bind((*ip, port)).is_ok()) {
            return Ok(port);
        }
    }
    bail!("no TCP port that is free on {here:?} and {there:?}")
}

fn readable_size(file: &Path) -> anyhow::Result<u64> {
    let named = || format!("file {}", file.display());
    let meta = File::open(file).and_then(|f| f.metadata()).with_context(named)?;
    if !meta.is_file() {
        bail!("{}: not a regular file", named());
    }
    Ok(meta.len())
}

/// To standard output; a reader that has gone away is no error of ours.
fn say(text: &str) {
    let mut out = io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Ctrl-C and SIGTERM leave neither a process nor data behind.
fn end_on_signals(scratch: &Scratch) -> io::Result<()> {
    let dir = scratch.dir.clone();
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            link::kill_all();
            // Files that are being written go with their directory; a second try gets the last one.
            let _ = fs::remove_dir_all(&dir).or_else(|_| fs::remove_dir_all(&dir));
            std::process::exit(128 + signal);
        }
    })?;
    Ok(())
}

/// A directory of our own that goes when we do.
struct Scratch {
    dir: PathBuf,
}

impl Scratch {
    fn new() -> anyhow::Result<Self> {
        let dir = std::env::temp_dir().join(format!("ulnet-demo-{}", std::process::id()));
        fs::create_dir_all(&dir).with_context(|| format!("directory {}", dir.display()))?;
        Ok(Self { dir })
    }

    /// A file of bytes that don't repeat.
    fn make_up_data(&self) -> anyhow::Result<PathBuf> {
        let path = self.dir.join("data");
        let named = || format!("file {}", path.display());
        let mut file = File::create(&path).with_context(named)?;
        let mut rng = lnet_types::Prng::new(71);
        let mut block = vec![0; 1 << 20];
        for _ in 0..MADE_UP_BYTES >> 20 {
            for word in block.chunks_exact_mut(8) {
                word.copy_from_slice(&rng.next_u64().to_le_bytes());
            }
            file.write_all(&block).with_context(named)?;
        }
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}
