//! Access control lists: kept, followed by permissions, given to new files, and asked.

use lnet_types::Errno;
use lustre_target::Commit;
use lustre_wire::fid::Valid;
use lustre_wire::mds::{MdtBody, SetattrValid};
use lustre_wire::{Buffers, Fid, Opcode};
use ptlrpc::Call;

use super::{Bench, Client, OPEN_CREATE, OPEN_READ, OPEN_WRITE, ROOT, text};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const NONE: u32 = u32::MAX;

/// The bytes of a list: tag, permissions, id.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, granted, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(granted.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// `u::rw-,u:1001:rwx,g::r--,m::{mask},o::---`.
fn for_user(mask: u16) -> Vec<u8> {
    list(&[(1, 6, NONE), (2, 7, 1001), (4, 4, NONE), (0x10, mask, NONE), (0x20, 0, NONE)])
}

fn get(bench: &mut Bench, c: Client, fid: Fid, name: &str) -> Result<Vec<u8>, Errno> {
    let valid = if name.is_empty() { Valid::XATTRLS } else { Valid::XATTR };
    let body = MdtBody { eadatasize: 4096, ..c.body(fid, Valid::ID | valid) };
    let buffers = Buffers::new().layout(&body).bytes(b"").bytes(text(name));
    let call = Call::new(Opcode::MDS_GETXATTR, buffers).answered_by(&[216, 4096]);
    let reply = bench.call(c, call).map_err(ptlrpc::CallError::errno)?;
    Ok(reply.msg().unwrap().buffer(2).unwrap_or_default().to_vec())
}

fn set(bench: &mut Bench, c: Client, fid: Fid, name: &str, value: &[u8]) -> Result<(), Errno> {
    bench.reint(c, c.setxattr(fid, name, Some(value), 0)).map(|_| ())
}

fn mode(bench: &mut Bench, c: Client, fid: Fid) -> u32 {
    bench.getattr(c, fid).unwrap().mode & 0o7777
}

fn file(bench: &mut Bench, c: Client, dir: Fid, name: &str, oid: u32) -> Fid {
    let (body, ..) = bench.open(c, dir, name, oid, OPEN_CREATE | OPEN_WRITE).unwrap();
    bench.close(c, &body).unwrap();
    body.fid1
}

/// Whether a user may open a file.
fn opens(bench: &mut Bench, c: Client, name: &str, flags: u32) -> Result<(), Errno> {
    let (body, ..) = bench.open(c, ROOT, name, 99, flags)?;
    bench.close(c, &body).map(|_| ())
}

#[test]
fn c240_list_sets_permissions_and_permissions_set_the_list() {
    let bench = &mut Bench::with(1, Commit::Ordered);
    let c = bench.client("c", 0);
    let f = file(bench, c, ROOT, "f", 1);
    assert_eq!(get(bench, c, f, ACCESS), Err(Errno::ENODATA));
    set(bench, c, f, ACCESS, &for_user(6)).unwrap();
    assert_eq!(mode(bench, c, f), 0o660);
    assert_eq!(get(bench, c, f, ACCESS), Ok(for_user(6)));
    assert_eq!(get(bench, c, f, ""), Ok(b"trusted.lov\0system.posix_acl_access\0".to_vec()));
    bench.reint(c, c.setattr(f, SetattrValid::MODE, 0o640, 0)).unwrap();
    assert_eq!(get(bench, c, f, ACCESS), Ok(for_user(4)), "the mask is the group's permissions");
    bench.commit();
    bench.crash();
    bench.world.secs(30);
    assert_eq!((get(bench, c, f, ACCESS), mode(bench, c, f)), (Ok(for_user(4)), 0o640));
    // What says no more than permissions is kept as these.
    set(bench, c, f, ACCESS, &list(&[(1, 7, NONE), (4, 5, NONE), (0x20, 1, NONE)])).unwrap();
    assert_eq!((get(bench, c, f, ACCESS), mode(bench, c, f)), (Err(Errno::ENODATA), 0o751));
    set(bench, c, f, ACCESS, &for_user(7)).unwrap();
    bench.reint(c, c.setxattr(f, ACCESS, None, 0)).unwrap();
    assert_eq!((get(bench, c, f, ACCESS), mode(bench, c, f)), (Err(Errno::ENODATA), 0o670));
    assert_eq!(bench.reint(c, c.setxattr(f, ACCESS, None, 0)), Err(Errno::ENODATA));
    set(bench, c, f, ACCESS, &list(&[])).unwrap();
}

