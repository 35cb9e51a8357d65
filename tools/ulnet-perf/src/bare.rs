//! The same without LNet: frames over one TCP socket, as fast as the system lets them go. What LNet
//! costs is the difference.
//!
//! A connection begins with eight bytes: what is wanted, and the length of a frame. It ends with the
//! client's end of file and the server's [`Counters`]: bytes it has read and processor time it spent.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use anyhow::Context as _;
use lnet_rt::Wait;

use super::node;
use super::options::{Limit, Test};
use super::protocol::{Counters, cpu_time};
use super::report::{Ran, Row, histogram};

const ECHO: u32 = 1;
const SINK: u32 = 2;

/// The longest frame.
const FRAME_MAX: usize = 2 << 20;

/// A socket that is waited for, or looked at again and again.
struct Line {
    stream: TcpStream,
    spin: bool,
}

impl Line {
    fn new(stream: TcpStream, spin: bool) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let spin = spin && node::wait() == Wait::Spin;
        stream.set_nonblocking(spin)?;
        Ok(Self { stream, spin })
    }

    /// Some bytes, 0 at the end.
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(to) {
                Err(e) if self.spin && e.kind() == ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Fills `to`; false at the end of the stream.
    fn read_all(&mut self, to: &mut [u8]) -> io::Result<bool> {
        let mut at = 0;
        while let Some(rest) = to.get_mut(at..).filter(|rest| !rest.is_empty()) {
            match self.read(rest)? {
                0 => return Ok(false),
                n => at += n,
            }
        }
        Ok(true)
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Err(e) if self.spin && e.kind() == ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                written => bytes = bytes.get(written?..).unwrap_or_default(),
            }
        }
        Ok(())
    }
}

/// Serves bare connections for ever; calls `ready` when they can come.
pub(super) fn serve(ip: IpAddr, port: u16, spin: bool, ready: impl FnOnce()) -> anyhow::Result<()> {
    let listener =
        TcpListener::bind((ip, port)).with_context(|| format!("listening on {ip}:{port}"))?;
    ready();
    for stream in listener.incoming() {
        let line = Line::new(stream.context("accept")?, spin)?;
        thread::spawn(move || {
            if let Err(e) = answer(line) {
                eprintln!("ulnet perf server: bare connection: {e}");
            }
        });
    }
    Ok(())
}

fn answer(mut line: Line) -> io::Result<()> {
    let mut head = [0; 8];
    if !line.read_all(&mut head)? {
        return Ok(());
    }
    let [a, b, c, d, e, f, g, h] = head;
    let (what, frame) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    let wrong = || io::Error::from(ErrorKind::InvalidData);
    let mut buffer = vec![0; (frame as usize).min(FRAME_MAX)];
    let begun = cpu_time();
    let mut bytes = 0;
    match what {
        ECHO => {
            while line.read_all(&mut buffer)? {
                line.write_all(&buffer)?;
                bytes += buffer.len() as u64;
            }
        }
        SINK => loop {
            match line.read(&mut buffer)? {
                0 => break,
                n => bytes += n as u64,
            }
        },
        _ => return Err(wrong()),
    }
    line.write_all(&Counters { puts: bytes, cpu: cpu_time() - begun }.to_bytes())
}

/// Runs one test with frames of `frame` bytes that stand for `size` bytes of payload.
pub(super) fn measure(
    at: (IpAddr, u16),
    spin: bool,
    test: Test,
    size: u32,
    frame: u32,
    limit: Limit,
) -> anyhow::Result<Row> {
    let stream =
        TcpStream::connect(at).with_context(|| format!("bare server at {}:{}", at.0, at.1))?;
    let mut line = Line::new(stream, spin)?;
    let what = if test == Test::Latency { ECHO } else { SINK };
    line.write_all(&what.to_le_bytes())?;
    line.write_all(&frame.to_le_bytes())?;
    let mut buffer = vec![0; frame as usize];
    let mut round_trips = histogram()?;
    let mut operations = 0;
    let cpu = cpu_time();
    let begin = Instant::now();
    let mut last = begin;
    while operations < limit.count && last - begin < limit.time {
        line.write_all(&buffer)?;
        if test == Test::Latency {
            anyhow::ensure!(line.read_all(&mut buffer)?, "the bare server has gone");
        }
        let now = Instant::now();
        round_trips.saturating_record((now - last).as_nanos() as u64);
        last = now;
        operations += 1;
    }
    line.stream.shutdown(Shutdown::Write)?;
    let mut record = [0; Counters::LEN];
    anyhow::ensure!(line.read_all(&mut record)?, "the bare server has gone");
    let elapsed = begin.elapsed();
    let counters = Counters::from_bytes(&record).context("counters")?;
    let wire_bytes = operations * u64::from(frame);
    let ran = Ran { operations, elapsed, cpu: (cpu_time() - cpu, counters.cpu), wire_bytes };
    let row = Row::new(test, "bare", size, 1, &ran);
    Ok(if test == Test::Latency { row.with_latency(&round_trips) } else { row })
}
