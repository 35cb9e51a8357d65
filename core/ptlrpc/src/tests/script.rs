//! A server that says what a test wants: it keeps no state, and answers each request with what its
//! script returns.

use core::time::Duration;

use lnet::upper::{Below, Upper};
use lnet::{Event as LnetEvent, EventKind, MatchEntry, MdOptions, MdSpec, Put, Report, Unlink};
use lnet_types::{ByteOrder, Errno, Instant, IoVec, Nid, ProcessId, Span};
use lustre_wire::msg::{BODY_ONLY_LEN, checksum};
use lustre_wire::{
    Body, ConnectData, Header, ImportKind, Layout, Msg, MsgBuilder, MsgKind, OpFlags, Opcode,
};

use super::bench::{Bench, append_log, data};
use crate::{Config, Event, ImportConfig, ImportState, LogLine, Ptlrpc, Tunables};

/// A request, as it arrived.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) xid: u64,
    pub(super) body: Body,
    pub(super) header: Header,
    /// The first buffer behind the body.
    pub(super) text: Vec<u8>,
    pub(super) at: Instant,
    from: ProcessId,
    portal: u32,
}

impl Asked {
    pub(super) fn connects(&self) -> bool {
        self.body.opcode.is_connect()
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) body: Body,
    pub(super) buffers: Vec<Vec<u8>>,
    /// An early reply.
    pub(super) early: bool,
    /// These bytes, whatever the rest says.
    pub(super) raw: Option<Vec<u8>>,
}

impl Said {
    pub(super) fn status(status: i32) -> Self {
        let body = Body { kind: MsgKind::REPLY, version: 3, timeout: 5, ..Body::default() };
        let body = Body { status, service_time: 1, ..body };
        Self { body, buffers: Vec::new(), early: false, raw: None }
    }

    pub(super) fn error(errno: Errno) -> Self {
        let mut said = Self::status(errno.negative());
        said.body.kind = MsgKind::ERROR;
        said
    }

    /// The answer to a connect that makes an export.
    pub(super) fn connected(handle: u64, op_flags: OpFlags, data: ConnectData) -> Self {
        let mut said = Self::status(0);
        said.body.handle = handle;
        said.body.op_flags = op_flags;
        said.buffers.push(data.to_bytes(ByteOrder::Little).to_vec());
        said
    }

    pub(super) fn early(timeout: u32) -> Self {
        let mut said = Self::status(0);
        said.body.timeout = timeout;
        said.early = true;
        said
    }

    /// The message that says this about an operation.
    pub(super) fn bytes(&self, opcode: Opcode) -> Vec<u8> {
        if let Some(raw) = &self.raw {
            return raw.clone();
        }
        let (mut header, body) = (Header::default(), Body { opcode, ..self.body });
        if self.early {
            header.cksum = checksum(&body.to_bytes(ByteOrder::Little));
        }
        let builder = MsgBuilder::new(header, &body);
        self.buffers.iter().fold(builder, |b, bytes| b.bytes(bytes)).build().unwrap()
    }
}

/// What answers: none, one or several replies to each request.
pub(super) type Play = Box<dyn FnMut(&Asked) -> Vec<Said> + Send>;

pub(super) struct Script {
    play: Play,
    pub(super) asked: Vec<Asked>,
}

const PORTALS: [u32; 4] = [28, 6, 7, 12];

impl Script {
    fn post(&self, below: &mut Below<'_>, portal: u32) {
        let span = below.alloc(64 << 10).unwrap();
        let options = MdOptions::OP_PUT | MdOptions::MAX_SIZE;
        let mut spec = MdSpec::new(IoVec::from([span]), u64::from(portal));
        spec.options = options;
        spec.max_size = 8 << 10;
        spec.unlink = Unlink::Auto;
        let entry = MatchEntry { ignore_bits: u64::MAX, ..MatchEntry::bits(0) };
        below.set_lazy(portal, true).unwrap();
        below.attach(portal, entry, spec).unwrap();
    }

    pub(super) fn say(below: &mut Below<'_>, asked: &Asked, said: &Said) {
        let bytes = said.bytes(asked.body.opcode);
        let span: Span = below.alloc(bytes.len() as u32).unwrap();
        below.bytes_mut(span).copy_from_slice(&bytes);
        let mut spec = MdSpec::new(IoVec::from([span]), 0);
        spec.threshold = Some(1);
        spec.unlink = Unlink::Auto;
        let md = below.bind(spec).unwrap();
        let adaptive = asked.header.flags.bits() & 1 != 0;
        let offset = if adaptive && !said.early { BODY_ONLY_LEN as u32 } else { 0 };
        let mbits = asked.body.mbits;
        let portal = match asked.portal {
            28 | 6 | 7 => 4,
            _ => 10,
        };
        let put = Put {
            md,
            ack: false,
            src: None,
            target: asked.from,
            portal,
            match_bits: if mbits == 0 { asked.xid } else { mbits },
            offset,
            hdr_data: 0,
            timeout: None,
        };
        below.put(put).unwrap();
    }
}

