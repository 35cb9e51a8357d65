//! The client log of a file system: records in blocks, as a reader gets them (C-16 … C-23).

use lnet_types::{ByteOrder, Nid};
use lustre_wire::llog::{
    BLOCK_LEN, COMMAND_VERSION, Command, CommandHeader, ConfigCommand, LogHeader, LogRecord,
    Marker, MarkerFlags, RecordHeader, RecordKind, RecordTail,
};
use lustre_wire::{Layout, Text};

use crate::site::{Part, Site, SiteTarget};

const ORDER: ByteOrder = ByteOrder::Little;
/// Flag of a log whose records are what they are, and name no other logs.
const PLAIN: u32 = 0x4;
/// Bytes of the descriptor of all data or metadata targets.
const DESCRIPTOR: usize = 88;
/// Where the uuid stands in a descriptor.
const DESCRIPTOR_UUID: usize = 48;
/// The least record: a padding has to have room for its front and end.
const RECORD_MIN: usize = RecordHeader::LEN + RecordTail::LEN;

/// A log.
#[derive(Debug)]
pub(super) struct Log {
    /// By which it is opened.
    pub(super) name: String,
    /// The records behind the header; each block of 8 KiB begins with a record.
    bytes: Vec<u8>,
    /// First and last record of each block.
    blocks: Vec<(u32, u32)>,
    /// Index of the last record, paddings included.
    last: u32,
    /// Records that are no paddings.
    kept: Vec<u32>,
}

/// A text with its NUL.
fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), b"\0"].concat()
}

/// A text in a field, cut to it.
fn field<const N: usize>(text: &str) -> Text<N> {
    Text::new(text.get(..N - 1).unwrap_or(text)).unwrap_or_default()
}

fn descriptor(uuid: &str) -> Vec<u8> {
    let mut bytes = vec![0; DESCRIPTOR];
    let field = bytes.get_mut(DESCRIPTOR_UUID..DESCRIPTOR - 1).unwrap_or_default();
    field.iter_mut().zip(uuid.bytes()).for_each(|(to, from)| *to = from);
    bytes
}

impl Log {
    /// A log without records.
    pub(super) fn empty(name: &str) -> Self {
        let name = name.to_owned();
        Self { name, bytes: Vec::new(), blocks: Vec::new(), last: 0, kept: Vec::new() }
    }

    /// The client log of a file system.
    pub(super) fn of(site: &Site) -> Self {
        let fsname = site.fsname();
        let mut log = Self::empty(&format!("{fsname}-client"));
        let (lov, lmv) = (format!("{fsname}-clilov"), format!("{fsname}-clilmv"));
        for (device, kind) in [(&lov, "lov"), (&lmv, "lmv")] {
            let uuid = format!("{device}_UUID");
            log.section(device, &format!("{kind} setup"), |log| {
                log.command(Command::ATTACH, 0, &[text(device), text(kind), text(&uuid)]);
                log.command(Command::SETUP, 0, &[text(device), descriptor(&uuid)]);
            });
        }
        let client = log.name.clone();
        log.section(&client, "mount opts", |log| {
            let buffers = [text(""), text(&client), text(&lov), text(&lmv)];
            log.command(Command::MOUNT_OPTION, 0, &buffers);
        });
        for target in site.targets() {
            log.target(site, target, &lov, &lmv);
        }
        log
    }

    /// What makes a target known (C-23).
    fn target(&mut self, site: &Site, target: &SiteTarget, lov: &str, lmv: &str) {
        let (name, uuid) = (site.name(target), site.uuid(target));
        let (kind, all) = match target.part {
            Part::Mdt => ("mdc", lmv),
            Part::Ost => ("osc", lov),
        };
        let device = format!("{name}-{kind}");
        self.section(&name, &format!("add {kind}"), |log| {
            let mut first = true;
            for nids in &target.nodes {
                // A node is called as its first NID is.
                let Some(node) = nids.first().map(Nid::to_string) else { continue };
                for nid in nids {
                    log.nid(&node, *nid);
                }
                if first {
                    let of = text(&format!("{all}_UUID"));
                    log.command(Command::ATTACH, 0, &[text(&device), text(kind), of]);
                    log.command(Command::SETUP, 0, &[text(&device), text(&uuid), text(&node)]);
                } else {
                    log.command(Command::ADD_CONN, 0, &[text(&device), text(&node)]);
                }
                first = false;
            }
            let index = text(&target.index.to_string());
            let mut buffers = vec![text(all), text(&uuid), index, text("1")];
            let command = match target.part {
                Part::Ost => Command::LOV_ADD_OBD,
                Part::Mdt => {
                    buffers.push(text(&format!("{device}_UUID")));
                    Command::ADD_MDC
                }
            };
            log.command(command, 0, &buffers);
        });
    }

    /// One NID of a node; one that is too long for a number stands as a text (C-27).
    fn nid(&mut self, node: &str, nid: Nid) {
        match nid.to_nid4() {
            Some(short) => self.command(Command::ADD_UUID, short, &[text(""), text(node)]),
            None => {
                let buffers = [text(""), text(node), text(&nid.to_string())];
                self.command(Command::ADD_UUID, 0, &buffers);
            }
        }
    }

