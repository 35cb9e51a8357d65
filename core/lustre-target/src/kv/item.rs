//! A key's record as it is stored.

use crate::store::DataId;

/// What a key has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Transaction of the last change.
    pub(super) version: u64,
    pub(super) value: Value,
}

/// Where the value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Inline(Vec<u8>),
    /// Data of so many bytes.
    Data(DataId, u64),
}

const INLINE: u8 = 0;
const DATA: u8 = 1;

impl Item {
    /// Length of the value, bytes.
    pub(super) fn len(&self) -> u64 {
        match &self.value {
            Value::Inline(value) => value.len() as u64,
            Value::Data(_, len) => *len,
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.version.to_le_bytes().to_vec();
        match &self.value {
            Value::Inline(value) => {
                out.push(INLINE);
                out.extend_from_slice(value);
            }
            Value::Data(data, len) => {
                out.push(DATA);
                out.extend_from_slice(&data.0.to_le_bytes());
                out.extend_from_slice(&len.to_le_bytes());
            }
        }
        out
    }

    /// The record, if it is one.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first_chunk()?;
        let version = u64::from_le_bytes(*version);
        let (kind, rest) = rest.split_first()?;
        let value = match *kind {
            INLINE => Value::Inline(rest.to_vec()),
            DATA => {
                let (data, len) = rest.split_first_chunk()?;
                let len = u64::from_le_bytes(len.try_into().ok()?);
                Value::Data(DataId(u64::from_le_bytes(*data)), len)
            }
            _ => return None,
        };
        Some(Self { version, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_read_as_it_was_written() {
        for value in [Value::Inline(vec![]), Value::Inline(vec![1, 2]), Value::Data(DataId(7), 9)] {
            let item = Item { version: 5 << 32, value };
            let bytes = item.to_bytes();
            assert_eq!(Item::read(&bytes), Some(item.clone()));
            for len in 0..9 {
                assert_eq!(Item::read(&bytes[..len]), None);
            }
        }
        assert_eq!(Item::read(&[0; 9]).map(|item| item.len()), Some(0));
        assert_eq!(Item::read(&[2; 9]), None);
    }
}
