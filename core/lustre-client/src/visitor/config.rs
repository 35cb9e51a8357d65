//! The targets of a file system, from the records of its client log (C-20 … C-27).

use std::collections::{BTreeMap, BTreeSet};

use lnet_types::Nid;
use lustre_wire::llog::{Command, ConfigCommand, LogRecord, MarkerFlags, REQUIRED, RecordKind};
use ptlrpc::Tunables;

use super::pattern::fits;

/// Most targets of one kind that a log may name.
pub const TARGETS_MAX: usize = 65_536;

/// A target that a client connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetEntry {
    /// Its uuid.
    pub uuid: String,
    /// NIDs of the nodes that may serve it, the likeliest first.
    pub nids: Vec<Nid>,
    /// Whether it is in use; a target that an administrator has deactivated is not connected.
    pub active: bool,
}

/// The targets of a file system by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// Metadata targets.
    pub mdts: BTreeMap<u32, TargetEntry>,
    /// Object targets.
    pub osts: BTreeMap<u32, TargetEntry>,
    /// Times of the site.
    pub times: SiteTimes,
}

/// Time-outs that a configuration names, in seconds, by the names of [`Tunables`] (P-3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteTimes(BTreeMap<&'static str, u32>);

/// Those that a client follows.
const TIMES: [&str; 5] = ["timeout", "at_min", "at_max", "at_history", "ldlm_enqueue_min"];

impl SiteTimes {
    /// Whether it names none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn put(&mut self, name: &str, value: Option<u32>) {
        let known = TIMES.into_iter().find(|known| *known == name);
        if let (Some(name), Some(value)) = (known, value) {
            self.0.insert(name, value);
        }
    }

    /// Tunables as the site wants them. A value out of its bounds counts for nothing. Pings are as far apart
    /// as the time-out lets them be (P-3).
    pub fn of(&self, tunables: &Tunables) -> Tunables {
        let pings = self.0.get("timeout").map(|timeout| ("ping_interval", (timeout / 4).max(1)));
        let all = self.0.iter().map(|(name, value)| (*name, *value)).chain(pings);
        let rows = all.filter_map(|(name, value)| Some((Tunables::setting(name)?, value)));
        let rows: Vec<_> = rows.collect();
        // Two bounds that would cross one by one do not together.
        tunables.with_all(&rows).unwrap_or_else(|_| {
            rows.into_iter()
                .fold(tunables.clone(), |all, (row, value)| all.with(row, value).unwrap_or(all))
        })
    }
}

/// Why a log can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A record that must be understood, and is not.
    #[error("configuration command {0:#x} is not known, and must be")]
    Unknown(u32),
    /// A record that is damaged.
    #[error("configuration record: {0}")]
    Record(#[from] lustre_wire::WireError),
    /// An index that is no number.
    #[error("configuration: target {target}: index '{index}' must be a number")]
    Index {
        /// Uuid of the target.
        target: String,
        /// The index.
        index: String,
    },
    /// More targets than there may be.
    #[error("configuration: the limit is {TARGETS_MAX} targets")]
    TooMany,
}

/// What the records between two markers are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Section {
    /// None: a record out of place.
    #[default]
    Outside,
    Counts,
    Skipped,
}

#[derive(Clone, Debug, Default)]
struct Device {
    target: String,
    nodes: Vec<String>,
}

