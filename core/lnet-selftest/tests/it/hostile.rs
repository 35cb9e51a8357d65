//! Random bytes from random senders: the machine neither panics nor grows.

use std::time::Duration;

use lnet_selftest::*;
use lnet_types::{Instant, Prng, ProcessId};
use lnet_wire::selftest::{MAGIC, Service, VERSION};

use crate::world::nid;

fn random_message(prng: &mut Prng, service: Service) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..160).map(|_| prng.next_u64() as u8).collect();
    for (at, word) in [MAGIC, VERSION, service.request_type(), 0, 0, 1].into_iter().enumerate() {
        bytes[at * 4..at * 4 + 4].copy_from_slice(&word.to_le_bytes());
    }
    // Small numbers reach further than random ones.
    for byte in &mut bytes[24..] {
        if prng.one_in(2) {
            *byte = prng.below(3) as u8;
        }
    }
    bytes.truncate(if prng.one_in(20) { prng.below(161) as usize } else { 160 });
    bytes
}

#[test]
fn random_requests_and_random_ends_of_actions_do_no_harm() {
    let seed = 0x5e1f_7e57;
    println!("seed {seed:#x}");
    let mut prng = Prng::new(seed);
    for _ in 0..40 {
        let mut machine = Selftest::new(Settings::default(), Duration::from_secs(1));
        let mut now = Instant::from_secs(1);
        let mut tokens = Vec::new();
        for _ in 0..400 {
            now += Duration::from_millis(prng.below(3000));
            let service = Service::ALL[prng.below(9) as usize];
            let bytes = random_message(&mut prng, service);
            let who = ProcessId::lustre(nid(prng.below(3) as u32));
            machine.request(now, service, who, nid(1), &bytes, &LnetCounters::default());
            let mut actions = 0;
            while let Some(action) = machine.poll_action() {
                actions += 1;
                match action {
                    Action::Put { token, .. }
                    | Action::Get { token, .. }
                    | Action::Offer { token, .. } => tokens.push(token),
                    Action::Withdraw { .. } => {}
                    Action::Listen { buffers, .. } => assert!(buffers <= 2048),
                }
            }
            assert!(actions <= 200_000, "{actions} actions for one request");
            for _ in 0..prng.below(4) {
                if tokens.is_empty() {
                    break;
                }
                let token = tokens.swap_remove(prng.below(tokens.len() as u64) as usize);
                let status = if prng.one_in(3) { Err(lnet_types::Errno::EIO) } else { Ok(()) };
                let reply = random_message(&mut prng, service);
                let len = reply.len() as u32;
                machine.done(now, token, Done { status, len, bytes: &reply });
            }
            if machine.poll_timeout().is_some_and(|at| at <= now) {
                machine.handle_timeout(now);
            }
            while machine.poll_answer().is_some() {}
        }
    }
}

#[test]
fn a_flood_of_bulk_requests_waits_or_is_dropped() {
    use lnet_wire::ByteOrder;
    use lnet_wire::selftest::{BrwRequest, Message, Request};
    let mut machine = Selftest::new(Settings::default(), Duration::from_secs(1));
    let body = BrwRequest { reply_id: 1, bulk_id: 2, rw: 2, len: 1 << 20, check: 3 };
    let bytes = Message { order: ByteOrder::Little, features: 1, body: Request::Brw(body) }.emit();
    let now = Instant::from_secs(1);
    while machine.poll_action().is_some() {}
    for _ in 0..30_000 {
        machine.request(now, Service::Brw, nid(2).into(), nid(1), &bytes, &LnetCounters::default());
    }
    let mut gets = 0;
    while let Some(action) = machine.poll_action() {
        gets += u32::from(matches!(action, Action::Get { .. }));
    }
    assert_eq!(gets, 1024, "a GiB in hand, no more");
}
