//! tshark as a judge of our bytes: what its LNet dissector shows of the kernel's messages it has to
//! show of ours, and it may complain of nothing in ours that it does not complain of there. It is
//! an imperfect judge (it calls every genuine PUT with a payload too long), so the comparison is
//! kind by kind, with complaints reduced to their shape: numbers in them do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};

/// What tshark shows of one kind of message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How many there are.
    pub count: usize,
    /// Fields that every one of them has.
    pub fields: BTreeSet<String>,
    /// Shapes of the complaints about any of them.
    pub complaints: BTreeSet<String>,
}

/// Kind of message (`PUT (1)`, `NOOP`) and what is seen of it.
pub type Kinds = BTreeMap<String, Seen>;

/// Whether tshark is there.
pub fn available() -> bool {
    let mut tshark = Command::new("tshark");
    tshark.arg("-v").stdout(Stdio::null()).stderr(Stdio::null());
    tshark.status().is_ok_and(|status| status.success())
}

/// What tshark sees of the LNet messages in a capture that come from one of `sources` (from
/// any node, if there are none).
///
/// # Errors
/// tshark does not run or does not like the file.
pub fn dissect(pcap: &Path, sources: &[IpAddr]) -> io::Result<Kinds> {
    let mut filter = "(lnet || lnet.ksm_type)".to_owned();
    if !sources.is_empty() {
        let field = |ip: &IpAddr| if ip.is_ipv4() { "ip.src" } else { "ipv6.src" };
        let any: Vec<String> = sources.iter().map(|ip| format!("{} == {ip}", field(ip))).collect();
        filter = format!("{filter} && ({})", any.join(" || "));
    }
    let output = Command::new("tshark")
        .args(["-n", "-T", "pdml", "-J", "lnet", "-Y", &filter, "-r"])
        .arg(pcap)
        .stderr(Stdio::piped())
        .output()?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("tshark -r {}: {words}", pcap.display())));
    }
    Ok(kinds(&String::from_utf8_lossy(&output.stdout)))
}

/// Adds what was seen in another capture.
pub fn merge(all: &mut Kinds, more: Kinds) {
    for (kind, seen) in more {
        add(all, kind, seen);
    }
}

fn add(all: &mut Kinds, kind: String, seen: Seen) {
    match all.get_mut(&kind) {
        Some(known) => {
            known.count += seen.count;
            known.fields.retain(|field| seen.fields.contains(field));
            known.complaints.extend(seen.complaints);
        }
        None => {
            all.insert(kind, seen);
        }
    }
}

/// Where ours is not as the kernel's, kind by kind.
pub fn compare(kernel: &Kinds, ours: &Kinds) -> Vec<String> {
    let mut differences = Vec::new();
    for (kind, seen) in ours {
        let Some(known) = kernel.get(kind) else {
            differences.push(format!("{kind}: no kernel message of this kind"));
            continue;
        };
        let missing: Vec<&String> = known.fields.difference(&seen.fields).collect();
        if !missing.is_empty() {
            differences.push(format!("{kind}: fields not shown: {missing:?}"));
        }
        for complaint in seen.complaints.difference(&known.complaints) {
            differences.push(format!("{kind}: tshark complains: {complaint}"));
        }
    }
    differences
}

/// Reads PDML: an element `proto` named `lnet` is a message; a NOOP has none, its fields stand each in
/// a wrapper of their own, the frame type first.
fn kinds(pdml: &str) -> Kinds {
    let mut all = Kinds::new();
    let mut noop: Option<Seen> = None;
    for proto in pdml.split("<proto name=\"").skip(1) {
        let Some((name, rest)) = proto.split_once('"') else { continue };
        let body = rest.split("</proto>").next().unwrap_or_default();
        if name == "fake-field-wrapper" && body.contains("name=\"lnet.") {
            if body.contains("name=\"lnet.ksm_type\"")
                && let Some(before) = noop.replace(Seen { count: 1, ..Seen::default() })
            {
                add(&mut all, "NOOP".to_owned(), before);
            }
            noop.get_or_insert_default().fields.extend(message(body).1.fields);
            continue;
        }
        if let Some(before) = noop.take() {
            add(&mut all, "NOOP".to_owned(), before);
        }
        if name == "lnet" {
            let (kind, seen) = message(body);
            add(&mut all, kind, seen);
        }
    }
    if let Some(last) = noop {
        add(&mut all, "NOOP".to_owned(), last);
    }
    all
}