/// A log on its way to become [`Targets`].
#[derive(Clone, Debug, Default)]
pub struct Config {
    section: Section,
    nodes: BTreeMap<String, Vec<Nid>>,
    devices: BTreeMap<String, Device>,
    mdts: BTreeMap<u32, String>,
    osts: BTreeMap<u32, String>,
    /// Uuids of targets in the log that are not to be used.
    unused: BTreeSet<String>,
    /// Devices by `active=`; the last record counts.
    switched: BTreeMap<String, bool>,
    /// The same by patterns of devices, with their kind: `osc.lfs-OST0003*`.
    patterns: Vec<(String, bool)>,
    times: SiteTimes,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Config {
    /// Takes a record. Those of other kinds than [`RecordKind::CONFIG`] change nothing.
    ///
    /// # Errors
    /// As [`ConfigError`] says.
    pub fn take(&mut self, record: &LogRecord<'_>) -> Result<(), ConfigError> {
        if record.header.kind != RecordKind::CONFIG {
            return Ok(());
        }
        let command = ConfigCommand::parse(record)?;
        if command.header.command == Command::MARKER {
            let flags = command.marker(record.order)?.flags;
            let skips = flags.intersects(MarkerFlags::SKIP | MarkerFlags::EXCLUDE);
            self.section = match flags.contains(MarkerFlags::START) {
                true if skips => Section::Skipped,
                true => Section::Counts,
                false => Section::Outside,
            };
            return Ok(());
        }
        match self.section {
            Section::Counts => self.command(&command),
            Section::Outside | Section::Skipped => Ok(()),
        }
    }

    fn command(&mut self, command: &ConfigCommand<'_>) -> Result<(), ConfigError> {
        let at = |index| text(command.text(index));
        match command.header.command {
            Command::ADD_UUID => {
                // A NID that is too long for a number stands as a text (C-27).
                let named = at(2).parse().ok();
                let short = (command.header.nid != 0).then(|| Nid::from_nid4(command.header.nid));
                let nids = self.nodes.entry(at(1)).or_default();
                if let Some(nid) = named.or(short).filter(|nid| !nids.contains(nid)) {
                    nids.push(nid);
                }
            }
            Command::SETUP => {
                let device = self.devices.entry(at(0)).or_default();
                *device = Device { target: at(1), nodes: vec![at(2)] };
            }
            Command::ADD_CONN => {
                let (device, node) = (at(0), at(1));
                let nodes = &mut self.devices.entry(device).or_default().nodes;
                if !nodes.contains(&node) {
                    nodes.push(node);
                }
            }
            Command::DEL_CONN => {
                let (device, node) = (at(0), at(1));
                self.devices.entry(device).or_default().nodes.retain(|known| *known != node);
            }
            Command::LOV_ADD_OBD | Command::LOV_ADD_INACTIVE => {
                let inactive = command.header.command == Command::LOV_ADD_INACTIVE;
                let (uuid, index) = self.indexed(command)?;
                if inactive {
                    self.unused.insert(uuid.clone());
                }
                self.osts.insert(index, uuid);
            }
            Command::LOV_DEL_OBD => {
                let (_, index) = self.indexed(command)?;
                self.osts.remove(&index);
            }
            Command::ADD_MDC => {
                let (uuid, index) = self.indexed(command)?;
                self.mdts.insert(index, uuid);
            }
            Command::DEL_MDC => {
                let (_, index) = self.indexed(command)?;
                self.mdts.remove(&index);
            }
            Command::PARAM => {
                let value = at(1);
                if let Some((name, value)) =
                    value.strip_prefix("sys.").and_then(|v| v.split_once('='))
                {
                    self.times.put(name, value.parse().ok());
                }
                let active = ["osc.active=", "mdc.active="];
                if let Some(on) = active.iter().find_map(|name| value.strip_prefix(name)) {
                    self.switched.insert(at(0), on != "0");
                }
            }
            // One for all, named as `lctl` names it (C-275).
            Command::SET_PARAM => self.parameter(&at(1)),
            Command::SET_TIMEOUT => self.times.put("timeout", Some(command.header.num)),
            known if known.name().is_some() => {}
            unknown if unknown.0 & REQUIRED != 0 => return Err(ConfigError::Unknown(unknown.0)),
            _ => {}
        }
        let all = [self.nodes.len(), self.devices.len(), self.mdts.len(), self.osts.len()];
        let most = all.into_iter().chain([self.patterns.len()]);
        if most.max() > Some(TARGETS_MAX) { Err(ConfigError::TooMany) } else { Ok(()) }
    }

    /// What another log sets for all clients comes after what this one says.
    pub(super) fn add(&mut self, parameters: Self) {
        self.patterns.extend(parameters.patterns);
        self.times.0.extend(parameters.times.0);
    }

    /// A parameter that all clients set: `at_max=600`, `osc.lfs-OST0003*.active=0`.
    fn parameter(&mut self, setting: &str) {
        let Some((name, value)) = setting.split_once('=') else { return };
        self.times.put(name, value.parse().ok());
        let switch = name.strip_suffix(".active");
        if let Some(pattern) = switch.filter(|p| p.starts_with("osc.") || p.starts_with("mdc.")) {
            self.patterns.push((pattern.to_owned(), value != "0"));
        }
    }

    /// Whether a device is in use: what is set for all clients comes after what is set for one file system,
    /// and the last record of each counts.
    fn is_active(&self, device: &str) -> bool {
        // Clients name their devices with their kind before and an address behind.
        let kind = if device.ends_with("-mdc") { "mdc" } else { "osc" };
        let name = format!("{kind}.{device}-ffff000000000000");
        let fitting = self.patterns.iter().rev();
        let mut fitting = fitting.filter(|(pattern, _)| fits(pattern.as_bytes(), name.as_bytes()));
        fitting
            .next()
            .map(|(_, on)| *on)
            .or_else(|| self.switched.get(device).copied())
            .unwrap_or(true)
    }

    fn indexed(&self, command: &ConfigCommand<'_>) -> Result<(String, u32), ConfigError> {
        let (target, index) = (text(command.text(1)), text(command.text(2)));
        match index.parse() {
            Ok(index) => Ok((target, index)),
            Err(_) => Err(ConfigError::Index { target, index }),
        }
    }

    /// The targets of the log.
    pub fn targets(&self) -> Targets {
        let mut known: BTreeMap<&str, TargetEntry> = BTreeMap::new();
        for (name, device) in &self.devices {
            let nodes = device.nodes.iter().filter_map(|node| self.nodes.get(node));
            let mut nids: Vec<Nid> = Vec::new();
            for nid in nodes.flatten() {
                if !nids.contains(nid) {
                    nids.push(*nid);
                }
            }
            let active = self.is_active(name) && !self.unused.contains(&device.target);
            let uuid = device.target.clone();
            known.insert(&device.target, TargetEntry { uuid, nids, active });
        }
        let of = |list: &BTreeMap<u32, String>| {
            let entry = |(index, uuid): (&u32, &String)| {
                let nowhere =
                    || TargetEntry { uuid: uuid.clone(), nids: Vec::new(), active: false };
                (*index, known.get(uuid.as_str()).cloned().unwrap_or_else(nowhere))
            };
            list.iter().map(entry).collect()
        };
        Targets { mdts: of(&self.mdts), osts: of(&self.osts), times: self.times.clone() }
    }
}

#[cfg(test)]
mod tests {
    use lnet_types::ByteOrder;
    use lustre_wire::Layout;
    use lustre_wire::llog::{COMMAND_VERSION, CommandHeader, Marker, RecordHeader};

