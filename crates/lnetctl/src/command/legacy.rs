//! `legacy2yaml` (N-15): the module parameters of kernel nodes as a configuration in YAML. Asks no
//! daemon.

use std::fs::{self, File};
use std::io::{self, Read as _};

use lnet_config::{ModuleOption, ModuleParameters};

use crate::Session;
use crate::args::Args;
use crate::table::Command;

/// What cannot be read, and wrong words on the command line (N-15).
const INPUT_ERROR: i32 = 1;
const USAGE_ERROR: i32 = 2;
/// Longest input, bytes.
const INPUT_MAX: u64 = 1 << 20;
/// The parameters that a file or an operand may be the text of.
const NAMES: [&str; 3] = ["networks", "ip2nets", "routes"];

pub(crate) fn legacy2yaml(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let mut parameters = match parameters(session, args) {
        Ok(parameters) => parameters,
        Err(code) => return code,
    };
    if args.has("default-hop") {
        let Some(hops) =
            u32::try_from(args.level("default-hop")).ok().filter(|n| (1..=255).contains(n))
        else {
            session.err_line("lnetctl: legacy2yaml: --default-hop: expected 1 to 255");
            return USAGE_ERROR;
        };
        for route in &mut parameters.routes {
            route.hops.get_or_insert(hops);
        }
    }
    for note in &parameters.notes {
        if let Some(why) = &note.ignored {
            session.err_line(format_args!("lnetctl: line {}: {}: {why}", note.line, note.text));
        }
    }
    let yaml = parameters.to_config().to_yaml();
    match args.value("output") {
        None => {
            session.out.push_str(&yaml);
            0
        }
        Some(path) => match fs::write(path, yaml) {
            Ok(()) => 0,
            Err(e) => failed(session, path, &e),
        },
    }
}

fn parameters(session: &mut Session<'_>, args: &Args) -> Result<ModuleParameters, i32> {
    let mut options = Vec::new();
    let option = |name: &str, value: String| ModuleOption {
        line: 1,
        module: "lnet".to_owned(),
        name: name.to_owned(),
        value,
    };
    for operand in &args.operands {
        match operand.split_once('=').filter(|(name, _)| NAMES.contains(name)) {
            Some((name, text)) => options.push(option(name, text.to_owned())),
            None => {
                session.err_line(format_args!(
                    "lnetctl: legacy2yaml: '{operand}': expected networks=, ip2nets= or routes="
                ));
                return Err(USAGE_ERROR);
            }
        }
    }
    for name in NAMES {
        if let Some(path) = args.value(name) {
            let text = read(session, Some(path))?;
            options.push(option(name, text.trim_end().to_owned()));
        }
    }
    let outcome = match args.value("modprobe") {
        Some(path) => {
            let text = read(session, Some(path))?;
            // What is named beside the file counts more.
            let (mut all, problems) = lnet_config::parse_modprobe(&text);
            for problem in problems {
                session.err_line(format_args!("lnetctl: line {}: {}", problem.line, problem.what));
            }
            all.extend(options);
            ModuleParameters::from_options(&all)
        }
        None if options.is_empty() => ModuleParameters::from_modprobe(&read(session, None)?),
        None => ModuleParameters::from_options(&options),
    };
    outcome.map_err(|e| {
        session.err_line(format_args!("lnetctl: legacy2yaml: {e}"));
        INPUT_ERROR
    })
}

/// The text of a file, or of standard input.
fn read(session: &mut Session<'_>, path: Option<&str>) -> Result<String, i32> {
    let mut text = String::new();
    let outcome = match path {
        Some(path) => File::open(path).and_then(|f| f.take(INPUT_MAX).read_to_string(&mut text)),
        None => io::stdin().lock().take(INPUT_MAX).read_to_string(&mut text),
    };
    match outcome {
        Ok(n) if n as u64 == INPUT_MAX => {
            let e = io::Error::other("longer than 1 MiB");
            Err(failed(session, path.unwrap_or("standard input"), &e))
        }
        Ok(_) => Ok(text),
        Err(e) => Err(failed(session, path.unwrap_or("standard input"), &e)),
    }
}

fn failed(session: &mut Session<'_>, path: &str, error: &io::Error) -> i32 {
    session.err_line(format_args!("lnetctl: legacy2yaml: {path}: {error}"));
    INPUT_ERROR
}