#[test]
fn c240_list_says_who_may_use_a_file() {
    let bench = &mut Bench::new(1);
    let c = bench.client("c", 0);
    let (named, other) = (bench.client("named", 1001), bench.client("other", 1002));
    let f = file(bench, c, ROOT, "f", 1);
    bench.reint(c, c.setattr(f, SetattrValid::MODE, 0o600, 0)).unwrap();
    assert_eq!(opens(bench, named, "f", OPEN_READ), Err(Errno::EACCES));
    set(bench, c, f, ACCESS, &for_user(6)).unwrap();
    assert_eq!(opens(bench, named, "f", OPEN_READ | OPEN_WRITE), Ok(()));
    assert_eq!(opens(bench, other, "f", OPEN_READ), Err(Errno::EACCES));
    set(bench, c, f, ACCESS, &for_user(4)).unwrap();
    assert_eq!(opens(bench, named, "f", OPEN_READ), Ok(()));
    assert_eq!(opens(bench, named, "f", OPEN_WRITE), Err(Errno::EACCES), "the mask");
    // Search and change of a directory.
    let d = bench.mkdir(c, ROOT, "d", 2).unwrap().fid1;
    bench.reint(c, c.setattr(d, SetattrValid::MODE, 0o700, 0)).unwrap();
    assert_eq!(bench.mkdir(named, d, "e", 3), Err(Errno::EACCES));
    set(bench, c, d, ACCESS, &for_user(7)).unwrap();
    bench.mkdir(named, d, "e", 3).unwrap();
    assert_eq!(bench.lookup(other, d, "e"), Err(Errno::EACCES));
    // The owner alone sets a list; each user may read it.
    assert_eq!(set(bench, named, f, ACCESS, &for_user(7)), Err(Errno::EPERM));
    assert_eq!(get(bench, other, f, ACCESS), Ok(for_user(4)));
}

#[test]
fn c101_new_files_have_the_default_list_of_their_directory() {
    let bench = &mut Bench::new(1);
    let c = bench.client("c", 0);
    let d = bench.mkdir(c, ROOT, "d", 1).unwrap().fid1;
    set(bench, c, d, DEFAULT, &for_user(7)).unwrap();
    assert_eq!(mode(bench, c, d), 0o755, "a default is for others");
    assert_eq!(get(bench, c, d, ACCESS), Err(Errno::ENODATA));
    // Files are asked for with 644, directories with 755; the mask of the user does not count.
    let f = file(bench, c, d, "f", 2);
    assert_eq!((mode(bench, c, f), get(bench, c, f, ACCESS)), (0o640, Ok(for_user(4))));
    assert_eq!(get(bench, c, f, DEFAULT), Err(Errno::ENODATA));
    let e = bench.mkdir(c, d, "e", 3).unwrap().fid1;
    assert_eq!((mode(bench, c, e), get(bench, c, e, ACCESS)), (0o650, Ok(for_user(5))));
    assert_eq!(get(bench, c, e, DEFAULT), Ok(for_user(7)));
    bench.reint(c, c.create(d, "l", 4, 0o120_777, b"f")).unwrap();
    assert_eq!(get(bench, c, c.fid(4), ACCESS), Err(Errno::ENODATA), "a link has none");
    bench.reint(c, c.setxattr(d, DEFAULT, None, 0)).unwrap();
    let g = file(bench, c, d, "g", 5);
    assert_eq!((mode(bench, c, g), get(bench, c, g, ACCESS)), (0o644, Err(Errno::ENODATA)));
}

#[test]
fn lists_that_are_none_or_have_no_place_are_refused() {
    let bench = &mut Bench::new(1);
    let c = bench.client("c", 0);
    let f = file(bench, c, ROOT, "f", 1);
    let d = bench.mkdir(c, ROOT, "d", 2).unwrap().fid1;
    bench.reint(c, c.create(ROOT, "l", 3, 0o120_777, b"f")).unwrap();
    let mut many = vec![(1, 6, NONE)];
    many.extend((0..30).map(|id| (2, 4, id)));
    many.extend([(4, 4, NONE), (0x10, 4, NONE), (0x20, 0, NONE)]);
    let good = for_user(6);
    for (fid, name, value, errno) in [
        (f, ACCESS, &b"x"[..], Errno::EINVAL),
        (f, ACCESS, &good[..good.len() - 8], Errno::EINVAL),
        (d, DEFAULT, &good[..good.len() - 1], Errno::EINVAL),
        (f, ACCESS, &list(&many), Errno::E2BIG),
        (f, DEFAULT, &good, Errno::EACCES),
        (c.fid(3), ACCESS, &good, Errno::EOPNOTSUPP),
        (f, "system.posix_acl_other", &good, Errno::EOPNOTSUPP),
    ] {
        assert_eq!(set(bench, c, fid, name, value), Err(errno), "{fid} {name}");
    }
    assert_eq!(mode(bench, c, f), 0o644);
}
