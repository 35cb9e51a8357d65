//! One export: what of it a world has a place for.

use lnet::{NetTunables, Profile, Rule, Tunables, Writable};
use lnet_config::yaml::Pos;
use lnet_config::{
    Block, Config, ConfigError, NetBlock, PassedOver, RouteAdd, Setting, UdspAdd, UdspRule,
};
use lnet_types::{Net, Nid};

use super::{Export, LeftOut, at};
use crate::RAILS_MAX;
use crate::error::ScenarioError;
use crate::model::PeerSpec;

/// A node of a site.
#[derive(Debug)]
pub(super) struct SiteNode {
    pub(super) name: String,
    pub(super) file: String,
    pub(super) profile: Profile,
    /// The profile is not given.
    pub(super) guessed: bool,
    /// Its NIDs in order.
    pub(super) rails: Vec<(Nid, Pos)>,
    pub(super) nets: Vec<(Net, NetTunables)>,
    /// Tunables that are not the profile's.
    pub(super) tunables: Vec<(&'static str, i64)>,
    pub(super) forwards: bool,
    pub(super) routes: Vec<(RouteAdd, Pos)>,
    pub(super) peers: Vec<PeerSpec>,
    pub(super) rules: Vec<Rule>,
}

/// What an export is expected to be.
const EXPECTED: &str = "expected what 'lnetctl export' prints";
const TOP: Pos = Pos { line: 1, column: 1 };

impl SiteNode {
    pub(super) fn read(
        export: &Export<'_>,
        profile: Option<Profile>,
        left_out: &mut LeftOut,
    ) -> Result<Self, ScenarioError> {
        let wrong = |pos, what: String| at(export.file, pos, what);
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let name = export.node;
        if name.is_empty() || !name.chars().all(plain) || name.parse::<Net>().is_ok() {
            let expected = "letters, digits, - _ and ., and not the name of a network";
            return Err(wrong(TOP, format!("'{name}' is to be a node: expected {expected}")));
        }
        let (config, passed) = Config::from_export(export.text).map_err(|e| refused(export, &e))?;
        for (pos, what) in passed {
            let kind = match what {
                PassedOver::FoundPeer(_) => {
                    "peers that were found, not configured: they will be found again".to_owned()
                }
                PassedOver::ForeignTunable(name) => format!("'{name}': drivers are not modelled"),
            };
            left_out.once(export.file, pos, kind);
        }
        let known = profile_of(&config, profile).map_err(|(pos, what)| wrong(pos, what))?;
        let mut node = Self {
            name: name.to_owned(),
            file: export.file.to_owned(),
            profile: known.unwrap_or(Profile::Kernel),
            guessed: known.is_none(),
            rails: Vec::new(),
            nets: Vec::new(),
            tunables: Vec::new(),
            forwards: false,
            routes: Vec::new(),
            peers: Vec::new(),
            rules: Vec::new(),
        };
        let mut settings: Vec<(Pos, Setting)> = Vec::new();
        for (pos, block) in config.blocks {
            match block {
                Block::Net(net) => node.net(export, pos, &net, left_out)?,
                Block::Peer(peer) => {
                    let nids = core::iter::once(peer.primary).chain(peer.nids).collect();
                    node.peers.push(PeerSpec { nids, multi_rail: peer.multi_rail });
                }
                Block::Settings(all) | Block::Own(all) | Block::Buffers(all) => {
                    settings.extend(all.into_iter().map(|s| (pos, s)));
                }
                Block::Route(route) => node.routes.push((route, pos)),
                Block::Routing(on) => node.forwards = on,
                Block::Udsp(add) => node.rule(export, pos, &add)?,
                Block::NetRules(_) => {
                    return Err(wrong(pos, format!("nets by address, no NIDs: {EXPECTED}")));
                }
                Block::Ping(_) => {
                    left_out.once(export.file, pos, "'ping' is no setting".to_owned())
                }
                Block::Discover(_) => {
                    left_out.once(export.file, pos, "'discover' is no setting".to_owned());
                }
            }
        }
        if node.rails.is_empty() {
            return Err(wrong(TOP, format!("no network interfaces: {EXPECTED} where LNet runs")));
        }
        node.set(settings).map_err(|(pos, what)| wrong(pos, what))?;
        Ok(node)
    }

