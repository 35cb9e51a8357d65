//! [`Config`] to text, in the reduced form that backups have (S-net-8, S-peer-4): what is needed to
//! configure a node the same way again, and nothing else.

use crate::config::{
    BUFFER_KEYS, Block, Config, DiscoverBlock, NetBlock, NiBlock, PeerBlock, PingBlock,
};
use crate::import::LOCK_KEY;
use crate::{
    Choice, NetAdd, NetRules, O2IB_FIXED, RouteAdd, Setting, Style, Tree, UdspAdd, UdspRule,
    setting_text,
};

impl Config {
    /// The text, in the layouts of kernel tools: nets, routes and peers in library style, the rest in
    /// classic style. Neighbours of one kind share their key.
    pub fn to_yaml(&self) -> String {
        let text = |part: &Part| {
            let before = if part.begins { "---\n" } else { "" };
            format!("{before}{}", part.tree.render(part.style))
        };
        self.parts().iter().map(text).collect()
    }

    /// What [`Self::to_yaml`] prints, block by block.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let mut out: Vec<Part> = Vec::new();
        let mut blocks = self.blocks.iter().map(|(_, block)| block).peekable();
        let mut profile = self.profile.as_ref().map(|(_, name)| name);
        let mut documents = 0;
        let mut seen: Vec<&str> = Vec::new();
        while let Some(block) = blocks.next() {
            let name = block.key();
            // A key may stand once in a document.
            let begins = seen.contains(&name);
            if begins {
                documents += 1;
                seen.clear();
            }
            seen.push(name);
            let mut items = vec![block.tree()];
            while let (true, Some(next)) = (block.is_item(), blocks.peek()) {
                if next.key() != name {
                    break;
                }
                items.push(next.tree());
                blocks.next();
            }
            let style = match block {
                Block::Net(_) | Block::NetRules(_) | Block::Peer(_) | Block::Route(_) => {
                    Style::Library
                }
                _ => Style::Classic,
            };
            let tree = match (block, items.pop()) {
                (block, Some(last)) if block.is_item() => {
                    items.push(last);
                    Tree::List(items)
                }
                (Block::Settings(settings), _) => settings_tree(profile.take(), settings),
                (_, last) => last.unwrap_or(Tree::List(Vec::new())),
            };
            out.push(Part { begins, style, tree: Tree::map([(name, tree)]) });
        }
        if let Some(name) = profile {
            let begins = seen.contains(&"global") || documents > 0;
            let tree = Tree::map([("global", settings_tree(Some(name), &[]))]);
            out.push(Part { begins, style: Style::Classic, tree });
        }
        out
    }
}

/// One top-level key with what is below it.
pub(crate) struct Part {
    /// It begins a document of its own.
    pub(crate) begins: bool,
    pub(crate) style: Style,
    /// A map of that one key.
    pub(crate) tree: Tree,
}

impl Block {
    /// Whether it is one of a list below its key.
    fn is_item(&self) -> bool {
        if let Self::NetRules(rules) = self {
            return rules.choice == Choice::All;
        }
        matches!(self, Self::Net(_) | Self::Peer(_) | Self::Udsp(_) | Self::Route(_))
    }

