//! Configuration: texts in, one validated model out, and what has to be done to get there.
//!
//! Pure: no files, no sockets, no clock; it prints nothing and connects to nothing.
//!
//! ```text
//!   YAML ──yaml.rs──► tree ──import.rs──► Config ──plan.rs──► steps
//!    ▲                                      │
//!    ╰────────── emit.rs ◄──── export.rs ◄──╯
//! ```
//!
//! `model.rs` has the nouns that steps consist of, which the control socket (`lnet-admin`) carries
//! as they are; `lists.rs`, `nids.rs`, `number.rs` and `words.rs` read the short texts of command lines;
//! `legacy/` the module parameters of kernel nodes.

mod config;
mod emit;
mod export;
mod import;
mod legacy;
mod lists;
mod model;
mod nids;
mod number;
mod plan;
mod settled;
mod suggest;
pub mod text;
mod words;
pub mod yaml;

pub use config::{
    BUFFER_KEYS, Block, Config, ConfigError, DiscoverBlock, GLOBAL_KEYS, NetBlock, NiBlock,
    OWN_KEYS, PeerBlock, PingBlock,
};
pub use emit::{Style, Tree};
pub use export::cpts_text;
pub use import::PassedOver;
pub use legacy::{
    AcceptFrom, Choice, IbParameters, IpPattern, LegacyError, LocalAddress, ModuleOption,
    ModuleParameters, NETWORKS_CHARS_MAX, NetRule, NetRules, NetSpec, NoRuleMatches, Note,
    OptionProblem, ROUTES_MAX, SockParameters, legacy_options, merge_legacy, parse_ip2nets,
    parse_modprobe, parse_networks, parse_routes,
};
pub use lists::{CPTS_MAX, CptsError, INTERFACES_MAX, ListError, parse_cpts, parse_interfaces};
pub use model::{
    Interface, LndTunables, NetAdd, NetCpts, NetDel, NetTunables, O2IB_FIXED, PeerAdd, PeerDel,
    RouteAdd, RouteDel, Setting, UdspAdd, UdspDel, UdspRule, ValueError,
};
pub use nids::{NID_LIST_MAX, NidListError, parse_nid_list};
pub use number::parse_number;
pub use plan::{LIMITS, Step, diff, diff_of_files};
pub use settled::{
    o2ib_concurrent_sends, o2ib_depth, o2ib_peercredits_hiw, settled_pattern, settled_tunable,
};
pub use suggest::{near_net, near_nids, nearest, not_a_net, not_a_nid, not_nids};
pub use words::{parse_setting, setting_text};
