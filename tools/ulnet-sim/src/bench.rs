//! `ulnet sim bench`: large worlds, as fast as they go. What it measures is a figure, never a test.

use core::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use clap::{Args, ValueEnum};
use lnet_sim::{Messages, Sim};

/// Which world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Clients and servers on one network, exchanging small messages without pause.
    Rate,
    /// Clients and servers with targets, calling without pause.
    Rpc,
    /// Clients behind routers who discover their servers and ping them.
    Site,
    /// Nodes that do nothing.
    Idle,
}

/// Measure how fast a world is played, and the memory that it takes.
#[derive(Clone, Debug, Args)]
pub(super) struct Bench {
    /// Which world.
    #[arg(value_enum, default_value = "rate")]
    world: Kind,

    /// Clients, or idle nodes [default: 90, 10000 or 100000].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=180_000))]
    nodes: Option<u32>,

    /// Virtual seconds [default: 1 or 60].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,
}

/// Clients of a site that share their four routers.
const CLIENTS_PER_QUARTER: u32 = 400;

impl Bench {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let text = self.text();
        let scenario = Arc::new(lnet_scenario::parse("bench", &text)?);
        let nodes = scenario.world.nodes.len();
        let begun = Instant::now();
        let mut sim = Sim::new(scenario.clone(), None, Messages::new());
        let built = begun.elapsed();
        let memory_built = memory();
        let begun = Instant::now();
        sim.run_until(lnet_types::Instant::ZERO + scenario.duration)?;
        let took = begun.elapsed().as_secs_f64();
        let tally = sim.tally();
        println!("world        {:?}: {nodes} nodes", self.world);
        println!("built        {:.2} s, {} MiB", built.as_secs_f64(), memory_built >> 20);
        println!("played       {:?} in {took:.2} s, {} MiB", scenario.duration, memory() >> 20);
        println!(
            "messages     {} ({:.0} per second), {} of them control; {} events",
            tally.messages,
            tally.messages as f64 / took,
            tally.control,
            tally.events
        );
        let (ended, failed) = (tally.completed, tally.errors);
        println!(
            "exchanges    {ended} succeeded ({:.0} per second), {failed} failed",
            ended as f64 / took
        );
        for complaint in tally.complaints.iter().take(5) {
            println!("note         {complaint}");
        }
        Ok(())
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let (nodes, seconds) = match self.world {
            Kind::Rate | Kind::Rpc => (90, 1),
            Kind::Site => (10_000, 60),
            Kind::Idle => (100_000, 60),
        };
        let (nodes, seconds) = (self.nodes.unwrap_or(nodes), self.seconds.unwrap_or(seconds));
        // Writing to a string does not fail.
        let _ = writeln!(text, "name = \"bench\"\nduration = \"{seconds}s\"");
        match self.world {
            Kind::Rate => text.push_str(&rate(nodes)),
            Kind::Rpc => rpc(&mut text, nodes),
            Kind::Site => site(&mut text, nodes),
            Kind::Idle => {
                let _ = write!(
                    text,
                    "[[net]]\nname = \"tcp\"\n[[node]]\nname = \"n\"\ncount = {nodes}\nrails = [\"tcp\", \"tcp\"]\n"
                );
            }
        }
        text
    }
}

fn rate(clients: u32) -> String {
    format!(
        "[[net]]\nname = \"tcp\"\nlatency = \"20us\"\n\
         [[node]]\nname = \"client\"\ncount = {clients}\nrails = [\"tcp\"]\n\
         [[node]]\nname = \"server\"\ncount = 10\nrails = [\"tcp\"]\n\
         [[workload]]\nkind = \"put\"\nfrom = \"client\"\nto = \"server\"\nwindow = 4\nsize = 8\nack = true\nverify = false\n"
    )
}

/// Ten servers with a target each, and clients with one server each.
fn rpc(text: &mut String, clients: u32) {
    text.push_str("[[net]]\nname = \"tcp\"\nlatency = \"20us\"\n");
    for n in 1..=10 {
        let count = clients / 10 + u32::from(n <= clients % 10);
        let _ = write!(text, "[[node]]\nname = \"server{n}\"\nrails = [\"tcp\"]\n");
        let _ = write!(
            text,
            "[[target]]\nname = \"t{n}\"\nkind = \"list\"\non = \"server{n}\"\ncommit = \"100ms\"\n"
        );
        if count > 0 {
            let _ = write!(
                text,
                "[[node]]\nname = \"client{n}\"\ncount = {count}\nrails = [\"tcp\"]\n\
                 [[client]]\non = \"client{n}\"\ntargets = \"t{n}\"\n\
                 [[workload]]\nkind = \"rpc\"\nfrom = \"client{n}\"\nto = \"t{n}\"\nwindow = 8\nreads = \"50%\"\n"
            );
        }
    }
}

fn site(text: &mut String, clients: u32) {
    let quarters = clients.div_ceil(CLIENTS_PER_QUARTER);
    text.push_str("[[net]]\nname = \"tcp\"\n[[net]]\nname = \"o2ib\"\nlatency = \"5us\"\n");
    for q in 1..=quarters {
        let count = CLIENTS_PER_QUARTER.min(clients - (q - 1) * CLIENTS_PER_QUARTER);
        let _ = write!(
            text,
            "[[node]]\nname = \"router{q}\"\ncount = 4\nrouter = true\nrails = [\"tcp\", \"o2ib\"]\n\
             tunables = {{ tiny_buffers = 512, small_buffers = 512, large_buffers = 32 }}\n\
             [[node]]\nname = \"client{q}\"\ncount = {count}\nrails = [\"tcp\", \"tcp\"]\n\
             routes = [{{ net = \"o2ib\", gateway = \"router{q}\" }}]\n"
        );
    }
    let names = |what: &str| {
        let all: Vec<String> = (1..=quarters).map(|q| format!("\"{what}{q}\"")).collect();
        all.join(", ")
    };
    let _ = write!(
        text,
        "[[node]]\nname = \"server\"\ncount = 200\nrails = [\"o2ib\", \"o2ib\"]\n\
         routes = [{{ net = \"tcp\", gateway = [{}] }}]\n\
         [[workload]]\nkind = \"put\"\nfrom = [{}]\nto = \"server\"\nevery = \"5s\"\nsize = 256\nverify = false\n",
        names("router"),
        names("client"),
    );
}

/// The most memory that this process has had, bytes; 0 where the system does not say.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
