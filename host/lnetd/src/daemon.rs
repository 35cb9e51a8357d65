//! The life of the process: options, log, control socket, configuration, signals, end.

use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Parser as _;
use lnet::Profile;
use lnet_config::{Config, ModuleParameters};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::prelude::*;

use crate::Options;
use crate::background::{self, Role};
use crate::control::Control;
use crate::credentials::{Group, Guard};
use crate::nets::Scene;
use crate::params;
use crate::server::Server;
use crate::{http, reload, service};

/// How long messages in hand may take when the daemon ends.
const GRACE: Duration = Duration::from_secs(2);

/// Runs the daemon with the given arguments, the first of which is its name.
pub fn main(args: impl IntoIterator<Item = std::ffi::OsString>) -> ExitCode {
    let mut options = match Options::try_parse_from(args) {
        Ok(options) => options,
        Err(e) => {
            // Help goes to stdout with 0, an error to stderr with 2.
            let code = u8::try_from(e.exit_code()).unwrap_or(2);
            let _ = e.print();
            return ExitCode::from(code);
        }
    };
    let outcome = match options.background {
        true => in_background(&mut options),
        false => run(&mut options, || {}),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("lnetd: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the daemon in a process of its own. The error of a daemon that does not become ready is the
/// caller's.
fn in_background(options: &mut Options) -> anyhow::Result<()> {
    let Options { config, modprobe, socket, parameters, pid_file, .. } = options;
    // Before the directory changes. The socket, too, if it is the default one.
    socket.get_or_insert_with(lnet_admin::default_socket);
    let paths = [config, modprobe, socket, parameters, pid_file];
    paths.into_iter().flatten().try_for_each(background::anchored)?;
    let mut ready = match background::enter(options.log.as_deref())? {
        Role::Caller => return Ok(()),
        Role::Daemon(ready) => Some(ready),
    };
    let outcome = run(options, || {
        if let Some(ready) = ready.take() {
            ready.ready();
        }
    });
    match (outcome, ready) {
        (Err(e), Some(ready)) => {
            ready.failed(&format!("{e:#}"));
            std::process::exit(1);
        }
        (outcome, _) => outcome,
    }
}

/// The profile is that of the file, unless the command line names another one: what a file says is never
/// passed over.
fn take_profile(options: &mut Options, wanted: &Config) -> anyhow::Result<()> {
    let Some((pos, name)) = &wanted.profile else { return Ok(()) };
    let file = options.config.as_deref().unwrap_or_else(|| Path::new("")).display();
    let Some(theirs) = Profile::from_name(name) else {
        let names: Vec<_> = Profile::ALL.iter().map(|p| p.name()).collect();
        let names = names.join(", ");
        return Err(anyhow!(
            "configuration {file}: profile {name} at {pos}: expected one of {names}"
        ));
    };
    match options.profile {
        Some(own) if own != theirs => {
            let own = own.name();
            Err(anyhow!(
                "configuration {file}: profile {name} at {pos}: must be {own}, that of --profile"
            ))
        }
        _ => {
            options.profile = Some(theirs);
            Ok(())
        }
    }
}

/// What is logged: RUST_LOG says it (`info`, `warn,lnet=debug`), else the options do.
fn log_filter(quiet: bool) -> anyhow::Result<Targets> {
    match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => text.parse().map_err(|e| {
            anyhow!("RUST_LOG '{text}': {e}: expected levels such as info or warn,lnet=debug")
        }),
        _ => {
            let level = if quiet { LevelFilter::WARN } else { LevelFilter::INFO };
            Ok(Targets::new().with_default(level))
        }
    }
}

/// Runs the daemon until a signal ends it. `answers`: called when the control socket does.
fn run(options: &mut Options, answers: impl FnOnce()) -> anyhow::Result<()> {
    let filter = log_filter(options.quiet)?;
    // In the background standard error leads to the file already.
    let file = options.log.as_deref().filter(|_| !options.background);
    let writer = match file {
        Some(path) => BoxMakeWriter::new(Arc::new(background::log_file(path)?)),
        None => BoxMakeWriter::new(io::stderr),
    };
    // A second daemon in one process (tests) keeps the first one's log.
    // Colours are for eyes: a journal or a file gets none.
    let colours = file.is_none() && io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(writer);
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
    raise_file_limit();

    // Signals are taken over before anything can be left behind by one.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("signals")?;
    let parameters = options.modprobe.as_deref().map(parameters).transpose()?.unwrap_or_default();
    let configure_now = parameters.config_on_load;
    let wanted = options.config.as_deref().map(reload::read).transpose().map_err(|e| anyhow!(e))?;
    if let Some(wanted) = &wanted {
        take_profile(options, wanted)?;
    }
    let control = Control::new(options, parameters)?;
    let control = Arc::new(control);
    let path = options.socket.clone().unwrap_or_else(lnet_admin::default_socket);
    let group = |name: &Option<String>| name.as_deref().map(Group::named).transpose();
    let guard = Guard {
        own: rustix::process::geteuid().as_raw(),
        admin: group(&options.group_admin)?,
        read: group(&options.group_read)?,
    };
    let server = Server::bind(&path, guard)?;
    if let (Some(file), Some(wanted)) = (&options.config, wanted) {
        control.configure(&wanted).map_err(|e| {
            let why = e.detail.as_deref().map(|d| format!(": {d}")).unwrap_or_default();
            anyhow!("configuration {}: {}{why}", file.display(), e.text)
        })?;
    }
    if configure_now {
        control.configure_by_parameters(Scene::HERE).map_err(|e| {
            let why = e.detail.as_deref().map(|d| format!(": {d}")).unwrap_or_default();
            anyhow!("module parameters: {}{why}", e.text)
        })?;
    }
    if let Some(address) = options.http {
        http::start(address, &control)?;
    }
    let parameters = options.parameters.as_deref();
    let parameters = parameters.map(|dir| params::fuse::mount(&control, dir)).transpose()?;
    tracing::info!(socket = %path.display(), profile = options.profile().name(), "ready");
    let server = server.run(Arc::clone(&control))?;
    service::watchdog(&control).context("watchdog")?;
    let pid_file = options.pid_file.as_deref().map(PidFile::write).transpose()?;
    service::ready();
    answers();
    for signal in signals.forever() {
        if signal != SIGHUP {
            tracing::info!(signal, "ending");
            break;
        }
        service::reloading();
        match &options.config {
            None => tracing::info!("nothing to reload: there is no --config"),
            Some(file) => match reload::reload(&control, file) {
                Ok(steps) => tracing::info!(steps, "reloaded {}", file.display()),
                Err(why) => tracing::error!("not reloaded: {why}"),
            },
        }
        service::ready();
    }
    service::stopping();
    // No new requests while the node drains.
    drop((server, parameters, pid_file));
    control.stop(GRACE);
    Ok(())
}

/// A file with the process id, removed when this is dropped.
struct PidFile<'a>(&'a Path);

impl<'a> PidFile<'a> {
    fn write(path: &'a Path) -> anyhow::Result<Self> {
        fs::write(path, format!("{}\n", std::process::id()))
            .with_context(|| format!("process id file {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for PidFile<'_> {
    fn drop(&mut self) {
        // Removed by hand: as it should be.
        let _ = fs::remove_file(self.0);
    }
}

/// What a modprobe file asks for. Lines without effect here are named in the log.
fn parameters(file: &Path) -> anyhow::Result<ModuleParameters> {
    let shown = file.display();
    let text = fs::read_to_string(file).with_context(|| format!("module parameters {shown}"))?;
    let parameters = ModuleParameters::from_modprobe(&text)
        .with_context(|| format!("module parameters {shown}"))?;
    for note in &parameters.notes {
        match &note.ignored {
            Some(why) => tracing::warn!("{shown}, line {}: {}: {why}", note.line, note.text),
            None => tracing::info!("{shown}, line {}: {}", note.line, note.text),
        }
    }
    Ok(parameters)
}

/// Three connections per peer add up: the soft limit on open files goes to the hard one.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(e) = setrlimit(Resource::Nofile, wanted) {
            tracing::warn!("limit on open files stays at {:?}: {e}", limit.current);
        }
    }
}