    use super::*;

    const ORDER: ByteOrder = ByteOrder::Little;

    fn take(
        config: &mut Config,
        header: CommandHeader,
        buffers: &[&[u8]],
    ) -> Result<(), ConfigError> {
        let command = ConfigCommand { header, buffers: buffers.to_vec() };
        let payload = command.to_bytes(ORDER);
        let header = RecordHeader { kind: RecordKind::CONFIG, ..RecordHeader::default() };
        config.take(&LogRecord { order: ORDER, header, payload: &payload })
    }

    fn says(config: &mut Config, command: Command, texts: &[&str]) {
        let header = CommandHeader { version: COMMAND_VERSION, command, ..Default::default() };
        let texts: Vec<Vec<u8>> = texts.iter().map(|t| [t.as_bytes(), b"\0"].concat()).collect();
        let buffers: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        take(config, header, &buffers).unwrap();
    }

    fn marker(config: &mut Config, flags: MarkerFlags) {
        let command = Command::MARKER;
        let header = CommandHeader { version: COMMAND_VERSION, command, ..Default::default() };
        let marker = Marker { flags, ..Marker::default() }.to_bytes(ORDER);
        take(config, header, &[b"", &marker]).unwrap();
    }

    fn node(config: &mut Config, name: &str, nid: &str) {
        let nid: Nid = nid.parse().unwrap();
        let header = CommandHeader {
            version: COMMAND_VERSION,
            command: Command::ADD_UUID,
            nid: nid.to_nid4().unwrap_or(0),
            ..Default::default()
        };
        let (name, long) = (format!("{name}\0"), format!("{nid}\0"));
        let mut buffers = vec![b"".as_slice(), name.as_bytes()];
        if nid.to_nid4().is_none() {
            buffers.push(long.as_bytes());
        }
        take(config, header, &buffers).unwrap();
    }

    fn ost(config: &mut Config, index: u32) {
        let (device, uuid) =
            (format!("lfs-OST{index:04x}-osc"), format!("lfs-OST{index:04x}_UUID"));
        marker(config, MarkerFlags::START);
        node(config, "a", "10.0.0.1@tcp");
        node(config, "a", "10.1.0.1@tcp1");
        says(config, Command::SETUP, &[&device, &uuid, "a"]);
        // The node of the set-up comes again as one of those that may take over.
        says(config, Command::ADD_CONN, &[&device, "a"]);
        node(config, "b", "fd00::2@tcp");
        says(config, Command::ADD_CONN, &[&device, "b"]);
        says(config, Command::LOV_ADD_OBD, &["lfs-clilov", &uuid, &index.to_string(), "1"]);
        marker(config, MarkerFlags::END);
    }

    #[test]
    fn a_target_has_the_nids_of_all_its_nodes_once() {
        let mut config = Config::default();
        ost(&mut config, 10);
        let nids = ["10.0.0.1@tcp", "10.1.0.1@tcp1", "fd00::2@tcp"];
        let nids = nids.map(|nid| nid.parse().unwrap()).to_vec();
        let uuid = "lfs-OST000a_UUID".to_owned();
        let expected = BTreeMap::from([(10, TargetEntry { uuid, nids, active: true })]);
        assert_eq!(config.targets().osts, expected);
    }

