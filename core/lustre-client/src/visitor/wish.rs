//! Layouts that a user wants for new files (C-196, C-198 … C-200).

use lnet_types::ByteOrder;
use lustre_wire::striping::{
    ComponentEntry, CompositeHead, Magic, Pattern, StripeHead, Stripes, Striping,
};
use lustre_wire::{Layout as _, Text};

use crate::raid0::{OBJECTS_MAX, STRIPE_UNIT};

/// Any target, or all of them.
const ANY: u16 = u16::MAX;
/// Most bytes of a file on its metadata target (C-200).
const ON_MDT_MAX: u64 = 1 << 30;
/// Most bytes of the name of a pool.
const POOL_MAX: usize = 15;

/// How a new file is to be spread. What is not said is decided by the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Number of objects; -1 for one on each target.
    pub count: Option<i32>,
    /// Bytes of a stripe.
    pub size: Option<u64>,
    /// Pool of targets.
    pub pool: Option<String>,
    /// Index of the first target.
    pub first: Option<u16>,
    /// Bytes at the front of the file that are on its metadata target (C-182).
    pub on_mdt: Option<u64>,
}

/// A wish that no server grants.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseWishError {
    /// The number of objects.
    #[error("stripe count {0}: expected 1 to {OBJECTS_MAX}, or -1 for all targets")]
    Count(i32),
    /// The size of a stripe.
    #[error("stripe size {0}: expected a multiple of 64 KiB below 4 GiB")]
    Size(u64),
    /// The part on the metadata target.
    #[error("{0} bytes on the metadata target: expected a multiple of 64 KiB up to 1 GiB")]
    OnMdt(u64),
    /// The pool.
    #[error("pool '{0}': expected 1 to {POOL_MAX} letters, digits, '-', '_' or '.'")]
    Pool(String),
}

impl Wish {
    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The bytes of the layout, for [`Create::layout`](super::Create) or a directory's default; empty if
    /// nothing is wanted.
    ///
    /// # Errors
    /// As [`ParseWishError`] says.
    pub fn bytes(&self) -> Result<Vec<u8>, ParseWishError> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let count = match self.count {
            None => 0,
            Some(-1) => ANY,
            // At most 2000.
            Some(count @ 1..) if count.unsigned_abs() <= OBJECTS_MAX => count as u16,
            Some(count) => return Err(ParseWishError::Count(count)),
        };
        let stripe_size = match self.size {
            None => 0,
            Some(size) => u32::try_from(size)
                .ok()
                .filter(|size| *size > 0 && u64::from(*size).is_multiple_of(STRIPE_UNIT))
                .ok_or(ParseWishError::Size(size))?,
        };
        let pool = match &self.pool {
            None => None,
            Some(name) => Some(pool(name).ok_or_else(|| ParseWishError::Pool(name.clone()))?),
        };
        let head = StripeHead {
            magic: if pool.is_some() { Magic::V3 } else { Magic::V1 },
            pattern: Pattern::RAID0,
            stripe_size,
            stripe_count: count,
            generation: self.first.unwrap_or(ANY),
            ..StripeHead::default()
        };
        let stripes = Stripes { head, pool, objects: Vec::new() };
        match self.on_mdt {
            None => Ok(Striping::Plain(stripes).to_bytes()),
            Some(end) if end > 0 && end <= ON_MDT_MAX && end.is_multiple_of(STRIPE_UNIT) => {
                Ok(behind(end, stripes).to_bytes())
            }
            Some(end) => Err(ParseWishError::OnMdt(end)),
        }
    }

    /// The bytes that take the default layout of a directory away.
    pub fn none() -> Vec<u8> {
        let head = StripeHead {
            magic: Magic::V1,
            pattern: Pattern::RAID0,
            generation: ANY,
            ..StripeHead::default()
        };
        head.to_bytes(ByteOrder::Little)
    }
}

