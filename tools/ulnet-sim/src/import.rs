//! `ulnet sim import`: a directory of exports, one file for each node of a site, becomes a world. What
//! an export means is decided by `lnet_scenario::world_of`; here are files and printing.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use lnet::Profile;
use lnet_scenario::{EXPORTS_MAX, Export, world_of};

/// Files that are exports.
const EXTENSIONS: [&str; 2] = ["yaml", "yml"];

/// From where, and whereto.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Each FILE.yaml in DIR is what 'lnetctl export' printed on one node, which is \
                        called FILE in the world. What a world has no place for is said on standard error."
)]
pub(super) struct Import {
    /// The directory with the exports.
    dir: PathBuf,

    /// Write the world to this file instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,

    /// The profile of all nodes. Otherwise nodes are of the default profile if their export has
    /// settings of this project, and kernel nodes if not.
    #[arg(long, value_parser = super::profile)]
    profile: Option<Profile>,
}

impl Import {
    /// Makes the world and prints it.
    ///
    /// # Errors
    /// No exports, one that can't be read or is none, or two that contradict each other.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let (files, others) = self.files()?;
        let mut texts = Vec::with_capacity(files.len());
        for path in &files {
            let text = fs::read_to_string(path)
                .with_context(|| format!("can't read {}", path.display()))?;
            let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned());
            texts.push((stem.unwrap_or_default(), path.display().to_string(), text));
        }
        let exports: Vec<Export<'_>> =
            texts.iter().map(|(node, file, text)| Export { node, file, text }).collect();
        let name = self.dir.canonicalize().ok();
        let name = name.as_deref().unwrap_or(&self.dir).file_name();
        let name = name.map_or_else(|| "site".into(), |n| n.to_string_lossy());
        let world = world_of(&name, &exports, self.profile)?;
        for path in others {
            eprintln!("left out: {}: no .yaml file", path.display());
        }
        for line in &world.left_out {
            eprintln!("left out: {line}");
        }
        if let [first, others @ ..] = world.guessed.as_slice() {
            let more = match others.len() {
                0 => String::new(),
                n => format!(" and {n} more"),
            };
            eprintln!(
                "assumed: {first}{more}: kernel nodes; their exports do not say. For nodes of ulnet: --profile default"
            );
        }
        match &self.out {
            Some(path) => super::write(path, &world.text)?,
            None => super::print(&world.text),
        }
        Ok(())
    }

    /// The exports, by name, and what else is there.
    fn files(&self) -> anyhow::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
        let dir = self.dir.display();
        if self.dir.is_file() {
            bail!(
                "{dir}: a file: expected a directory with NODE.yaml for each node, as 'lnetctl export' prints it"
            );
        }
        let entries = fs::read_dir(&self.dir).with_context(|| format!("can't read {dir}"))?;
        let mut all: Vec<PathBuf> = Vec::new();
        for entry in entries {
            all.push(entry.with_context(|| format!("can't read {dir}"))?.path());
        }
        all.sort();
        let is_export = |path: &PathBuf| has_extension(path) && path.is_file();
        let (files, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_export);
        if files.is_empty() {
            bail!(
                "{dir}: no exports: expected NODE.yaml for each node, as 'lnetctl export' prints it"
            );
        }
        if files.len() > EXPORTS_MAX {
            bail!("{dir}: {} exports: expected at most {EXPORTS_MAX}", files.len());
        }
        Ok((files, others))
    }
}

fn has_extension(path: &Path) -> bool {
    let extension = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
    extension.is_some_and(|e| EXTENSIONS.contains(&e.as_str()))
}