impl Upper for Script {
    fn event(&mut self, event: &LnetEvent, below: &mut Below<'_>) {
        if event.kind == EventKind::Put && event.status.is_ok() {
            let spans = below.payload(event);
            let mut bytes = Vec::new();
            for span in &spans {
                bytes.extend_from_slice(below.bytes(*span));
            }
            let msg = Msg::parse(&bytes).unwrap();
            let asked = Asked {
                xid: event.match_bits,
                body: msg.body().unwrap(),
                header: msg.header,
                text: msg.buffer(1).unwrap_or_default().to_vec(),
                at: below.now(),
                from: event.source,
                portal: event.portal,
            };
            self.asked.push(asked.clone());
            for said in (self.play)(&asked) {
                Self::say(below, &asked, &said);
            }
        }
        if event.unlinked && event.kind == EventKind::Put {
            self.post(below, event.portal);
        }
    }

    fn spent(&mut self, _: u64) {}

    fn report(&mut self, _: &Report, _: &mut Below<'_>) {}

    fn handle_timeout(&mut self, _: &mut Below<'_>) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// What a scripted connect asks for.
pub(super) fn config(kind: ImportKind, wanted: ConnectData) -> ImportConfig {
    ImportConfig {
        kind,
        target: "log-1".to_owned(),
        client: "client-1".to_owned(),
        nids: vec![Nid::LOOPBACK],
        wanted,
    }
}

/// A bench whose server follows a script, with a client of these tunables.
pub(super) fn scripted(
    tunables: Tunables,
    config: ImportConfig,
    play: impl FnMut(&Asked) -> Vec<Said> + Send + 'static,
) -> Bench {
    let mut bench = Bench::new(append_log());
    bench.replace_server(Box::new(Script { play: Box::new(play), asked: Vec::new() }));
    bench.upper(bench.server, |script: &mut Script, below| {
        PORTALS.iter().for_each(|portal| script.post(below, *portal));
    });
    bench.party_of(bench.client, |party, _| {
        party.ptlrpc =
            Ptlrpc::new(Config { seed: 1, wall: Duration::from_secs(1_795_000_000), tunables });
    });
    bench.import = bench.rpc(bench.client, |rpc| rpc.import(config)).unwrap();
    bench
}

/// A server that makes exports, and plays `play` to everything but connects.
pub(super) fn serving(
    tunables: Tunables,
    mut play: impl FnMut(&Asked) -> Vec<Said> + Send + 'static,
) -> Bench {
    scripted(tunables, config(ImportKind::Osc, data()), move |asked| match asked.connects() {
        true if asked.body.handle == 0 => {
            vec![Said::connected(7, OpFlags::empty(), data())]
        }
        true => vec![Said::connected(7, OpFlags::RECONNECT, data())],
        false => play(asked),
    })
}

impl Bench {
    /// Goes on by another script.
    pub(super) fn play(&mut self, play: impl FnMut(&Asked) -> Vec<Said> + Send + 'static) {
        self.upper(self.server, |script: &mut Script, _| script.play = Box::new(play));
    }

    /// Answers a request later.
    pub(super) fn say_late(&mut self, asked: &Asked, said: Said) {
        self.upper(self.server, |_: &mut Script, below| Script::say(below, asked, &said));
        self.settle();
    }

    /// States with the times in seconds at which they began.
    pub(super) fn states_at(&mut self) -> Vec<(u64, ImportState)> {
        let import = self.import;
        self.party_of(self.client, |p, _| {
            let view = p.ptlrpc.import_view(import).unwrap();
            view.history.iter().map(|(at, state)| (at.as_secs(), *state)).collect()
        })
    }

    /// Lines of the client's log.
    pub(super) fn log(&mut self) -> Vec<LogLine> {
        self.party_of(self.client, |p, _| {
            let lines = p.events.iter().filter_map(|event| match event {
                Event::Log { line, .. } => Some(line.clone()),
                _ => None,
            });
            lines.collect()
        })
    }

    /// What has arrived at the scripted server.
    pub(super) fn asked(&mut self) -> Vec<Asked> {
        self.upper(self.server, |script: &mut Script, _| script.asked.clone())
    }

    /// What has arrived of one operation.
    pub(super) fn asked_for(&mut self, opcode: Opcode) -> Vec<Asked> {
        self.asked().into_iter().filter(|asked| asked.body.opcode == opcode).collect()
    }
}
