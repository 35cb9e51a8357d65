//! Locks of a Redis server as its manual has them for one server, for `bench/locks.sh`: a key that
//! expires, set if it is not there; given back by a script that looks whose it is; renewed while it is
//! held. Each grant counts up a fencing number in the same script, as `ulnet`'s grants have one.
//!
//! ```text
//! redis-locks rate ADDR CLIENTS SECONDS   takes and gives back, each client a name of its own; JSON
//! redis-locks hold ADDR NAME TTL_MS       takes, says so, renews at each third of the time until killed
//! redis-locks take ADDR NAME TTL_MS       tries each 10 ms until it has the lock, says so
//! ```

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const TAKE: &str = "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
                    return redis.call('incr', KEYS[2]) else return 0 end";
const GIVE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                    return redis.call('del', KEYS[1]) else return 0 end";
const RENEW: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                     return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";

/// How long a lock of the rate test would last.
const TTL_MS: u64 = 10_000;

struct Client {
    stream: BufReader<TcpStream>,
    take: String,
    give: String,
    renew: String,
    token: String,
}

impl Client {
    fn new(addr: &str, token: String) -> Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        let stream = BufReader::new(stream);
        let mut client =
            Self { stream, take: String::new(), give: String::new(), renew: String::new(), token };
        let mut load = |script: &str| client.call(&["SCRIPT", "LOAD", script]);
        let (take, give, renew) = (load(TAKE)?, load(GIVE)?, load(RENEW)?);
        (client.take, client.give, client.renew) = (take, give, renew);
        Ok(client)
    }

    /// A command and its answer: a number, a word or a string, as text.
    fn call(&mut self, words: &[&str]) -> Result<String> {
        let mut out = format!("*{}\r\n", words.len());
        for word in words {
            out.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.stream.get_mut().write_all(out.as_bytes())?;
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err("the server has closed the connection".into());
        }
        let (kind, rest) = line.trim_end().split_at_checked(1).ok_or("an empty answer")?;
        match kind {
            ":" | "+" => Ok(rest.to_owned()),
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>()? + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Ok(String::from_utf8(bytes)?)
            }
            _ => Err(format!("redis: {line}").into()),
        }
    }

    /// Its fencing number, 0 if another client has the lock.
    fn take(&mut self, name: &str, ttl_ms: u64) -> Result<u64> {
        let (script, token) = (self.take.clone(), self.token.clone());
        let ttl = ttl_ms.to_string();
        Ok(self.call(&["EVALSHA", &script, "2", name, "fence", &token, &ttl])?.parse()?)
    }

    fn give(&mut self, name: &str) -> Result<bool> {
        let (script, token) = (self.give.clone(), self.token.clone());
        Ok(self.call(&["EVALSHA", &script, "1", name, &token])? == "1")
    }

    fn renew(&mut self, name: &str, ttl_ms: u64) -> Result<bool> {
        let (script, token) = (self.renew.clone(), self.token.clone());
        let ttl = ttl_ms.to_string();
        Ok(self.call(&["EVALSHA", &script, "1", name, &token, &ttl])? == "1")
    }
}

/// How long each lock took to be granted, microseconds.
fn run(addr: &str, n: usize, time: Duration) -> Result<Vec<f64>> {
    let mut client = Client::new(addr, format!("client-{n}"))?;
    let name = format!("jobs/{n}");
    let (begin, mut took) = (Instant::now(), Vec::new());
    loop {
        let asked = Instant::now();
        if asked - begin >= time {
            return Ok(took);
        }
        let fence = client.take(&name, TTL_MS)?;
        took.push(asked.elapsed().as_nanos() as f64 / 1000.0);
        if fence == 0 || !client.give(&name)? {
            return Err(format!("{name}: another client has it").into());
        }
    }
}

fn rate(addr: &str, clients: usize, time: Duration) -> Result<()> {
    let threads: Vec<_> = (0..clients)
        .map(|n| {
            let addr = addr.to_owned();
            thread::spawn(move || run(&addr, n, time))
        })
        .collect();
    let mut all = Vec::new();
    for thread in threads {
        all.extend(thread.join().map_err(|_| "a client has failed")??);
    }
    all.sort_by(f64::total_cmp);
    let at = |q: f64| all.get((all.len() as f64 * q) as usize).copied().unwrap_or(f64::NAN);
    println!(
        "{{\"clients\": {clients}, \"per_second\": {:.0}, \"p50_us\": {:.1}, \"p99_us\": {:.1}}}",
        all.len() as f64 / time.as_secs_f64(),
        at(0.5),
        at(0.99)
    );
    Ok(())
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["rate", addr, clients, seconds] => {
            rate(addr, clients.parse()?, Duration::from_secs_f64(seconds.parse()?))
        }
        [what @ ("hold" | "take"), addr, name, ttl] => {
            let ttl: u64 = ttl.parse()?;
            let mut client = Client::new(addr, format!("{what}-{}", std::process::id()))?;
            while client.take(name, ttl)? == 0 {
                thread::sleep(Duration::from_millis(10));
            }
            println!("locked");
            if what == "take" {
                return Ok(());
            }
            loop {
                thread::sleep(Duration::from_millis(ttl / 3));
                if !client.renew(name, ttl)? {
                    return Err(format!("{name}: lost").into());
                }
            }
        }
        _ => Err("expected rate ADDR CLIENTS SECONDS, or hold|take ADDR NAME TTL_MS".into()),
    }
}
