//! Bytes in JSON: a string of hexadecimal digits.

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::Serializer;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    let digit = |n: u8| char::from(DIGITS.get(usize::from(n)).copied().unwrap_or_default());
    let text: String = bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect();
    to.serialize_str(&text)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |d: u8| char::from(d).to_digit(16);
    let byte = |[a, b]: &[u8; 2]| Some((digit(*a)? << 4 | digit(*b)?) as u8);
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    bytes
        .filter(|_| rest.is_empty())
        .ok_or_else(|| D::Error::custom("not pairs of hexadecimal digits"))
}

#[cfg(test)]
mod tests {
    use crate::RecordingPart;

    #[test]
    fn bytes_are_digits_and_nothing_else_is_bytes() {
        let part = RecordingPart { number: 1, parts: 1, calls: 2, bytes: vec![0, 0x9a, 0xff] };
        let text = serde_json::to_string(&part).unwrap();
        assert!(text.contains("\"009aff\""), "{text}");
        assert_eq!(serde_json::from_str::<RecordingPart>(&text).unwrap(), part);
        for wrong in ["009", "0g", "é"] {
            let text = text.replace("009aff", wrong);
            assert!(serde_json::from_str::<RecordingPart>(&text).is_err(), "{wrong}");
        }
    }
}
