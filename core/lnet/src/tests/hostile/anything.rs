//! A node that says anything at all, well made or not, in a small cluster: two honest nodes that know
//! each other talk meanwhile, and must not notice.
//!
//! A failing run prints its seed; `HOSTILE_SEED=… cargo test -p lnet hostile` plays it again.

use lnet_types::Prng;

use super::*;

fn pick<T: Copy>(rng: &mut Prng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

/// Any NID: of a node, of none, or not a NID of a node at all.
fn any_nid(rng: &mut Prng) -> Nid {
    match rng.below(10) {
        0..2 => nid(pick(rng, &A)),
        2..4 => nid(pick(rng, &B)),
        4..7 => nid(pick(rng, &X)),
        7 => Nid::ANY,
        8 => Nid::LOOPBACK,
        _ => {
            let net = pick(rng, &["tcp", "tcp7", "o2ib"]);
            format!("10.9.{}.{}@{net}", rng.below(3), 1 + rng.below(4)).parse().unwrap()
        }
    }
}

fn any_info(rng: &mut Prng) -> Vec<u8> {
    let statuses = [NiStatus::UP, NiStatus::UP, NiStatus::DOWN, NiStatus::INVALID, NiStatus(7)];
    let n = pick(rng, &[0, 1, 2, 3, 5, 20, 60]);
    let entries =
        (0..n).map(|_| PingEntry { nid: any_nid(rng), status: pick(rng, &statuses) }).collect();
    let features = match rng.below(4) {
        0 => Features::from_bits_retain(rng.next_u64() as u32),
        1 => usual() - Features::DISCOVERY,
        _ => usual(),
    };
    let seq = pick(rng, &[0, 1, 2, 9, 10, u32::MAX, 1 << 31]).wrapping_add(rng.below(5) as u32);
    let info = PingInfo { features, pid: Pid::LUSTRE, seq, entries };
    let mut bytes =
        info.emit_in(pick(rng, &[ByteOrder::Little, ByteOrder::Little, ByteOrder::Big]));
    if rng.below(4) == 0 {
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.next_u64() as u8;
        }
        bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
    }
    bytes
}

/// Bytes behind a body: any, or a mark with a name that was seen.
fn pad<const N: usize>(rng: &mut Prng, seen: &[Handle]) -> [u8; N] {
    let mut pad = [0; N].map(|_: u8| rng.next_u64() as u8);
    if rng.below(2) == 0 && !seen.is_empty() {
        pad[..8].copy_from_slice(&pick(rng, seen).interface.to_le_bytes());
    }
    pad
}

fn any_kind(rng: &mut Prng, seen: &[Handle]) -> Kind {
    let guess = |rng: &mut Prng| match rng.below(4) {
        0 if !seen.is_empty() => {
            let near = pick(rng, seen);
            Handle { object: near.object.wrapping_add(1 + rng.below(3)), ..near }
        }
        1 if !seen.is_empty() => pick(rng, seen),
        2 if !seen.is_empty() => {
            let near = pick(rng, seen);
            let bit = 1u64 << rng.below(64);
            if rng.below(2) == 0 {
                Handle { interface: near.interface ^ bit, ..near }
            } else {
                Handle { object: near.object ^ bit, ..near }
            }
        }
        _ => Handle { interface: 0x1000 + rng.below(2), object: 1 << 32 | rng.below(40) },
    };
    let (bits, portal) = (lnet_wire::ping::MATCH_BITS, rng.below(3) as u32);
    match rng.below(4) {
        0 => {
            let mlength = rng.next_u64() as u32;
            Kind::Ack { dst: guess(rng), match_bits: 0, mlength, pad: pad(rng, seen) }
        }
        1 => Kind::Reply { dst: guess(rng), pad: pad(rng, seen) },
        2 => {
            let ret = guess(rng);
            Kind::Get { ret, match_bits: bits, portal, offset: 0, sink_len: 300, pad: [0; 4] }
        }
        _ => {
            let (ack, hdr_data) = (guess(rng), rng.next_u64());
            Kind::Put { ack, match_bits: bits, hdr_data, portal, offset: 0 }
        }
    }
}