    fn key(&self) -> &'static str {
        match self {
            Self::Net(_) => "net",
            Self::Peer(_) => "peer",
            Self::Settings(_) => "global",
            Self::Own(_) => "ulnet",
            Self::Buffers(_) => "buffers",
            Self::Route(_) => "route",
            Self::Routing(_) => "routing",
            // A rule in the syntax of the module parameter stands in an item of its own (I-21).
            Self::NetRules(rules) if rules.choice == Choice::All => "net",
            Self::NetRules(_) => "ip2nets",
            Self::Udsp(_) => "udsp",
            Self::Ping(_) => "ping",
            Self::Discover(_) => "discover",
        }
    }

    fn tree(&self) -> Tree {
        match self {
            Self::Net(net) => net.tree(),
            Self::Peer(peer) => peer.tree(),
            Self::Settings(settings) => settings_tree(None, settings),
            Self::Own(settings) => settings_tree(None, settings),
            Self::Buffers(settings) => {
                let value = |name| settings.iter().find(|s| s.name == name).map_or(0, |s| s.value);
                let rows = BUFFER_KEYS.map(|(key, name)| (key, Tree::plain(value(name))));
                Tree::map(rows)
            }
            Self::NetRules(rules) => rules.tree(),
            Self::Route(route) => route.tree(),
            Self::Routing(on) => Tree::map([("enable", Tree::plain(i32::from(*on)))]),
            Self::Udsp(UdspAdd { rule, index }) => rule.tree(*index),
            Self::Ping(ping) => ping.tree(),
            Self::Discover(discover) => discover.tree(),
        }
    }
}

impl NetBlock {
    /// Its item below `net`.
    pub fn tree(&self) -> Tree {
        let nis = self.nis.iter().map(NiBlock::tree).collect();
        let mut entries = vec![("net type", Tree::plain(self.net))];
        if let Some(patterns) = &self.accept_from {
            entries.push(("accept from", Tree::List(patterns.iter().map(Tree::plain).collect())));
        }
        entries.push(("local NI(s)", Tree::List(nis)));
        Tree::map(entries)
    }
}

impl NetRules {
    /// The list below `ip2nets`, or the item below `net` that holds legacy rules.
    fn tree(&self) -> Tree {
        if self.choice == Choice::All {
            let rules: Vec<String> = self.rules.iter().map(ToString::to_string).collect();
            return Tree::map([("ip2net", Tree::plain(rules.join("; ")))]);
        }
        let item = |net: &NetAdd, ranges: &[crate::IpPattern]| {
            let mut entries = vec![("net-spec", Tree::plain(net.net))];
            let ni = NiBlock {
                interfaces: net.interfaces.clone(),
                nid: None,
                tunables: net.tunables,
                lnd: net.lnd,
                cpts: net.cpts.clone(),
            };
            entries.extend(ni.entries());
            if !ranges.is_empty() {
                let rows = ranges.iter().enumerate();
                let rows = rows.map(|(i, range)| (i.to_string(), Tree::plain(range)));
                entries.push(("ip-range", Tree::map(rows)));
            }
            Tree::map(entries)
        };
        let rules =
            self.rules.iter().flat_map(|rule| rule.nets.iter().map(|n| item(n, &rule.ranges)));
        Tree::List(rules.collect())
    }
}

impl NiBlock {
    fn tree(&self) -> Tree {
        let mut entries = self.entries();
        if entries.is_empty() {
            // An NI on the first usable interface, all defaults: still an item.
            entries.push(("tunables", Tree::map([] as [(&str, Tree); 0])));
        }
        Tree::map(entries)
    }