/// A layout whose front is on the metadata target, with these stripes behind it (C-196).
fn behind(end: u64, stripes: Stripes) -> Striping {
    let head = StripeHead {
        magic: Magic::V1,
        pattern: Pattern::MDT,
        // At most 1 GiB.
        stripe_size: end as u32,
        generation: ANY,
        ..StripeHead::default()
    };
    let parts =
        [(0, end, Stripes { head, pool: None, objects: Vec::new() }), (end, u64::MAX, stripes)];
    let mut offset = (CompositeHead::LEN + parts.len() * ComponentEntry::LEN) as u32;
    let components = parts.into_iter().map(|(start, end, stripes)| {
        let size = Striping::Plain(stripes.clone()).to_bytes().len() as u32;
        let entry = ComponentEntry { start, end, offset, size, ..ComponentEntry::default() };
        offset += size;
        (entry, stripes)
    });
    let components: Vec<_> = components.collect();
    let head = CompositeHead {
        magic: Magic::COMPOSITE,
        size: offset,
        count: components.len() as u16,
        ..CompositeHead::default()
    };
    Striping::Composite(head, components)
}

fn pool(name: &str) -> Option<Text<16>> {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > POOL_MAX || !name.chars().all(valid) {
        return None;
    }
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(16, 0);
    Some(Text::get(ByteOrder::Little, &bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_have_the_bytes_that_servers_read() {
        assert_eq!(Wish::default().bytes(), Ok(Vec::new()));
        let wish = Wish { count: Some(4), size: Some(65_536), ..Wish::default() };
        let bytes = wish.bytes().unwrap();
        assert_eq!(bytes.len(), 32);
        let Ok(Striping::Plain(stripes)) = Striping::parse(&bytes) else { panic!("a layout") };
        let StripeHead { magic, stripe_size, stripe_count, generation, .. } = stripes.head;
        assert_eq!((magic, stripe_size, stripe_count), (Magic::V1, 65_536, 4));
        assert_eq!(generation, 0xffff, "any target");
        let wish = Wish { count: Some(-1), pool: Some("fast".to_owned()), ..Wish::default() };
        let bytes = wish.bytes().unwrap();
        assert_eq!(
            (bytes.len(), &bytes[28..30], &bytes[32..37]),
            (48, &[255; 2][..], &b"fast\0"[..])
        );
        let wish = Wish { on_mdt: Some(1 << 16), count: Some(1), ..Wish::default() };
        let Ok(Striping::Composite(head, parts)) = Striping::parse(&wish.bytes().unwrap()) else {
            panic!("several components")
        };
        assert_eq!((head.size, parts.len()), (192, 2));
        let (entry, here) = &parts[0];
        assert_eq!((entry.start, entry.end, entry.offset, entry.size), (0, 1 << 16, 128, 32));
        assert_eq!((here.head.pattern, here.head.stripe_size), (Pattern::MDT, 1 << 16));
        let (entry, behind) = &parts[1];
        assert_eq!((entry.start, entry.end, entry.offset), (1 << 16, u64::MAX, 160));
        assert_eq!((behind.head.pattern, behind.head.stripe_count), (Pattern::RAID0, 1));
        assert_eq!(Wish::none()[24..32], [0, 0, 0, 0, 0, 0, 255, 255]);
    }

    #[test]
    fn wishes_that_no_server_grants_are_named() {
        let bytes = |wish: Wish| wish.bytes().unwrap_err().to_string();
        for count in [0, -2, 2001] {
            let wish = Wish { count: Some(count), ..Wish::default() };
            assert!(bytes(wish).contains(&format!("stripe count {count}")));
        }
        for size in [0, 1000, 4 << 30] {
            assert!(bytes(Wish { size: Some(size), ..Wish::default() }).contains("64 KiB"));
        }
        for end in [0, 1000, 2 << 30] {
            let wish = Wish { on_mdt: Some(end), ..Wish::default() };
            assert!(bytes(wish).contains("metadata target"));
        }
        for pool in ["", "a/b", "longer-than-fifteen"] {
            let wish = Wish { pool: Some(pool.to_owned()), ..Wish::default() };
            assert!(bytes(wish).contains("pool"));
        }
    }
}
