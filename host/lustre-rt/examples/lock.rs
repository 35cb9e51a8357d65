//! Processes that share a file by locks on its parts. Each writes under a lock, and shows the number of
//! the lock where it writes: a process that was stopped, lost its lock without knowing it and goes on,
//! is refused.
//!
//! ```text
//! lock serve 10.0.0.1 988 DIR
//! lock write 10.0.0.2 988 10.0.0.1@tcp FILE OFFSET TEXT     waits for a line when it has the lock
//! ```
//!
//! The server gives a holder two seconds to give a lock back that another one wants; its default is
//! 100. Here the file system checks numbers for one machine, by a file beside the file; between
//! machines whatever stores the data has to.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _, stdin};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use lnet_rt::{NodeBuilder, NodeHandle};
use lustre_rt::store::DirLock;
use lustre_rt::{Locks, Mode, RpcNode, TargetSpec, Tunables};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["serve", ip, port, dir] => serve(ip, port, dir),
        ["write", ip, port, server, file, at, text] => {
            let (node, rpc) = start(ip, port)?;
            let locks = Locks::new(&rpc, "locks", &format!("writer-{ip}"), vec![server.parse()?])?;
            write(&locks, Path::new(file), at.parse()?, text.as_bytes())?;
            locks.disconnect()?;
            node.stop(Duration::from_secs(1)).blocking();
            Ok(())
        }
        _ => Err("expected serve IP PORT DIR, or write IP PORT SERVER FILE OFFSET TEXT".into()),
    }
}

fn start(ip: &str, port: &str) -> Result<(NodeHandle, RpcNode), Box<dyn Error>> {
    let secs = Duration::from_secs;
    let tunables = Tunables { ldlm_enqueue_min: secs(2), at_max: secs(2), ..Tunables::default() };
    let node = NodeBuilder::new().tcp(ip.parse()?, port.parse()?).start()?;
    let rpc = RpcNode::start(&node, tunables)?;
    Ok((node, rpc))
}

fn serve(ip: &str, port: &str, dir: &str) -> Result<(), Box<dyn Error>> {
    let (_node, rpc) = start(ip, port)?;
    rpc.serve_targets()?;
    let target: TargetSpec = format!("locks=lock:{dir}").parse()?;
    rpc.start_target(&target, DirLock::take(&target.dir)?)?;
    println!("serving");
    loop {
        std::thread::park();
    }
}

fn write(locks: &Locks, file: &Path, at: u64, text: &[u8]) -> Result<(), Box<dyn Error>> {
    let end = at + text.len() as u64;
    let name = file.to_str().ok_or("expected a name in UTF-8")?;
    let lock = locks.enqueue(name, Mode::Pw).range(at..end).blocking()?;
    let fence = lock.fence().ok_or("expected a lock with a number")?;
    println!("locked");
    stdin().read_line(&mut String::new())?;
    // Whether the lock is still held can't be known here: the store decides.
    println!("{}", if store(file, at, text, fence)? { "written" } else { "refused" });
    Ok(())
}

/// Writes, unless a part of it was written under a later lock. `false`: it was.
fn store(file: &Path, at: u64, text: &[u8], fence: u64) -> std::io::Result<bool> {
    let open = |path: &Path| {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
    };
    let mut numbers: File = open(&file.with_extension("numbers"))?;
    // One at a time, on this machine.
    numbers.lock()?;
    let mut text_of = String::new();
    numbers.read_to_string(&mut text_of)?;
    let end = at + text.len() as u64;
    let later = text_of.lines().filter_map(|line| {
        let mut words = line.split(' ').filter_map(|word| word.parse::<u64>().ok());
        Some((words.next()?, words.next()?, words.next()?))
    });
    if later.into_iter().any(|(start, stop, last)| start < end && at < stop && last > fence) {
        return Ok(false);
    }
    numbers.seek(SeekFrom::End(0))?;
    writeln!(numbers, "{at} {end} {fence}")?;
    numbers.sync_data()?;
    open(file)?.write_all_at(text, at)?;
    Ok(true)
}
