//! Requests of any bytes and any values: none ends the server, none harms another client.

use lnet_types::ByteOrder;
use lustre_wire::ldlm::{
    LockDesc, LockFlags, LockKind, LockMode, LockRequest, PolicyWords, ResourceName,
};
use lustre_wire::{Buffers, Opcode};
use proptest::prelude::*;
use ptlrpc::Call;

use super::bench::{Bench, Manner};
use crate::lock::wire;

/// A number that is nothing special, or is.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..4u64, Just(u64::MAX), Just(1 << 63), any::<u64>()]
}

fn bits(known: &'static [u32]) -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => proptest::sample::select(known),
        1 => any::<u32>(),
    ]
}

const OPCODES: &[Opcode] = &[Opcode::LDLM_ENQUEUE, Opcode::LDLM_CANCEL, Opcode::LDLM_CONVERT];
const KINDS: &[u32] = &[10, 11, 12, 13, 0, 14];
const MODES: &[u32] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 0, 3, 512];
const FLAGS: &[u32] = &[0, 0x10, 0x100, 0x102, 0x1000, 0x4_0000, 0x8_0000, 0x80_0000, 0x2000_0000];

fn lock_request() -> impl Strategy<Value = Vec<u8>> {
    let words = prop_oneof![
        3 => Just(wire::resource_of("jobs/42").unwrap().words),
        1 => any::<[u64; 4]>(),
    ];
    let desc = (bits(KINDS), bits(MODES), bits(MODES), words, number(), number(), number());
    (bits(FLAGS), 0..4u32, desc, proptest::collection::vec(number(), 0..6)).prop_map(
        |(flags, count, (kind, requested, granted, words, start, end, gid), handles)| {
            let desc = LockDesc {
                kind: LockKind(kind),
                resource: ResourceName { words },
                requested: LockMode(requested),
                granted: LockMode(granted),
                policy: PolicyWords { start, end, gid, who: 0 },
            };
            let flags = LockFlags::from_bits_retain(flags);
            LockRequest::new(flags, count, desc, &handles).to_bytes(ByteOrder::Little)
        },
    )
}

fn request() -> impl Strategy<Value = (Opcode, Buffers)> {
    let first = prop_oneof![4 => lock_request(), 1 => any::<Vec<u8>>()];
    let rest = proptest::collection::vec(any::<Vec<u8>>(), 0..2);
    (proptest::sample::select(OPCODES), first, rest)
        .prop_map(|(opcode, first, rest)| (opcode, core::iter::once(first).chain(rest).collect()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn requests_of_any_values_harm_no_other_client(
        requests in proptest::collection::vec(request(), 1..12),
    ) {
        let mut bench = Bench::new();
        let (a, b) = (bench.client("a", Manner::Busy), bench.client("b", Manner::Polite));
        let mine = bench.ask_for(b, "mine", LockMode::EX);
        for (opcode, buffers) in requests {
            let mut call = Call::new(opcode, buffers).answered_by(&[112, 56]);
            call.modifies = false;
            bench.send(a, call);
        }
        prop_assert!(bench.granted(b, mine));
        // The name may have locks of another type by now, or of a group, which are kept as long as
        // their client lives.
        bench.ask_for(b, "jobs/42", LockMode::EX);
        let free = bench.ask_for(b, "jobs/43", LockMode::EX);
        bench.secs(400);
        prop_assert!(bench.granted(b, mine) && bench.granted(b, free));
        prop_assert!(bench.evicted().iter().all(|(client, _)| client == "a"));
    }
}
