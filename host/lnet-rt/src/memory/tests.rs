use super::*;
use lnet_types::Prng;
use std::io::Write;

fn span(region: RegionId, offset: u64, len: u32) -> Span {
    Span { region, len, offset }
}

#[test]
fn a_lent_buffer_is_written_in_place_and_comes_back() {
    let mut mem = Regions::default();
    let buffer = Buffer::from(vec![1, 2, 3, 4]);
    let place = buffer.as_ptr();
    let id = mem.lend(buffer).unwrap();
    mem.bytes_mut(span(id, 1, 2)).copy_from_slice(&[8, 9]);
    assert_eq!(mem.bytes(span(id, 0, 4)), [1, 8, 9, 4]);
    let back = mem.remove(id).unwrap();
    assert_eq!((back.as_ptr(), &back[..]), (place, &[1, 8, 9, 4][..]));
    let vec = back.into_vec();
    assert_eq!((vec.as_ptr(), &vec[..]), (place, &[1, 8, 9, 4][..]));
}

#[test]
fn bytes_of_a_region_are_exchanged_for_others_unless_something_uses_them() {
    let mut mem = Regions::default();
    let id = mem.lend(vec![1, 2, 3, 4].into()).unwrap();
    let (place, whole) = (mem.bytes(span(id, 0, 4)).as_ptr(), span(id, 0, 4));
    for (part, with) in [(span(id, 0, 3), 3), (span(id, 1, 3), 3), (whole, 3), (whole, 5)] {
        assert_eq!(mem.exchange(part, vec![9; with]), Err(vec![9; with]), "{part:?} {with}");
    }
    mem.add_descriptor(id);
    assert_eq!(mem.exchange(whole, vec![9; 4]), Err(vec![9; 4]), "a driver may write to it");
    mem.drop_descriptor(id);
    let before = mem.exchange(whole, vec![9; 4]).unwrap();
    assert_eq!((before.as_ptr(), before), (place, vec![1, 2, 3, 4]));
    assert_eq!((mem.bytes(whole), mem.len()), (&[9; 4][..], 1));
    assert!(mem.anchor(id).is_some());
    assert_eq!(mem.exchange(whole, vec![8; 4]), Err(vec![8; 4]), "a driver knows the place");
    let (landing, _owner) = mem.land(vec![0; 4].into()).unwrap();
    assert!(mem.exchange(span(landing, 0, 4), vec![9; 4]).is_err(), "its owner reads it");
}

#[test]
fn an_anchor_lives_exactly_as_long_as_the_bytes_of_its_buffer() {
    let mut mem = Regions::default();
    let id = mem.lend(Buffer::zeroed(100)).unwrap();
    let weak = Arc::downgrade(mem.anchor(id).unwrap());
    let other = mem.lend(Buffer::zeroed(100)).unwrap();
    assert_ne!(weak.as_ptr(), Arc::as_ptr(mem.anchor(other).unwrap()));
    let buffer = mem.remove(id).unwrap();
    let id = mem.lend(buffer).unwrap();
    assert_eq!(weak.as_ptr(), Arc::as_ptr(mem.anchor(id).unwrap()), "as another region");
    drop(mem.remove(id).unwrap().into_vec());
    assert_eq!(weak.strong_count(), 0, "the bytes are a vector's");
    let weak = Arc::downgrade(mem.anchor(other).unwrap());
    drop(mem.remove(other));
    assert_eq!(weak.strong_count(), 0, "the bytes are free");
}

#[test]
#[allow(unsafe_code)]
fn foreign_memory_is_used_in_place_and_its_owner_dropped_with_the_last_use() {
    let owner = Arc::new(());
    let mut bytes = [1u8, 2, 3, 4];
    let ptr = NonNull::new(bytes.as_mut_ptr()).unwrap();
    let mut mem = Regions::default();
    // SAFETY: `bytes` outlives the buffer and is not touched before it is gone.
    let buffer = unsafe { Buffer::foreign(ptr, 4, Arc::clone(&owner)) };
    let id = mem.lend(buffer).unwrap();
    mem.bytes_mut(span(id, 1, 2)).copy_from_slice(&[8, 9]);
    assert_eq!(Arc::strong_count(&owner), 2);
    let vec = mem.remove(id).unwrap().into_vec();
    assert_eq!(Arc::strong_count(&owner), 1);
    assert_ne!(vec.as_ptr(), ptr.as_ptr());
    assert_eq!((&vec[..], bytes), (&[1, 8, 9, 4][..], [1, 8, 9, 4]));
}

