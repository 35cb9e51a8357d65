//! Inputs for the wire targets out of the golden bytes and the captures: one of each shape, so that
//! the corpus stays small.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use lnet_pcap::Conversation;
use lnet_wire::acceptor::Request;
use lnet_wire::ping;
use lnet_wire::selftest::Service;
use lnet_wire::sock::{FrameHdr, FrameType, Hello, Version};
use lnet_wire::{ByteOrder, Hdr, HdrForm, Need};

use crate::{Target, corpus, import_lustre, repository};

/// Inputs by target and file name.
pub type Inputs = BTreeMap<(&'static str, String), Vec<u8>>;

/// Writes the inputs made of `fixtures/` to the corpus; gives their number.
///
/// # Errors
/// A fixture that can't be read, a corpus file that can't be written.
pub fn import() -> io::Result<usize> {
    let mut inputs = Inputs::new();
    let fixtures = repository().join("fixtures");
    for path in sorted(&fixtures.join("wire"), "hex")? {
        let name = stem(&path);
        golden(&name, &from_hex(&fs::read_to_string(&path)?), &mut inputs);
    }
    for path in sorted(&fixtures.join("pcap"), "pcap")? {
        let name = stem(&path);
        let file = fs::read(&path)?;
        let conversations = lnet_pcap::parse(&file).map_err(io::Error::other)?;
        for conversation in &conversations {
            walk(conversation, &mut inputs);
        }
        if file.len() < 4096 {
            inputs.insert(("pcap", name), file);
        }
    }
    for path in sorted(&fixtures.join("o2ib"), "pcap")? {
        let file = fs::read(&path)?;
        if file.len() < 4096 {
            inputs.insert(("pcap", stem(&path)), file);
        }
    }
    for path in sorted(&fixtures.join("ptlrpc"), "pcap")? {
        let conversations = lnet_pcap::conversations(&path).map_err(io::Error::other)?;
        for conversation in &conversations {
            import_lustre::walk(conversation, &mut inputs);
        }
    }
    for ((target, name), bytes) in &inputs {
        let target = Target::named(target).ok_or_else(|| io::Error::other("no such target"))?;
        let dir = corpus::dir(&target);
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(name), bytes)?;
    }
    Ok(inputs.len())
}

fn sorted(dir: &Path, extension: &str) -> io::Result<Vec<std::path::PathBuf>> {
    let mut paths: Vec<_> = fs::read_dir(dir)?.map(|e| Ok(e?.path())).collect::<io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|e| e == extension));
    paths.sort();
    Ok(paths)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Bytes from hex digits and blanks; `#` begins a comment.
fn from_hex(text: &str) -> Vec<u8> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let words = lines.flat_map(str::split_whitespace);
    words.filter_map(|word| u8::from_str_radix(word, 16).ok()).collect()
}

/// A vector goes to the target that its name tells.
fn golden(name: &str, bytes: &[u8], inputs: &mut Inputs) {
    let mut add = |target, bytes: Vec<u8>| inputs.insert((target, name.to_owned()), bytes);
    match name.as_bytes().first() {
        Some(b'A') => drop(add("acceptor", bytes.to_vec())),
        Some(b'H') => drop(add("hello", bytes.to_vec())),
        Some(b'P') => drop(add("ping_info", bytes.to_vec())),
        Some(b'O') => drop(add("ib", bytes.to_vec())),
        Some(b'S') => drop(add("selftest", selftest(bytes))),
        Some(b'F' | b'L') => {
            let (frame, rest) = bytes.split_at(bytes.len().min(FrameHdr::LEN));
            add("frame", [&[0], frame].concat());
            let form = if matches!(name, "L8" | "L9") { HdrForm::Long } else { HdrForm::Short };
            if rest.len() >= form.len() {
                let (hdr, payload) = rest.split_at(form.len());
                add("hdr", with_form(form, hdr));
                if payload.starts_with(&ping::MAGIC.to_le_bytes()) {
                    add("ping_info", payload.to_vec());
                }
            }
        }
        _ => {}
    }
}

/// With the byte in front that chooses service and direction by the type of the message.
fn selftest(bytes: &[u8]) -> Vec<u8> {
    let kind = bytes
        .get(8..12)
        .map_or(u32::MAX, |b| b.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte)));
    let choice = Service::ALL.iter().enumerate().find_map(|(i, service)| {
        let kinds = [service.request_type(), service.reply_type()];
        Some((i << 2 | kinds.iter().position(|k| *k == kind)?) as u8)
    });
    [&[choice.unwrap_or(4 | 2)], bytes].concat()
}

fn with_form(form: HdrForm, hdr: &[u8]) -> Vec<u8> {
    [&[u8::from(form == HdrForm::Long)], hdr].concat()
}

/// Takes the messages of a conversation whose shape is new, as far as they are distinct.
fn walk(conversation: &Conversation, inputs: &mut Inputs) {
    let mut add = |target: &'static str, shape: String, bytes: &[u8]| {
        inputs.entry((target, shape)).or_insert_with(|| bytes.to_vec());
    };
    let refused = |b: &[u8]| {
        b.iter().take(8).fold("refused-".to_owned(), |name, byte| format!("{name}{byte:02x}"))
    };
    // Whole conversations for the driver, from those whose server has the NID that it has there.
    let whole = &conversation.to_server;
    if conversation.server.ip().to_string() == "10.77.0.2" && whole.len() < 1024 {
        add("conn", format!("client-{}", whole.len()), &[&[0, 1], &whole[..]].concat());
    }
    let mut client = &conversation.to_server[..];
    match Request::need(client) {
        Ok(Need::Exactly(n)) if n <= client.len() => {
            add("acceptor", format!("{n}-{:02x}", client[0]), &client[..n]);
            client = &client[n..];
        }
        Ok(_) => {}
        Err(_) => add("acceptor", refused(client), &client[..client.len().min(28)]),
    }
    for mut b in [client, &conversation.to_client] {
        let Ok((hello, used)) = Hello::parse(b) else {
            if !b.is_empty() {
                add("hello", refused(b), &b[..b.len().min(80)]);
            }
            continue;
        };
        let order = u8::from(hello.order == ByteOrder::Big);
        let shape = format!("{}-{}-{order}", hello.version, hello.conn_type);
        add("hello", shape, &b[..used]);
        b = &b[used..];
        let form = hello.version.hdr_form();
        loop {
            if hello.version != Version::V1 {
                let Ok(frame) = FrameHdr::parse(hello.order, b) else { break };
                let (raw, rest) = b.split_at(FrameHdr::LEN);
                let cookies = (frame.cookie0.min(2), frame.cookie1.min(2));
                let shape = format!("{:?}-{}-{}-{order}", frame.kind, cookies.0, cookies.1);
                add("frame", shape, &[&[order], raw].concat());
                b = rest;
                if frame.kind == FrameType::Noop {
                    continue;
                }
            }
            let Ok(hdr) = Hdr::parse(form, b) else { break };
            let (raw, rest) = b.split_at(form.len());
            let shape = format!("{:?}-{form:?}", hdr.kind.msg_type());
            add("hdr", shape, &with_form(form, raw));
            let Some((payload, rest)) = rest.split_at_checked(hdr.payload_len as usize) else {
                break;
            };
            if payload.starts_with(&ping::MAGIC.to_le_bytes()) {
                add("ping_info", format!("{}", payload.len()), payload);
            }
            b = rest;
        }
    }
}