/// The kind of one message and what is seen of it.
fn message(body: &str) -> (String, Seen) {
    let mut seen = Seen { count: 1, ..Seen::default() };
    let mut kind = "other".to_owned();
    for field in body.split("<field ").skip(1) {
        let name = attribute(field, "name").unwrap_or_default();
        let shown = attribute(field, "showname").unwrap_or_default();
        match name.as_str() {
            "lnet.msg_type" => {
                kind = shown.split_once(": ").map_or(shown.as_str(), |(_, kind)| kind).to_owned();
            }
            "_ws.expert.message" => {
                let show = attribute(field, "show").unwrap_or_default();
                seen.complaints.insert(shape(&show));
            }
            "lnet.bad_buflen" | "lnet.bad_type" => {
                seen.complaints.insert(format!("{name} {}", shape(&shown)));
            }
            _ => {}
        }
        if name.starts_with("lnet.") && !name.starts_with("lnet.bad_") {
            seen.fields.insert(name);
        } else if name.contains("malformed") {
            seen.complaints.insert("malformed".to_owned());
        }
    }
    // Payload is shown only where there is some; that is not a matter of the kind.
    seen.fields.remove("lnet.payload");
    (kind, seen)
}

fn attribute(element: &str, name: &str) -> Option<String> {
    let element = element.split('>').next()?;
    let value = element.split(&format!(" {name}=\"")).nth(1);
    let value = value.or_else(|| element.strip_prefix(&format!("{name}=\"")))?;
    value.split('"').next().map(str::to_owned)
}

/// A text with every run of digits as `#`.
fn shape(text: &str) -> String {
    let mut shape = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if shape.ends_with('#') => {}
            '0'..='9' => shape.push('#'),
            _ => shape.push(c),
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    const PDML: &str = r#"
<proto name="fake-field-wrapper">
  <field name="lnet.ksm_type" showname="Type of socklnd message: KSOCK_MSG_NOOP (0x000000c0)" show="192"/>
</proto>
<proto name="fake-field-wrapper">
  <field name="lnet.ksm_zc_ack_cookie" showname="Ack: 0x1" show="0x1"/>
</proto>
<proto name="fake-field-wrapper">
  <field name="lnet.ksm_type" showname="Type of socklnd message: KSOCK_MSG_NOOP (0x000000c0)" show="192"/>
</proto>
<proto name="lnet" showname="Lustre Network PUT">
  <field name="lnet.ksm_type" showname="Type of socklnd message: KSOCK_MSG_LNET (0x000000c1)" show="193"/>
  <field name="lnet.msg_type" showname="Message type: PUT (1)" show="1"/>
  <field name="_ws.expert" showname="x">
    <field name="_ws.expert.message" showname="Message: y" show="Capture:256 offset:96 (length:0)"/>
  </field>
</proto>"#;

    #[test]
    fn messages_are_read_by_kind_with_their_fields_and_complaints() {
        let kinds = kinds(PDML);
        assert_eq!(kinds["NOOP"].count, 2);
        assert_eq!(kinds["PUT (1)"].fields.len(), 2);
        assert_eq!(kinds["PUT (1)"].complaints.first().unwrap(), "Capture:# offset:# (length:#)");
    }

    #[test]
    fn a_field_that_is_not_shown_and_a_new_complaint_are_differences() {
        let kernel = kinds(PDML);
        assert_eq!(compare(&kernel, &kernel), [""; 0]);
        let mut ours = kernel.clone();
        let put = ours.get_mut("PUT (1)").unwrap();
        put.fields.remove("lnet.msg_type");
        put.complaints.insert("malformed".to_owned());
        ours.insert("HELLO".to_owned(), Seen::default());
        assert_eq!(compare(&kernel, &ours).len(), 3);
    }
}