#[test]
#[should_panic(expected = "stale region")]
fn a_stale_region_is_noticed_after_its_slot_was_used_again() {
    let mut mem = Regions::default();
    let old = mem.lend(Buffer::zeroed(8)).unwrap();
    mem.remove(old);
    mem.lend(Buffer::zeroed(8)).unwrap();
    let _ = mem.bytes(span(old, 0, 8));
}

#[test]
#[should_panic(expected = "with descriptors on it")]
fn a_region_does_not_go_while_descriptors_stand_on_it() {
    let mut mem = Regions::default();
    let id = mem.lend(Buffer::zeroed(8)).unwrap();
    mem.add_descriptor(id);
    mem.remove(id);
}

#[test]
#[should_panic(expected = "has been delivered already")]
fn delivered_bytes_are_never_written_again() {
    let mut mem = Regions::default();
    let (id, _landing) = mem.land(Buffer::zeroed(16)).unwrap();
    mem.freeze(id, 4..8);
    let _ = mem.bytes_mut(span(id, 7, 2));
}

#[test]
#[allow(unsafe_code)]
fn an_owner_reads_what_arrived_while_the_rest_is_written() {
    let mut mem = Regions::default();
    let (id, landing) = mem.land(Buffer::zeroed(16)).unwrap();
    mem.bytes_mut(span(id, 0, 8)).fill(7);
    mem.freeze(id, 0..8);
    // SAFETY: frozen by the line above.
    let seen = unsafe { landing.frozen(0..8) };
    mem.bytes_mut(span(id, 8, 8)).fill(9);
    assert_eq!(seen, [7; 8]);
    assert!(Landing::into_buffer(Arc::clone(&landing)).is_none(), "the region still has it");
    assert!(mem.remove(id).is_none());
    let buffer = Landing::into_buffer(landing).unwrap();
    assert_eq!(buffer[..], [[7u8; 8], [9; 8]].concat());
}

#[test]
fn frozen_ranges_merge_into_exactly_the_union() {
    let seed = 0x5eed;
    let mut prng = Prng::new(seed);
    for round in 0..200 {
        let mut mem = Regions::default();
        let (id, _landing) = mem.land(Buffer::zeroed(64)).unwrap();
        let mut model = [false; 64];
        for _ in 0..12 {
            let start = prng.below(64);
            let end = start + prng.below(65 - start);
            mem.freeze(id, start..end);
            model[start as usize..end as usize].fill(true);
            for byte in 0..64u64 {
                assert_eq!(
                    mem.is_frozen(id, &(byte..byte + 1)),
                    model[byte as usize],
                    "seed {seed:#x} round {round} byte {byte}"
                );
            }
            let Some(Bytes::Landing(_, frozen)) = &mem.slot(id).bytes else { unreachable!() };
            assert!(frozen.windows(2).all(|w| w[0].end < w[1].start), "{frozen:?}");
        }
    }
}

#[test]
#[allow(unsafe_code)]
fn a_mapped_file_is_read_and_written_through_the_buffer() {
    let path = fresh::path("map");
    let mut file =
        File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    let content: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
    file.write_all(&content).unwrap();
    // SAFETY: the file is this test's own.
    let mut private = unsafe { Buffer::map_file(&file, 5000, 100, MapMode::Private) }.unwrap();
    assert_eq!(private[..], content[5000..5100]);
    private.fill(0);
    drop(private);
    assert_eq!(std::fs::read(&path).unwrap(), content, "a private mapping leaves the file alone");
    // SAFETY: as above.
    let mut shared = unsafe { Buffer::map_file(&file, 4097, 10, MapMode::Shared) }.unwrap();
    shared.fill(0xee);
    shared.sync().unwrap();
    assert_eq!(shared.into_vec(), [0xee; 10]);
    let now = std::fs::read(&path).unwrap();
    assert_eq!(now[4097..4107], [0xee; 10]);
    assert_eq!((&now[..4097], &now[4107..]), (&content[..4097], &content[4107..]));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn long_ranges_become_spans_of_four_gigabytes() {
    let max = u64::from(u32::MAX);
    let id = RegionId(3);
    assert_eq!(
        spans(id, 10..max + 20).as_slice(),
        &[span(id, 10, u32::MAX), span(id, 10 + max, 10)]
    );
    assert!(spans(id, 5..5).is_empty());
}

#[test]
fn the_limit_of_regions_gives_the_buffer_back() {
    let mut mem = Regions::default();
    for _ in 0..Regions::MAX {
        mem.lend(Buffer::zeroed(0)).unwrap();
    }
    assert_eq!(mem.lend(Buffer::from(b"kept")).unwrap_err()[..], *b"kept");
    assert_eq!(mem.land(Buffer::from(b"kept")).err().unwrap()[..], *b"kept");
}
