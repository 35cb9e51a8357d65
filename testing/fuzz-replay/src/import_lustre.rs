//! Inputs for the targets of Lustre out of its captures: one message of each opcode and shape, one
//! buffer of each kind and length.

use lnet_pcap::Conversation;
use lustre_wire::{Format, Msg, MsgKind, Part, Variant};

use crate::import::Inputs;
use crate::targets::lustre::STRUCTURES;

/// Longer ones would make the corpus large without making it better.
const LEN_MAX: usize = 1024;

/// Takes the messages in both streams of a conversation: wherever the magic number stands.
pub(crate) fn walk(conversation: &Conversation, inputs: &mut Inputs) {
    let magic = lustre_wire::msg::MAGIC.to_le_bytes();
    for stream in [&conversation.to_server, &conversation.to_client] {
        let found = stream.windows(4).enumerate().filter(|(_, bytes)| *bytes == magic);
        for (at, _) in found.filter(|(at, _)| *at >= 8) {
            if let Ok(message) = Msg::parse(&stream[at - 8..]) {
                take(&message, &stream[at - 8..][..message.size()], inputs);
            }
        }
    }
}

fn take(message: &Msg<'_>, bytes: &[u8], inputs: &mut Inputs) {
    let Ok(body) = message.body() else { return };
    let variant = Variant::of(message, &body);
    let sub = match variant {
        Variant::Plain => String::new(),
        Variant::Intent(intent) => format!("-{:x}", intent.bits()),
        Variant::Reint(op) => format!("-{op}"),
    };
    if bytes.len() <= LEN_MAX {
        let shape = format!("{}-{}{sub}", body.opcode, body.kind);
        inputs.entry(("lustre_msg", shape)).or_insert_with(|| bytes.to_vec());
    }
    let format = match body.kind {
        MsgKind::REQUEST => variant.request(body.opcode),
        MsgKind::REPLY => variant.reply(body.opcode),
        _ => None,
    };
    let parts = format.as_ref().map_or(&[][..], Format::parts);
    for (part, buffer) in parts.iter().zip(message.buffers().skip(1)) {
        if !buffer.is_empty() {
            take_part(*part, buffer, inputs);
        }
    }
}

fn take_part(part: Part, buffer: &[u8], inputs: &mut Inputs) {
    let (target, front): (_, &[u8]) = match part {
        Part::LockRequest => ("lustre_lock", &[0]),
        Part::Record => ("lustre_record", &[0]),
        Part::Md | Part::DefaultMd | Part::EaData => ("lustre_striping", &[]),
        Part::LogBlock => ("lustre_log", &[]),
        _ => {
            let which = STRUCTURES.iter().position(|s| s.name == part.name());
            if let Some(which) = which
                && buffer.len() <= LEN_MAX
            {
                let input = [&[(which << 1) as u8], buffer].concat();
                inputs.entry(("lustre_fixed", part.name().replace(' ', "-"))).or_insert(input);
            }
            return;
        }
    };
    // The records of a log stand in its first part.
    let buffer = buffer.get(..LEN_MAX.min(buffer.len())).unwrap_or(buffer);
    let shape = match part {
        Part::Record => format!("{}", buffer.first().copied().unwrap_or_default()),
        Part::LogBlock => "block".to_owned(),
        _ => buffer.len().to_string(),
    };
    inputs.entry((target, shape)).or_insert_with(|| [front, buffer].concat());
}