    #[test]
    fn skipped_records_do_not_count_and_the_last_of_a_kind_does() {
        let mut config = Config::default();
        ost(&mut config, 0);
        ost(&mut config, 1);
        let mut switch = |flags, device: &str, value: &str| {
            marker(&mut config, flags);
            says(&mut config, Command::PARAM, &[device, value]);
            marker(&mut config, MarkerFlags::END);
        };
        let start = MarkerFlags::START;
        switch(start | MarkerFlags::SKIP, "lfs-OST0000-osc", "osc.active=0");
        switch(start, "lfs-OST0001-osc", "osc.active=0");
        switch(start, "lfs-OST0000-osc", "osc.active=0");
        switch(start, "lfs-OST0000-osc", "osc.active=1");
        // Out of place: between no markers.
        says(&mut config, Command::LOV_DEL_OBD, &["lfs-clilov", "lfs-OST0001_UUID", "1", "1"]);
        let active: Vec<bool> = config.targets().osts.values().map(|ost| ost.active).collect();
        assert_eq!(active, [true, false]);
        marker(&mut config, start);
        says(&mut config, Command::LOV_DEL_OBD, &["lfs-clilov", "lfs-OST0001_UUID", "1", "1"]);
        assert_eq!(config.targets().osts.len(), 1);
    }

    #[test]
    fn p3_times_of_the_site_are_tunables_unless_they_are_out_of_bounds() {
        let mut config = Config::default();
        assert!(config.targets().times.is_empty());
        marker(&mut config, MarkerFlags::START);
        let header =
            CommandHeader { command: Command::SET_TIMEOUT, num: 300, ..Default::default() };
        let header = CommandHeader { version: COMMAND_VERSION, ..header };
        take(&mut config, header, &[b"lfs\0"]).unwrap();
        for value in ["sys.at_max=4", "sys.at_min=2", "sys.at_history=x", "sys.at_extra=7", "sys."]
        {
            says(&mut config, Command::PARAM, &["lfs", value]);
        }
        let before = Tunables::default();
        let secs = core::time::Duration::from_secs;
        let (timeout, pings, at_min, at_max) = (secs(300), secs(75), secs(2), secs(4));
        let all = Tunables { obd_timeout: timeout, at_min, at_max, ..before };
        let all = Tunables { ping_interval: pings, ..all };
        assert_eq!(config.targets().times.of(&before), all);
        // The last record counts; of what is out of bounds alone nothing comes.
        for value in ["sys.timeout=8", "sys.at_max=4000000000", "sys.at_history=60"] {
            says(&mut config, Command::PARAM, &["lfs", value]);
        }
        let expected = Tunables {
            obd_timeout: secs(8),
            ping_interval: secs(2),
            at_history: secs(60),
            at_min,
            ..before
        };
        assert_eq!(config.targets().times.of(&before), expected);
    }

    #[test]
    fn c275_parameters_for_all_clients_switch_targets_off_and_set_times() {
        let mut config = Config::default();
        (0..3).for_each(|index| ost(&mut config, index));
        marker(&mut config, MarkerFlags::START);
        for setting in [
            "osc.*.active=1",
            "osc.*.checksums=1",
            "osc.lfs-OST0001*.active=0",
            "osc.lfs-OST0002-osc-*.active=0",
            "osc.other-*.active=0",
            "osc.lfs-OST0002*.active=1",
            "mdc.*.active=0",
            "at_max=300",
            "jobid_var=none",
            "active",
        ] {
            says(&mut config, Command::SET_PARAM, &["general", setting, "lctl"]);
        }
        // Each kind has its own.
        says(&mut config, Command::SETUP, &["lfs-MDT0000-mdc", "lfs-MDT0000_UUID", "a"]);
        says(&mut config, Command::ADD_MDC, &["lfs-clilmv", "lfs-MDT0000_UUID", "0", "1"]);
        let active: Vec<bool> = config.targets().osts.values().map(|ost| ost.active).collect();
        assert_eq!((active, config.targets().mdts[&0].active), (vec![true, false, true], false));
        let times = config.targets().times.of(&Tunables::default());
        assert_eq!(times.at_max, core::time::Duration::from_secs(300));
        // Devices that are named behind it count as well.
        ost(&mut config, 1);
        assert!(!config.targets().osts[&1].active);
    }

    #[test]
    fn an_unknown_command_is_an_error_if_it_must_be_known() {
        let mut config = Config::default();
        marker(&mut config, MarkerFlags::START);
        let header = |command| CommandHeader {
            version: COMMAND_VERSION,
            command: Command(command),
            ..Default::default()
        };
        assert_eq!(take(&mut config, header(0xce0ff), &[]), Ok(()));
        let e = take(&mut config, header(0xcf0ff), &[]);
        assert_eq!(e, Err(ConfigError::Unknown(0xcf0ff)));
        let e = take(&mut config, header(Command::ADD_MDC.0), &[b"", b"uuid\0", b"x\0"]);
        assert!(matches!(e, Err(ConfigError::Index { .. })), "{e:?}");
    }
}
