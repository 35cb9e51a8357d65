//! Replays the corpus of each target, then mutations of it for a given time.

use std::num::NonZero;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use fuzz_replay::{TARGETS, Target, corpus, generate, import, mutate};
use lnet_types::Prng;

const USAGE: &str = "\
Usage: fuzz-replay [--seconds N] [--seed S] [TARGET…]
       fuzz-replay --list | --generate | --import

Replays fuzz/corpus/TARGET/* through each target (all, unless some are named), then mutations of it
for N seconds each (1), one target on each processor at a time. An input that makes a target panic is
kept under fuzz/artifacts, and the exit status is 1.

  --seed S      seed of the mutations (from the clock; printed, so that a run can be repeated)
  --list        name the targets
  --generate    write fuzz/Cargo.toml and fuzz/fuzz_targets from the table of targets
  --import      write the inputs that golden bytes and captures give to the corpus";

struct Options {
    seconds: u64,
    seed: u64,
    targets: Vec<Target>,
}

fn main() -> ExitCode {
    let done = match parse(std::env::args().skip(1)) {
        Ok(Some(options)) => replay(&options),
        Ok(None) => Ok(true),
        Err(why) => Err(why),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("fuzz-replay: {why}");
            ExitCode::from(2)
        }
    }
}

/// The options; `None` if the command is done already.
fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options { seconds: 1, seed: seed_from_clock(), targets: Vec::new() };
    while let Some(arg) = args.next() {
        let mut number = |what| {
            let value = args.next().unwrap_or_default();
            value.parse().map_err(|_| format!("{what} '{value}': expected a number"))
        };
        match arg.as_str() {
            "--seconds" => options.seconds = number("--seconds")?,
            "--seed" => options.seed = number("--seed")?,
            "--list" => {
                TARGETS.iter().for_each(|target| println!("{}", target.name));
                return Ok(None);
            }
            "--generate" => return generate().map(|()| None),
            "--import" => {
                let inputs = import::import().map_err(|e| e.to_string())?;
                println!("{inputs} inputs written");
                return Ok(None);
            }
            "--help" | "-h" => {
                println!("{USAGE}");
                return Ok(None);
            }
            option if option.starts_with('-') => {
                return Err(format!("unknown option '{option}'\n{USAGE}"));
            }
            name => match Target::named(name) {
                Some(target) => options.targets.push(target),
                None => return Err(format!("unknown target '{name}': see --list")),
            },
        }
    }
    if options.targets.is_empty() {
        options.targets = TARGETS.to_vec();
    }
    Ok(Some(options))
}

fn seed_from_clock() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_nanos() as u64)
}

fn generate() -> Result<(), String> {
    for (path, text) in generate::files() {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        }
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

/// Runs the targets, one on each processor at a time; false if one of them broke.
fn replay(options: &Options) -> Result<bool, String> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut sound = true;
        while let Some(target) = options.targets.get(next.fetch_add(1, Ordering::Relaxed)) {
            sound &= replay_one(target, options)?;
        }
        Ok::<bool, String>(sound)
    };
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let mut sound = true;
        for worker in workers {
            sound &= worker.join().map_err(|_| "a worker has ended by a panic".to_owned())??;
        }
        Ok(sound)
    })
}

fn replay_one(target: &Target, options: &Options) -> Result<bool, String> {
    let name = target.name;
    let corpus = corpus::load(target).map_err(|e| e.to_string())?;
    for (path, input) in &corpus {
        if !target.survives(input) {
            println!("{name}: FAILED on {}", path.display());
            return Ok(false);
        }
    }
    let inputs: Vec<_> = corpus.into_iter().map(|(_, input)| input).collect();
    let mut prng = Prng::new(options.seed);
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let mut runs = 0u64;
    // The clock is asked now and then only: most inputs take less than a microsecond.
    while options.seconds > 0 && (!runs.is_multiple_of(64) || Instant::now() < end) {
        let input = mutate::mutation(&mut prng, &inputs);
        runs += 1;
        if !target.survives(&input) {
            let kept = corpus::keep_artifact(target, &input).map_err(|e| e.to_string())?;
            println!(
                "{name}: FAILED on mutation {runs} of seed {}, kept as {}",
                options.seed,
                kept.display()
            );
            return Ok(false);
        }
    }
    println!("{name}: {} corpus inputs, {runs} mutations, seed {}", inputs.len(), options.seed);
    Ok(true)
}
