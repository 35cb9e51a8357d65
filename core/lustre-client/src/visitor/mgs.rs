//! The configuration of a file system, read from its management server (C-13 … C-19). No lock is taken:
//! a visit follows no changes. `table.rs` reads where targets are.

use lnet_types::Errno;
use lustre_wire::connect::{ConnectData, ConnectFlags, ConnectFlags2};
use lustre_wire::llog::{BLOCK_LEN, LlogdBody, LogHeader, LogRecords};
use lustre_wire::{Buffers, Layout, Opcode};
use ptlrpc::Call;

use super::config::{Config, ConfigError, Targets};
use super::join::both;
use super::table;
use super::{Remote, VisitError, Wire};

/// What a visitor asks the management server for.
pub(super) fn wanted() -> ConnectData {
    ConnectData {
        flags: ConnectFlags::VERSION
            | ConnectFlags::AT
            | ConnectFlags::FULL20
            | ConnectFlags::BULK_MBITS
            | ConnectFlags::IMP_RECOV
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS,
        ..ConnectData::default()
    }
}

/// Flag of a log whose records are what they are, and name no other logs.
const PLAIN: u32 = 0x4;

fn call(opcode: Opcode, place: &LlogdBody, name: Option<&str>, reply: &[u32]) -> Call {
    let mut buffers = Buffers::new().layout(place);
    if let Some(name) = name {
        // Kernel nodes put an empty body behind it.
        buffers = buffers.text(name.as_bytes()).layout(&super::mdc::empty());
    }
    Call::new(opcode, buffers).answered_by(reply)
}

/// The log of what is set for all clients (C-275).
const PARAMETERS: &str = "params";

/// The targets of a file system.
pub(super) async fn targets<W: Wire>(
    wire: &W,
    mgs: &Remote<W::Link>,
    fsname: &str,
) -> Result<Targets, VisitError> {
    let name = format!("{fsname}-client");
    let found = async {
        let Some(log) = open(wire, mgs, &name).await? else {
            return Err(VisitError::NoFileSystem { fsname: fsname.to_owned() });
        };
        // Whether there is a table the server has said when it has answered.
        let (config, locations) =
            both(read(wire, mgs, log), table::locations(wire, mgs, fsname)).await;
        Ok((config?, locations))
    };
    let set = async {
        match open(wire, mgs, PARAMETERS).await? {
            Some(log) => read(wire, mgs, log).await,
            None => Ok(Config::default()),
        }
    };
    // They are large, and all that wait for them would hold room for them.
    let (found, parameters) = both(Box::pin(found), Box::pin(set)).await;
    let (mut config, locations) = found?;
    // A site without parameters has no log of them (C-15), and without them a client has its own.
    config.add(parameters.unwrap_or_default());
    let mut targets = config.targets();
    table::apply(locations, &mut targets);
    Ok(targets)
}

/// Length of the place of a log.
const PLACE: u32 = LlogdBody::LEN as u32;

/// Where a log is; `None`: there is none of this name.
async fn open<W: Wire>(
    wire: &W,
    mgs: &Remote<W::Link>,
    name: &str,
) -> Result<Option<LlogdBody>, VisitError> {
    let begun =
        call(Opcode::LLOG_ORIGIN_HANDLE_CREATE, &LlogdBody::default(), Some(name), &[PLACE]);
    let opened = match mgs.ask(wire, begun).await {
        Err(VisitError::Refused { errno: Errno::ENOENT, .. }) => return Ok(None),
        end => end?,
    };
    let log: LlogdBody = opened.get(1).ok_or_else(|| mgs.bad("expected the place of a log"))?;
    Ok(Some(LlogdBody { flags: PLAIN, ..log }))
}

/// What a log says.
async fn read<W: Wire>(
    wire: &W,
    mgs: &Remote<W::Link>,
    log: LlogdBody,
) -> Result<Config, VisitError> {
    let block = BLOCK_LEN as u32;
    let block_from = |seen: u32, offset| {
        let index = seen.saturating_add(1);
        let at = LlogdBody { index, saved_index: seen, len: block, offset, ..log };
        mgs.ask(wire, call(Opcode::LLOG_NEXT_BLOCK, &at, None, &[PLACE, block]))
    };
    let (mut seen, mut offset) = (0u32, u64::from(block));
    // The place of the first block is known without the header (C-16).
    let asked = mgs.ask(wire, call(Opcode::LLOG_READ_HEADER, &log, None, &[block]));
    let (header, first) = both(asked, block_from(seen, offset)).await;
    let header: Option<LogHeader> = header?.get(1);
    let header = header.ok_or_else(|| mgs.bad("expected the header of a log"))?;
    let last = header.tail.index;

    let mut config = Config::default();
    let mut first = Some(first);
    while seen < last {
        // Servers say by an error, too, that a log ends (P-157); here it does not end yet.
        let answer = match first.take() {
            Some(answer) => answer,
            None => block_from(seen, offset).await,
        };
        let answer = answer?;
        let read: LlogdBody =
            answer.get(1).ok_or_else(|| mgs.bad("expected the place of a block"))?;
        let msg = answer.reply.msg().map_err(|_| mgs.bad("expected a block of a log"))?;
        let before = seen;
        for record in LogRecords::new(msg.buffer(2).unwrap_or_default()) {
            let record = record.map_err(ConfigError::Record)?;
            let index = record.header.index;
            // A block may begin with records that are known.
            if index > seen {
                seen = index;
                if header.bitmap.has(index) {
                    config.take(&record)?;
                }
            }
        }
        // A server that has no more for us is at the end of the log.
        if seen == before {
            break;
        }
        offset = read.offset / u64::from(block) * u64::from(block);
    }
    Ok(config)
}