fn play(seed: u64) {
    let mut rng = Prng::new(seed);
    let profile =
        pick(&mut rng, &[Profile::Default, Profile::Documents, Profile::Pre213, Profile::Off]);
    let mut w = World::new();
    for nids in [A, B, X] {
        w.host(profile, &nids);
    }
    w.discovered(0, B[0]);
    if rng.below(2) == 0 {
        w.discovered(0, X[0]);
    }
    let nis = |w: &World, host: usize| w.hosts[host].node.peer_count().1;
    let mut user = 1000;
    for _ in 0..60 {
        for (host, theirs) in [(0, B), (1, A)] {
            if rng.below(3) == 0 {
                let to = pick(&mut rng, &theirs);
                w.put(host, to, user, true);
                user += 1;
            }
        }
        // Handles that it has been sent, and may make use of.
        let to_x = |h: &Hdr| X.iter().any(|x| nid(x) == h.dst);
        let sent = w.hosts.iter().take(2).flat_map(|h| &h.sent);
        let seen: Vec<_> = sent.filter(|(_, h)| to_x(h)).map(|(_, h)| handle(h)).collect();
        let (victim, from) = (rng.below(2) as usize, nid(pick(&mut rng, &X)));
        let src = if rng.below(3) == 0 { any_nid(&mut rng) } else { from };
        match rng.below(5) {
            0 => serve(&mut w, 2, &any_info(&mut rng)),
            1 => {
                let now = w.now;
                w.hosts[victim].node.discover(now, nid(X[0]), true);
            }
            2 => {
                let bytes = any_info(&mut rng);
                let kind = any_kind(&mut rng, &seen);
                let with = matches!(kind, Kind::Put { .. } | Kind::Reply { .. });
                let bytes = if with { &bytes[..] } else { &[] };
                let hdr = Hdr {
                    dst: *w.hosts[victim].nids.values().next().unwrap(),
                    src,
                    dst_pid: pick(&mut rng, &[Pid::LUSTRE, Pid::ANY, Pid(7), Pid(0xC000_0001)]),
                    src_pid: Pid::LUSTRE,
                    payload_len: bytes.len() as u32,
                    kind,
                };
                w.inject(victim, from, &hdr, bytes);
            }
            _ => {
                let bytes = any_info(&mut rng);
                push_as(&mut w, victim, from, src, &bytes);
            }
        }
        let wait = MS * rng.below(20) as u32;
        w.run(wait);
        assert!(nis(&w, 0).max(nis(&w, 1)) < 100, "seed {seed}: what it keeps has its limit");
    }
    w.secs(6);
    for (host, theirs) in [(0, B), (1, A)] {
        let mut whole = known(&w, host, theirs[0]);
        whole.sort();
        assert_eq!(whole, theirs, "seed {seed}: what {host} knows of the other");
        assert_eq!(known(&w, host, theirs[1]).len(), 2, "seed {seed}");
        for (_, to) in w.pairs(host) {
            assert!(theirs.contains(&to.as_str()), "seed {seed}: {host} sent to {to}");
        }
        for n in theirs {
            assert_eq!(w.peer_health(host, n), 1000, "seed {seed}: health of {n} at {host}");
        }
    }
    for user in 1000..user {
        let events: Vec<_> = (0..2).flat_map(|host| w.events(host, user)).collect();
        let want = [(EventKind::Send, true, false), (EventKind::Ack, true, true)];
        assert_eq!(events, want, "seed {seed}: message {user}");
    }
}

#[test]
fn hostile_messages_of_one_node_leave_traffic_and_views_of_honest_nodes_unchanged() {
    match option_env!("HOSTILE_SEED").and_then(|s| s.parse().ok()) {
        Some(seed) => play(seed),
        None => (1..=150).for_each(play),
    }
}