    fn entries(&self) -> Vec<(&'static str, Tree)> {
        let mut entries = Vec::new();
        if let Some(nid) = self.nid {
            entries.push(("nid", Tree::plain(nid)));
        }
        if !self.interfaces.is_empty() {
            let names = self.interfaces.iter().enumerate();
            let names = names.map(|(i, interface)| (i.to_string(), Tree::plain(interface)));
            entries.push(("interfaces", Tree::map(names)));
        }
        let numbers = |all: &[(&'static str, Option<i64>)]| -> Vec<(&'static str, Tree)> {
            all.iter().filter_map(|(key, v)| v.map(|v| (*key, Tree::plain(v)))).collect()
        };
        let tunables = numbers(&[
            ("peer_timeout", self.tunables.peer_timeout_s.map(i64::from)),
            ("peer_credits", self.tunables.peer_credits.map(i64::from)),
            ("peer_buffer_credits", self.tunables.peer_buffer_credits.map(i64::from)),
            ("credits", self.tunables.credits.map(i64::from)),
        ]);
        let mut lnd = numbers(&[
            ("peercredits_hiw", self.lnd.peercredits_hiw.map(i64::from)),
            ("concurrent_sends", self.lnd.concurrent_sends.map(i64::from)),
        ]);
        if !lnd.is_empty() {
            lnd.extend(O2IB_FIXED.iter().map(|(key, value)| (*key, Tree::plain(value))));
        }
        lnd.extend(numbers(&[
            ("conns_per_peer", self.lnd.conns_per_peer.map(i64::from)),
            ("tos", self.lnd.tos.map(i64::from)),
        ]));
        for (key, rows) in [("tunables", tunables), ("lnd tunables", lnd)] {
            if !rows.is_empty() {
                entries.push((key, Tree::map(rows)));
            }
        }
        if let Some(cpts) = &self.cpts {
            entries.push(("CPT", Tree::Quoted(cpts_text(cpts))));
        }
        entries
    }
}

/// CPTs as they are shown, `[0,1]`.
pub fn cpts_text(cpts: &[u32]) -> String {
    let all: Vec<String> = cpts.iter().map(ToString::to_string).collect();
    format!("[{}]", all.join(","))
}

impl PeerBlock {
    /// Its item below `peer`.
    pub fn tree(&self) -> Tree {
        let nid = |nid| Tree::map([("nid", Tree::plain(nid))]);
        let nids = core::iter::once(self.primary).chain(self.nids.iter().copied());
        let lock = self.lock_primary.then_some((LOCK_KEY, Tree::Bool(true)));
        let head = [
            ("primary nid", Tree::plain(self.primary)),
            ("Multi-Rail", Tree::Bool(self.multi_rail)),
        ];
        let nids = ("peer ni", Tree::List(nids.map(nid).collect()));
        Tree::map(head.into_iter().chain(lock).chain([nids]))
    }
}

impl RouteAdd {
    /// Its item below `route`, as backups have it (I-3).
    pub fn tree(&self) -> Tree {
        Tree::map([
            ("net", Tree::plain(self.net)),
            ("gateway", Tree::plain(self.gateway)),
            ("hop", Tree::plain(self.hops.map_or(-1, i64::from))),
            ("priority", Tree::plain(self.priority)),
        ])
    }
}

impl UdspRule {
    /// Its item below `udsp` (S-udsp-1), at this place of the list if it is to have one.
    pub fn tree(&self, index: Option<u32>) -> Tree {
        let mut entries = Vec::new();
        entries.extend(index.map(|index| ("idx", Tree::plain(index))));
        for (key, pattern) in [("src", &self.src), ("dst", &self.dst), ("rte", &self.rte)] {
            entries.extend(pattern.as_ref().map(|pattern| (key, Tree::text(pattern))));
        }
        let mut action = Vec::new();
        action.extend(self.priority.map(|n| ("priority", Tree::plain(n))));
        action.extend(self.messages.map(|n| ("messages", Tree::plain(n))));
        if !action.is_empty() {
            entries.push(("action", Tree::map(action)));
        }
        Tree::map(entries)
    }
}

impl PingBlock {
    fn tree(&self) -> Tree {
        let nids = self.nids.iter().map(Tree::plain).collect();
        let mut entries = vec![("nids", Tree::List(nids))];
        entries.extend(self.timeout_ms.map(|ms| ("timeout", Tree::plain(ms))));
        entries.extend(self.source.map(|nid| ("source", Tree::plain(nid))));
        Tree::map(entries)
    }
}

impl DiscoverBlock {
    fn tree(&self) -> Tree {
        let nids = self.nids.iter().map(Tree::plain).collect();
        Tree::map([("nids", Tree::List(nids)), ("force", Tree::Bool(self.force))])
    }
}

fn settings_tree(profile: Option<&String>, settings: &[Setting]) -> Tree {
    let profile = profile.map(|name| ("profile", Tree::plain(name)));
    let settings =
        settings.iter().map(|s| (s.name.as_str(), Tree::plain(setting_text(&s.name, s.value))));
    Tree::map(profile.into_iter().chain(settings))
}
