//! Layouts that a user wants for new files (C-196, C-198 … C-200).

use lnet_types::ByteOrder;
use lustre_wire::striping::{
    ComponentEntry, CompositeHead, Magic, Pattern, StripeHead, Stripes, Striping,
};
use lustre_wire::{Layout as _, Text};

use super::stripes::END;
use crate::raid0::{OBJECTS_MAX, STRIPE_UNIT};

/// Any target, or all of them.
const ANY: u16 = u16::MAX;
/// Most bytes of a file on its metadata target (C-200).
const ON_MDT_MAX: u64 = 1 << 30;
/// Most components of a layout: what a request has room for.
const COMPONENTS_MAX: usize = 64;
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
    /// The end of a component.
    #[error(
        "component end {end}: expected a multiple of 64 KiB above {start}, or -1 for the end of the file"
    )]
    End {
        /// The end.
        end: u64,
        /// Where the component begins.
        start: u64,
    },
    /// The number of components.
    #[error("{0} components: expected 1 to {COMPONENTS_MAX}")]
    Components(usize),
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
        let stripes = self.stripes()?;
        match self.on_mdt {
            None => Ok(Striping::Plain(stripes).to_bytes()),
            Some(end) => {
                let parts = [(0, end, on_mdt(end)?), (end, END, stripes)];
                Ok(composite(parts.into()).to_bytes())
            }
        }
    }

    /// The bytes of a layout of components, each with its end, in their order (C-196). A component that is on
    /// the metadata target has no more bytes than the file has there.
    ///
    /// # Errors
    /// As [`ParseWishError`] says.
    pub fn components(parts: &[(u64, Self)]) -> Result<Vec<u8>, ParseWishError> {
        if parts.is_empty() || parts.len() > COMPONENTS_MAX {
            return Err(ParseWishError::Components(parts.len()));
        }
        let mut all = Vec::new();
        let mut start = 0;
        for (end, wish) in parts {
            if *end <= start || (*end != END && !end.is_multiple_of(STRIPE_UNIT)) {
                return Err(ParseWishError::End { end: *end, start });
            }
            let stripes = match wish.on_mdt {
                None => wish.stripes()?,
                // It has no other place than the front.
                Some(bytes) if start == 0 && bytes == *end => on_mdt(bytes)?,
                Some(bytes) => return Err(ParseWishError::OnMdt(bytes)),
            };
            all.push((start, *end, stripes));
            start = *end;
        }
        Ok(composite(all).to_bytes())
    }

    /// Its stripes, without the part on the metadata target.
    fn stripes(&self) -> Result<Stripes, ParseWishError> {
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
        Ok(Stripes { head, pool, objects: Vec::new() })
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

/// The front of a file, on its metadata target (C-182).
fn on_mdt(end: u64) -> Result<Stripes, ParseWishError> {
    if end == 0 || end > ON_MDT_MAX || !end.is_multiple_of(STRIPE_UNIT) {
        return Err(ParseWishError::OnMdt(end));
    }
    let head = StripeHead {
        magic: Magic::V1,
        pattern: Pattern::MDT,
        // At most 1 GiB.
        stripe_size: end as u32,
        generation: ANY,
        ..StripeHead::default()
    };
    Ok(Stripes { head, pool: None, objects: Vec::new() })
}

/// A layout of components with start and end (C-196).
fn composite(parts: Vec<(u64, u64, Stripes)>) -> Striping {
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
    fn components_stand_behind_each_other_up_to_their_ends() {
        let wish = |count| Wish { count: Some(count), ..Wish::default() };
        let dom = Wish { on_mdt: Some(1 << 16), ..Wish::default() };
        let parts = [(1 << 16, dom.clone()), (1 << 20, wish(1)), (END, wish(-1))];
        let bytes = Wish::components(&parts).unwrap();
        let Ok(Striping::Composite(head, read)) = Striping::parse(&bytes) else {
            panic!("a layout")
        };
        assert_eq!((head.size as usize, head.count), (bytes.len(), 3));
        let shown: Vec<_> = read
            .iter()
            .map(|(entry, stripes)| (entry.start, entry.end, stripes.head.stripe_count))
            .collect();
        assert_eq!(shown, [(0, 1 << 16, 0), (1 << 16, 1 << 20, 1), (1 << 20, END, ANY)]);
        assert_eq!(read[0].1.head.pattern, Pattern::MDT);
        let named = |parts: &[(u64, Wish)]| Wish::components(parts).unwrap_err().to_string();
        assert!(named(&[]).contains("0 components"));
        for ends in [&[1000][..], &[1 << 20, 1 << 20], &[0]] {
            let parts: Vec<_> = ends.iter().map(|end| (*end, wish(1))).collect();
            assert!(named(&parts).contains("component end"), "{ends:?}");
        }
        assert!(named(&[(1 << 20, wish(1)), (END, dom)]).contains("metadata target"));
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
