//! Names of connect flags as parameter files of kernel nodes spell them. Flags without a row have been
//! seen on no node: they go by the name that the protocol has, in small letters.

use lustre_rt::{ConnectData, ConnectFlags as F, ConnectFlags2 as F2};

const FIRST: [(F, &str); 43] = [
    (F::INDEX, "lov_index"),
    (F::MDS, "connect_from_mds"),
    (F::GRANT, "write_grant"),
    (F::SRVLOCK, "server_lock"),
    (F::VERSION, "version"),
    (F::ACL, "acl"),
    (F::LARGE_ACL, "create_on_write"),
    (F::IBITS, "inode_bit_locks"),
    (F::ATTRFID, "getattr_by_fid"),
    (F::NODEVOH, "no_oh_for_devices"),
    (F::BRW_SIZE, "max_byte_per_rpc"),
    (F::CANCELSET, "early_lock_cancel"),
    (F::AT, "adaptive_timeouts"),
    (F::LRU_RESIZE, "lru_resize"),
    (F::MDS_MDS, "mds_mds_connection"),
    (F::CKSUM, "alt_checksum_algorithm"),
    (F::FID, "fid_is_enabled"),
    (F::VBR, "version_recovery"),
    (F::LOV_V3, "pools"),
    (F::GRANT_SHRINK, "grant_shrink"),
    (F::SKIP_ORPHAN, "skip_orphan"),
    (F::MAX_EASIZE, "large_ea"),
    (F::FULL20, "full20"),
    (F::LAYOUTLOCK, "layout_lock"),
    (F::HASH_64BIT, "64bithash"),
    (F::MAXBYTES, "object_max_bytes"),
    (F::JOBSTATS, "jobstats"),
    (F::UMASK, "umask"),
    (F::EINPROGRESS, "einprogress"),
    (F::GRANT_PARAM, "grant_param"),
    (F::HPREQ_CHECK1, "hpreq_check1"),
    (F::LVB_TYPE, "lvb_type"),
    (F::LIGHTWEIGHT, "lightweight_conn"),
    (F::SHORTIO, "short_io"),
    (F::FLOCK_DEAD, "flock_deadlock"),
    (F::DISP_STRIPE, "disp_stripe"),
    (F::OPEN_BY_FID, "open_by_fid"),
    (F::LFSCK, "lfsck"),
    (F::MULTIMODRPCS, "multi_mod_rpcs"),
    (F::DIR_STRIPE, "dir_stripe"),
    (F::SUBTREE, "subtree"),
    (F::BULK_MBITS, "bulk_mbits"),
    (F::FLAGS2, "second_flags"),
];

const SECOND: [(F2, &str); 29] = [
    (F2::FILE_SECCTX, "file_secctx"),
    (F2::LOCKAHEAD, "lockaheadv2"),
    (F2::DIR_MIGRATE, "dir_migrate"),
    (F2::SUM_STATFS, "sum_statfs"),
    (F2::OVERSTRIPING, "overstriping"),
    (F2::FLR, "flr"),
    (F2::LOCK_CONVERT, "lock_convert"),
    (F2::ARCHIVE_ID_ARRAY, "archive_id_array"),
    (F2::INC_XID, "increasing_xid"),
    (F2::SELINUX_POLICY, "selinux_policy"),
    (F2::LSOM, "lsom"),
    (F2::PCC, "pcc"),
    (F2::CRUSH, "crush"),
    (F2::ASYNC_DISCARD, "async_discard"),
    (F2::ENCRYPT, "client_encryption"),
    (F2::GETATTR_PFID, "getattr_pfid"),
    (F2::LSEEK, "lseek"),
    (F2::DOM_LVB, "dom_lvb"),
    (F2::REP_MBITS, "reply_mbits"),
    (F2::BATCH_RPC, "batch_rpc"),
    (F2::PCCRO, "pcc_ro"),
    (F2::ATOMIC_OPEN_LOCK, "atomic_open_lock"),
    (F2::ENCRYPT_NAME, "name_encryption"),
    (F2::DMV_IMP_INHERIT, "dmv_imp_inherit"),
    (F2::ENCRYPT_FID2PATH, "encryption_fid2path"),
    (F2::REPLAY_CREATE, "replay_create"),
    (F2::UNALIGNED_DIO, "unaligned_dio"),
    (F2::MIRROR_ID_FIX, "mirror_id_fix"),
    (F2::READDIR_OPEN, "readdir_open"),
];

/// The names of what was granted, in the order of the bits.
pub(super) fn names(granted: &ConnectData) -> Vec<String> {
    let mut all: Vec<(u8, u64, String)> = Vec::new();
    let mut word = |which,
                    bits: u64,
                    row: &dyn Fn(u64) -> Option<&'static str>,
                    own: &dyn Fn(u64) -> String| {
        let ones = (0..64).map(|n| 1_u64 << n).filter(|bit| bits & bit != 0);
        all.extend(ones.map(|bit| {
            let name = row(bit).map_or_else(|| own(bit).to_lowercase(), str::to_owned);
            (which, bit, name)
        }));
    };
    let first = |bit| FIRST.iter().find(|(flag, _)| flag.bits() == bit).map(|(_, name)| *name);
    word(0, granted.flags.bits(), &first, &|bit| F::from_bits_retain(bit).to_string());
    if granted.flags.contains(F::FLAGS2) {
        let second =
            |bit| SECOND.iter().find(|(flag, _)| flag.bits() == bit).map(|(_, name)| *name);
        word(1, granted.flags2.bits(), &second, &|bit| F2::from_bits_retain(bit).to_string());
    }
    all.into_iter().map(|(.., name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lists of kernel nodes: flags of the first word as a number, names of both.
    #[test]
    fn flags_have_the_names_that_kernel_nodes_print() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/parameters/ptlrpc");
        let mut lists = 0;
        for file in std::fs::read_dir(dir).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let mut lines = text.lines();
            while let Some(list) = lines.find_map(|l| l.trim().strip_prefix("connect_flags: [ ")) {
                let expected: Vec<_> = list.trim_end_matches(" ]").split(", ").collect();
                let number = lines.find_map(|l| l.trim().strip_prefix("flags: 0x")).unwrap();
                let bits = u64::from_str_radix(number, 16).unwrap();
                let known = |(flag, name): &(F2, &str)| expected.contains(name).then_some(*flag);
                let granted = ConnectData {
                    flags: F::from_bits_retain(bits),
                    flags2: SECOND.iter().filter_map(known).fold(F2::empty(), |all, one| all | one),
                    ..ConnectData::default()
                };
                assert_eq!(names(&granted), expected, "{number}");
                lists += 1;
            }
        }
        assert!(lists > 8, "{lists}");
    }
}