    /// Records between two markers.
    fn section(&mut self, target: &str, comment: &str, records: impl FnOnce(&mut Self)) {
        let step = self.kept.len() as u32;
        self.marker(step, MarkerFlags::START, target, comment);
        records(self);
        self.marker(step, MarkerFlags::END, target, comment);
    }

    fn marker(&mut self, step: u32, flags: MarkerFlags, target: &str, comment: &str) {
        let marker = Marker {
            step,
            flags,
            version: ptlrpc::VERSION,
            target: field(target),
            comment: field(comment),
            ..Marker::default()
        };
        self.command(Command::MARKER, 0, &[Vec::new(), marker.to_bytes(ORDER)]);
    }

    fn command(&mut self, command: Command, nid: u64, buffers: &[Vec<u8>]) {
        let header =
            CommandHeader { version: COMMAND_VERSION, command, nid, ..CommandHeader::default() };
        let buffers = buffers.iter().map(Vec::as_slice).collect();
        let payload = ConfigCommand { header, buffers }.to_bytes(ORDER);
        // No record crosses the end of a block: what is left of it is padded.
        let left = BLOCK_LEN - self.bytes.len() % BLOCK_LEN;
        let len = RECORD_MIN + payload.len();
        if left != len && left < len + RECORD_MIN {
            self.append(RecordKind::PAD, &vec![0; left.saturating_sub(RECORD_MIN)]);
        }
        self.append(RecordKind::CONFIG, &payload);
        self.kept.push(self.last);
    }

    fn append(&mut self, kind: RecordKind, payload: &[u8]) {
        self.last += 1;
        let header = RecordHeader { index: self.last, kind, ..RecordHeader::default() };
        let record = LogRecord { order: ORDER, header, payload }.to_bytes();
        if self.bytes.len().is_multiple_of(BLOCK_LEN) {
            self.blocks.push((self.last, self.last));
        }
        self.bytes.extend_from_slice(&record);
        if let Some((_, last)) = self.blocks.last_mut() {
            *last = self.last;
        }
    }

    /// The front of the log.
    pub(super) fn header(&self) -> LogHeader {
        let len = BLOCK_LEN as u32;
        let mut header = LogHeader {
            record: RecordHeader { len, kind: RecordKind::HEADER, ..RecordHeader::default() },
            count: self.kept.len() as u32 + 1,
            bitmap_offset: 88,
            flags: PLAIN,
            uuid: field("config_uuid"),
            tail: RecordTail { len, index: self.last },
            ..LogHeader::default()
        };
        header.bitmap.set(0, true);
        for index in &self.kept {
            header.bitmap.set(*index, true);
        }
        header
    }

    /// The block that has a record: its bytes, the index of its last record, and where its records end
    /// in the log.
    pub(super) fn block_with(&self, index: u32) -> Option<(Vec<u8>, u32, u64)> {
        let at = self.blocks.iter().position(|(first, last)| *first <= index && index <= *last)?;
        let (_, last) = *self.blocks.get(at)?;
        let start = at * BLOCK_LEN;
        let end = self.bytes.len().min(start + BLOCK_LEN);
        let mut block = self.bytes.get(start..end)?.to_vec();
        block.resize(BLOCK_LEN, 0);
        // The header is a block of its own.
        Some((block, last, (BLOCK_LEN + end) as u64))
    }
}

#[cfg(test)]
mod tests {
    use lustre_wire::llog::LogRecords;

    use super::*;

    #[test]
    fn each_record_of_a_long_log_is_in_the_block_that_is_read_for_it() {
        let nid = "10.0.0.1@tcp".parse().unwrap();
        let site = Site::on_one_node("lfs", 200, &[nid]).unwrap();
        let log = Log::of(&site);
        let header = log.header();
        assert_eq!(header.tail.index, log.last);
        assert!(log.blocks.len() > 10, "{}", log.blocks.len());
        let mut osts = 0;
        let mut next = 1;
        while next <= log.last {
            let (block, last, end) = log.block_with(next).unwrap();
            assert_eq!(
                end.div_ceil(BLOCK_LEN as u64),
                log.blocks.iter().position(|b| b.1 == last).unwrap() as u64 + 2
            );
            for record in LogRecords::new(&block) {
                let record = record.unwrap();
                assert_eq!(record.header.index, next);
                next += 1;
                if record.header.kind == RecordKind::PAD {
                    assert!(!header.bitmap.has(record.header.index));
                    continue;
                }
                assert!(header.bitmap.has(record.header.index));
                let command = ConfigCommand::parse(&record).unwrap();
                osts += u32::from(command.header.command == Command::LOV_ADD_OBD);
            }
            assert_eq!(next, last + 1);
        }
        assert_eq!(osts, 200);
        assert_eq!(log.block_with(log.last + 1), None);
        assert_eq!(log.block_with(0), None);
    }
}
