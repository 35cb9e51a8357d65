//! NIDs and networks as text inside serialized data: what people read where that text can be read
//! back, `#` and the numbers in hex where it cannot (types of no name that came from the wire).
//! Use as `#[serde(with = "text::nid")]`, `text::net`, `text::nid_option`, `text::nids` ….

use core::fmt;

use lnet_types::{Net, NetType, Nid};
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde::ser::{SerializeSeq as _, Serializer};
use serde::{Deserialize, Serialize};

/// Most NIDs that a list in one message may hold.
pub const NIDS_MAX: usize = 1 << 16;

struct NidText(Nid);
struct NetText(Net);

impl Serialize for NidText {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let plain = self.0.to_string();
        if plain.parse() == Ok(self.0) {
            return s.serialize_str(&plain);
        }
        let hex: String = self.0.as_wire().iter().map(|b| format!("{b:02x}")).collect();
        s.collect_str(&format_args!("#{hex}"))
    }
}

impl<'de> Deserialize<'de> for NidText {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_str(NidVisitor).map(Self)
    }
}

struct NidVisitor;

impl Visitor<'_> for NidVisitor {
    type Value = Nid;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a NID such as 10.0.0.1@tcp")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Nid, E> {
        let Some(hex) = text.strip_prefix('#') else {
            return text.parse().map_err(E::custom);
        };
        let mut bytes = [0; 20];
        if hex.len() != 40 || !hex.is_ascii() {
            return Err(E::custom("a NID in hex has 40 digits"));
        }
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
            let pair = str::from_utf8(pair).map_err(E::custom)?;
            *byte = u8::from_str_radix(pair, 16).map_err(E::custom)?;
        }
        Nid::from_wire(bytes).map_err(E::custom)
    }
}

impl Serialize for NetText {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let plain = self.0.to_string();
        if plain.parse() == Ok(self.0) {
            return s.serialize_str(&plain);
        }
        s.collect_str(&format_args!("#{:02x}{:04x}", self.0.kind.0, self.0.num))
    }
}

impl<'de> Deserialize<'de> for NetText {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let Some(hex) = text.strip_prefix('#') else {
            return text.parse().map(Self).map_err(D::Error::custom);
        };
        match (hex.len(), u32::from_str_radix(hex, 16)) {
            (6, Ok(n)) => {
                let [_, kind, hi, lo] = n.to_be_bytes();
                Ok(Self(Net::new(NetType(kind), u16::from_be_bytes([hi, lo]))))
            }
            _ => Err(D::Error::custom("a network in hex has 6 digits")),
        }
    }
}

macro_rules! text_modules {
    ($($one:ident, $option:ident, $ty:ty, $wrap:ident;)*) => {$(
        /// For a field of that type.
        pub mod $one {
            use super::*;

            /// Writes it.
            ///
            /// # Errors
            /// The serializer's.
            pub fn serialize<S: Serializer>(v: &$ty, s: S) -> Result<S::Ok, S::Error> {
                $wrap(*v).serialize(s)
            }

            /// Reads it.
            ///
            /// # Errors
            /// The text is none.
            pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<$ty, D::Error> {
                $wrap::deserialize(d).map(|t| t.0)
            }
        }

        /// For a field that may be absent.
        pub mod $option {
            use super::*;

            /// Writes it.
            ///
            /// # Errors
            /// The serializer's.
            pub fn serialize<S: Serializer>(v: &Option<$ty>, s: S) -> Result<S::Ok, S::Error> {
                v.map($wrap).serialize(s)
            }

            /// Reads it.
            ///
            /// # Errors
            /// The text is none.
            pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<$ty>, D::Error> {
                Ok(Option::<$wrap>::deserialize(d)?.map(|t| t.0))
            }
        }
    )*};
}

text_modules! {
    nid, nid_option, Nid, NidText;
    net, net_option, Net, NetText;
}

/// For a list of NIDs, at most [`NIDS_MAX`].
pub mod nids {
    use super::*;

    /// Writes it.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(nids: &[Nid], s: S) -> Result<S::Ok, S::Error> {
        let mut seq = s.serialize_seq(Some(nids.len()))?;
        nids.iter().try_for_each(|nid| seq.serialize_element(&NidText(*nid)))?;
        seq.end()
    }

    /// Reads it.
    ///
    /// # Errors
    /// One of them is no NID, or there are too many.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Nid>, D::Error> {
        d.deserialize_seq(NidsVisitor)
    }

    struct NidsVisitor;

    impl<'de> Visitor<'de> for NidsVisitor {
        type Value = Vec<Nid>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {NIDS_MAX} NIDs")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<Nid>, A::Error> {
            let mut nids = Vec::new();
            while let Some(NidText(nid)) = seq.next_element()? {
                if nids.len() == NIDS_MAX {
                    return Err(A::Error::custom(format_args!("more than {NIDS_MAX} NIDs")));
                }
                nids.push(nid);
            }
            Ok(nids)
        }
    }
}