    fn net(
        &mut self,
        export: &Export<'_>,
        pos: Pos,
        net: &NetBlock,
        left_out: &mut LeftOut,
    ) -> Result<(), ScenarioError> {
        for ni in &net.nis {
            let Some(nid) = ni.nid else {
                let what = format!(
                    "an NI of {} without 'nid': expected a full export, not one made with --backup",
                    net.net
                );
                return Err(at(export.file, pos, what));
            };
            if self.rails.iter().any(|(n, _)| *n == nid) {
                let what = format!("{nid} twice: expected each NID once");
                return Err(at(export.file, pos, what));
            }
            if self.rails.len() == RAILS_MAX {
                let what = format!("more than {RAILS_MAX} interfaces: expected at most so many");
                return Err(at(export.file, pos, what));
            }
            self.rails.push((nid, pos));
            let sock = NetTunables::SOCK;
            let own = ni.tunables;
            let mut tunables = NetTunables {
                peer_timeout: own
                    .peer_timeout_s
                    .map_or(sock.peer_timeout, |s| i32::try_from(s).unwrap_or(i32::MAX)),
                peer_credits: own.peer_credits.unwrap_or(sock.peer_credits),
                peer_buffer_credits: own.peer_buffer_credits.unwrap_or(sock.peer_buffer_credits),
                credits: own.credits.unwrap_or(sock.credits),
            };
            let widest = u32::from(u16::MAX);
            for (key, value) in [
                ("credits", &mut tunables.credits),
                ("peer_credits", &mut tunables.peer_credits),
                ("peer_buffer_credits", &mut tunables.peer_buffer_credits),
            ] {
                if *value > widest {
                    *value = widest;
                    let what =
                        format!("'{key}' above {widest}: worlds have no more, nor use for it");
                    left_out.once(export.file, pos, what);
                }
            }
            // A network has the tunables of its first interface (C-netadd-6).
            match self.nets.iter().find(|(n, _)| *n == net.net) {
                None => self.nets.push((net.net, tunables)),
                Some((_, first)) if *first != tunables => {
                    let what = "tunables of an NI that are not its network's".to_owned();
                    left_out.once(export.file, pos, what);
                }
                Some(_) => {}
            }
            if ni.lnd.conns_per_peer.is_some_and(|n| n > 1) {
                left_out.once(export.file, pos, "'conns_per_peer': connections are not".to_owned());
            }
            if ni.lnd.tos.is_some_and(|tos| tos >= 0) {
                left_out.once(export.file, pos, "'tos': worlds have no IP".to_owned());
            }
            if ni.cpts.is_some() {
                left_out.once(export.file, pos, "'CPT': worlds have no processors".to_owned());
            }
        }
        Ok(())
    }

    fn rule(&mut self, export: &Export<'_>, pos: Pos, add: &UdspAdd) -> Result<(), ScenarioError> {
        let wrong = |what: String| at(export.file, pos, what);
        let UdspRule { src, dst, rte, priority, messages } = &add.rule;
        let pattern = |key: &str, text: &Option<String>| {
            let parsed = text.as_deref().map(str::parse).transpose();
            parsed.map_err(|e: lnet::ParsePatternError| {
                wrong(format!("{key} of a rule: {e}: expected a network or a range of NIDs"))
            })
        };
        let (src, dst, rte) = (pattern("src", src)?, pattern("dst", dst)?, pattern("rte", rte)?);
        let rule = Rule::new(src, dst, rte, *priority, *messages)
            .map_err(|e| wrong(format!("{e}: expected a rule of the selection policy")))?;
        let about = |r: &Rule| (r.src().cloned(), r.dst().cloned(), r.rte().cloned());
        if self.rules.iter().any(|r| about(r) == about(&rule)) {
            return Err(wrong(format!("rule '{rule}' again: expected one about the same")));
        }
        let end = self.rules.len();
        let index = add.index.and_then(|n| usize::try_from(n).ok()).unwrap_or(end);
        self.rules.insert(index.min(end), rule);
        Ok(())
    }

    /// Takes settings, in order of the text: known, in bounds, and not against each other.
    fn set(&mut self, settings: Vec<(Pos, Setting)>) -> Result<(), (Pos, String)> {
        let defaults = Tunables::new(self.profile);
        let mut all: Vec<(&'static str, i64)> = Vec::new();
        let mut last = TOP;
        for (pos, Setting { name, value }) in settings {
            let Some(row) = Tunables::row(&name) else {
                return Err((pos, format!("'{name}' is no tunable of a node: {EXPECTED}")));
            };
            all.retain(|(n, _)| *n != row.name);
            if row.writable != Writable::Deprecated {
                all.push((row.name, value));
            }
            last = pos;
        }
        // Alone as well as together: the place of one that is out of bounds is known.
        let mut check = defaults.clone();
        check.set_all(&all).map_err(|e| (last, e.to_string()))?;
        self.tunables = all.into_iter().filter(|(n, v)| defaults.value(n) != Some(*v)).collect();
        // In `set` some tunables follow from others: what is left must give the same values.
        let mut again = defaults;
        let same = again.set_all(&self.tunables).is_ok() && again == check;
        if !same {
            let rows = Tunables::TABLE.iter().filter(|r| r.writable != Writable::Deprecated);
            self.tunables = rows.filter_map(|r| Some((r.name, check.value(r.name)?))).collect();
        }
        Ok(())
    }
}

/// The profile of a node: as asked for, as its export says, or ours if it has settings of this project.
fn profile_of(config: &Config, asked: Option<Profile>) -> Result<Option<Profile>, (Pos, String)> {
    if asked.is_some() {
        return Ok(asked);
    }
    if let Some((pos, name)) = &config.profile {
        let profile = Profile::from_name(name).ok_or_else(|| {
            let names: Vec<&str> = Profile::ALL.iter().map(|p| p.name()).collect();
            (*pos, format!("profile '{name}': expected one of {}", names.join(", ")))
        });
        return profile.map(Some);
    }
    let own = config.blocks.iter().any(|(_, b)| matches!(b, Block::Own(_)));
    Ok(own.then_some(Profile::Default))
}

fn refused(export: &Export<'_>, e: &ConfigError) -> ScenarioError {
    let (pos, what) = match e {
        ConfigError::Content { text, pos, hint, .. } => {
            let hint = hint.as_ref().map(|hint| format!(": {hint}"));
            (*pos, format!("{text}{}", hint.unwrap_or_default()))
        }
        ConfigError::Yaml(e) => (e.pos().unwrap_or(TOP), e.to_string()),
        other => (TOP, other.to_string()),
    };
    at(export.file, pos, format!("{what}: {EXPECTED}"))
}
