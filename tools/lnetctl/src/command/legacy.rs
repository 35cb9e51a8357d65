//! `legacy2yaml` (N-15): the module parameters of kernel nodes as a configuration in YAML. Asks no
//! daemon.

use std::fs::{self, File};
use std::io::{self, Read as _};

use lnet_config::{LegacyError, ModuleOption, ModuleParameters, legacy_options, merge_legacy};

use crate::Session;
use crate::args::Args;
use crate::table::Command;

/// What cannot be read, and wrong words on the command line (N-15).
const INPUT_ERROR: i32 = 1;
pub(crate) const USAGE_ERROR: i32 = 2;
/// Longest input, bytes.
const INPUT_MAX: u64 = 1 << 20;
/// The parameters that a file may be the text of.
const NAMES: [&str; 3] = ["networks", "ip2nets", "routes"];

pub(crate) fn legacy2yaml(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let options = match options(session, args) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let mut parameters = match ModuleParameters::from_options(&options) {
        Ok(parameters) => parameters,
        Err(e) => return wrong(session, &e),
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
    for setting in &parameters.requests {
        let (name, value) = (&setting.name, setting.value);
        session.err_line(format_args!(
            "lnetctl: {name} is not part of YAML: lctl set_param {name}={value}"
        ));
    }
    let yaml = match parameters.to_legacy_yaml(&options) {
        Ok(yaml) => yaml,
        Err(e) => return wrong(session, &e),
    };
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

/// Everything that is named, files before operands; standard input if nothing is.
fn options(session: &mut Session<'_>, args: &Args) -> Result<Vec<ModuleOption>, i32> {
    let mut texts: Vec<(String, Option<&'static str>)> = Vec::new();
    // What is named beside a modprobe file counts more.
    if let Some(path) = args.value("modprobe") {
        texts.push((read(session, Some(path))?, None));
    }
    for name in NAMES {
        if let Some(path) = args.value(name) {
            texts.push((read(session, Some(path))?, Some(name)));
        }
    }
    texts.extend(args.operands.iter().map(|operand| (operand.clone(), None)));
    if texts.is_empty() {
        texts.push((read(session, None)?, None));
    }
    let mut all = Vec::new();
    for (text, name) in texts {
        let (options, problems) = legacy_options(&text, name);
        for problem in problems {
            session.err_line(format_args!("lnetctl: line {}: {}", problem.line, problem.what));
        }
        all.extend(options);
    }
    merge_legacy(&mut all);
    Ok(all)
}

fn wrong(session: &mut Session<'_>, error: &LegacyError) -> i32 {
    session.err_line(format_args!("lnetctl: legacy2yaml: {error}"));
    INPUT_ERROR
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
