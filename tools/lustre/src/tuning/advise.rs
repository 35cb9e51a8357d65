//! `ulnet tuning advise`: the tunables of a site, for each role, with their reasons. `prove.rs` plays them.

use clap::{Args, ValueEnum};
use lustre_tuning::{Advice, Load, NetKind, Role, Site, advise, modprobe, yaml};

use super::{print, print_json, prove, seconds};

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Clients reach servers through routers
    #[arg(long)]
    routed: bool,
    /// Clients of the site
    #[arg(long, value_name = "N")]
    clients: Option<u32>,
    /// Targets of the site
    #[arg(long, value_name = "N")]
    targets: Option<u32>,
    /// Time in which all clients reconnect to all targets after a quiesce, as 'ulnet tuning log' finds it
    #[arg(long, value_name = "SPAN", value_parser = seconds)]
    quiesce: Option<u32>,
    /// How busy servers are
    #[arg(long)]
    load: Option<LoadWord>,
    /// Network of the clients
    #[arg(long, default_value = "tcp")]
    net: NetWord,
    /// One role alone
    #[arg(long)]
    role: Option<RoleWord>,
    /// The file of a role: options of kernel modules, which 'lnetd --modprobe' takes too, or YAML for
    /// 'lnetctl import'
    #[arg(long = "as", value_name = "FORMAT", requires = "role", conflicts_with = "json")]
    format: Option<Format>,
    /// Play the site in the simulator, with the defaults of its nodes and as advised, and print what
    /// its events cost both; exit status 1 if the advice does not keep every living client
    #[arg(long, conflicts_with_all = ["role", "format"])]
    prove: bool,
    /// Most clients that are played
    #[arg(long, value_name = "N", default_value_t = 48, requires = "prove", value_parser = clap::value_parser!(u32).range(2..=10_000))]
    played: u32,
    /// Seed of the plays: the same one gives the same figures
    #[arg(long, value_name = "S", default_value_t = 1, requires = "prove")]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LoadWord {
    /// Rarely: requests are served at once
    Light,
    /// Often: requests wait
    Heavy,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum NetWord {
    /// TCP
    Tcp,
    /// InfiniBand or RoCE
    O2ib,
    /// Aries or Gemini
    Gni,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RoleWord {
    /// A node that uses targets
    Client,
    /// A node that serves targets
    Server,
    /// A node between both
    Router,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Options of kernel modules
    Modprobe,
    /// YAML
    Yaml,
}

impl Options {
    fn site(&self) -> Site {
        Site {
            routed: self.routed,
            clients: self.clients,
            targets: self.targets,
            quiesce: self.quiesce,
            load: self.load.map(|load| match load {
                LoadWord::Light => Load::Light,
                LoadWord::Heavy => Load::Heavy,
            }),
            net: match self.net {
                NetWord::Tcp => NetKind::Tcp,
                NetWord::O2ib => NetKind::O2ib,
                NetWord::Gni => NetKind::Gni,
            },
        }
    }

    fn role(&self) -> Option<Role> {
        self.role.map(|role| match role {
            RoleWord::Client => Role::Client,
            RoleWord::Server => Role::Server,
            RoleWord::Router => Role::Router,
        })
    }
}

pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let role = options.role();
    if role == Some(Role::Router) && !options.routed {
        anyhow::bail!("role router: expected --routed, a site without routers has none");
    }
    let mut all = advise(&options.site())?;
    all.retain(|advice| role.is_none_or(|role| advice.role == role));
    if options.prove {
        return proven(options, &all);
    }
    match options.format {
        Some(Format::Modprobe) => print(&modprobe(&all)),
        Some(Format::Yaml) => print(&yaml(&all)),
        None if options.json => return print_json(&all),
        None => print(&table(&all)),
    }
    Ok(())
}

/// Prints the advice, and what was played.
fn proven(options: &Options, all: &[Advice]) -> anyhow::Result<()> {
    let site = options.site();
    if !options.json {
        print(&table(all));
    }
    let proof = prove::play(&site, options.played, options.seed)?;
    match options.json {
        true => {
            let proof = prove::document(&site, &proof);
            print_json(&serde_json::json!({ "advice": all, "proof": proof }))?;
        }
        false => print(&prove::table(&site, &proof)),
    }
    if !proof.holds() {
        anyhow::bail!(
            "proof: a client that lives was evicted as advised, or one that crashed was not"
        );
    }
    Ok(())
}

fn table(all: &[Advice]) -> String {
    let mut text = String::new();
    let mut role = None;
    for advice in all {
        if role.replace(advice.role) != Some(advice.role) {
            let line = if text.is_empty() { "" } else { "\n" };
            text += &format!("{line}{}\n", advice.role.name());
        }
        text += &format!("  {:<38}  {}\n", advice.to_string(), advice.why);
    }
    text
}
