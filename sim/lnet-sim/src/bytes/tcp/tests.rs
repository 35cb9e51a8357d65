//! Tests of the ends of connections.

use lnet_types::Prng;

use super::receive::OVERTAKE;
use super::*;

const A: &str = "10.0.0.1:1023";
const B: &str = "10.0.0.2:988";

/// Two ends, what is on its way between them, and how badly that goes.
struct Pair {
    now: Instant,
    rng: Prng,
    a: End,
    b: Option<End>,
    /// When, in which order, for which end.
    flying: Vec<(Instant, u64, bool, Segment)>,
    sent: u64,
    /// One in so many is lost, doubled, late.
    lost: u64,
    doubled: u64,
    late: u64,
    cut: Cut,
}

impl Pair {
    fn new(seed: u64, cut: Cut) -> Self {
        let mut a = End::connect(A.parse().unwrap(), B.parse().unwrap(), 1000, cut);
        a.wish(Wishes {
            even_retries: seed.is_multiple_of(2),
            keepalive: None,
            rto_max: Duration::ZERO,
        });
        let (now, rng) = (Instant::from_secs(1), Prng::new(seed));
        let flying = Vec::new();
        Self { now, rng, a, b: None, flying, sent: 0, lost: 0, doubled: 0, late: 0, cut }
    }

    fn fly(&mut self, to_b: bool, segment: Segment) {
        if self.rng.one_in(self.lost) {
            return;
        }
        let mut at = self.now + Duration::from_micros(100);
        if self.rng.one_in(self.late) {
            at += Duration::from_millis(self.rng.below(500));
        }
        if self.rng.one_in(self.doubled) {
            self.sent += 1;
            self.flying.push((at, self.sent, to_b, segment.clone()));
        }
        self.sent += 1;
        self.flying.push((at, self.sent, to_b, segment));
    }

    /// Everything that is to be done now.
    fn talk(&mut self) {
        let mut out = Vec::new();
        let there = self.now + Duration::from_micros(100);
        self.a.send(self.now, &mut self.rng, &mut out);
        for segment in core::mem::take(&mut out) {
            self.a.departed(segment.seq, there);
            self.fly(true, segment);
        }
        if let Some(b) = &mut self.b {
            b.send(self.now, &mut self.rng, &mut out);
        }
        for segment in out {
            if let Some(b) = &mut self.b {
                b.departed(segment.seq, there);
            }
            self.fly(false, segment);
        }
    }

    /// The next thing that happens; false if nothing ever will.
    fn step(&mut self) -> bool {
        self.talk();
        let arrivals = self.flying.iter().map(|(at, n, ..)| (*at, *n));
        let next = arrivals.min();
        let b_due = self.b.as_ref().map_or(Instant::FAR_FUTURE, |b| b.due);
        let timer = self.a.due.min(b_due);
        match next {
            Some((at, n)) if at <= timer => {
                self.now = self.now.max(at);
                let at = self.flying.iter().position(|(_, m, ..)| *m == n).unwrap();
                let (_, _, to_b, segment) = self.flying.remove(at);
                self.arrive(to_b, segment);
                true
            }
            _ if timer < Instant::FAR_FUTURE => {
                self.now = self.now.max(timer);
                if self.a.due <= self.now {
                    self.a.expire(self.now);
                }
                if let Some(b) = self.b.as_mut().filter(|b| b.due <= self.now) {
                    b.expire(self.now);
                }
                true
            }
            _ => false,
        }
    }

    fn arrive(&mut self, to_b: bool, segment: Segment) {
        let answer = match (to_b, &mut self.b) {
            (false, _) => self.a.receive(self.now, segment).1,
            (true, Some(b)) => b.receive(self.now, segment).1,
            (true, None) if segment.kind.syn => {
                let mut b = End::accept(self.now, &segment, 9_000_000, self.cut);
                b.holder = Holder::Driver;
                self.b = Some(b);
                None
            }
            (true, None) => segment.refusal(),
        };
        if let Some(answer) = answer {
            self.fly(!to_b, answer);
        }
    }

    fn until(&mut self, what: impl Fn(&Self) -> bool) {
        for _ in 0..100_000 {
            if what(self) {
                return;
            }
            assert!(self.step(), "nothing happens any more: {:?}\n{:?}", self.a, self.b);
        }
        panic!("it takes for ever");
    }
}

fn read_all(end: &mut End, rng: &mut Prng, into: &mut Vec<u8>) -> Result<bool, Errno> {
    let (mut one, mut two) = ([0; 700], [0; 5000]);
    loop {
        match end.read(rng, &mut one, &mut two) {
            Ok(0) => return Ok(true),
            Ok(n) => {
                into.extend(&one[..n.min(700)]);
                into.extend(&two[..n.saturating_sub(700)]);
            }
            Err(None) => return Ok(false),
            Err(Some(errno)) => return Err(errno),
        }
    }
}

#[test]
fn every_byte_arrives_in_order_whatever_the_network_does() {
    for seed in 0..60 {
        let cut = [Cut::Whole, Cut::Parts, Cut::Crumbs(20)][seed as usize % 3];
        let mut p = Pair::new(seed, cut);
        (p.lost, p.doubled, p.late) = (seed % 7 * 8, seed % 5 * 4, seed % 4 * 5);
        let text: Vec<u8> = (0..700_000u32).map(|n| (n * 7 + n / 251) as u8).collect();
        let (mut written, mut got) = (0, Vec::new());
        for _ in 0..100_000 {
            let rest = &text[written..];
            match p.a.write(&mut p.rng, rest.len(), [rest].into_iter()) {
                Ok((n, _)) => written += n,
                Err(None) => {}
                Err(Some(errno)) => panic!("seed {seed}: {errno}"),
            }
            if written == text.len() && p.a.holder == Holder::Driver && p.a.state == State::Open {
                assert_eq!(p.a.close(false), None);
            }
            if let Some(b) = &mut p.b {
                // It does not read all the time, so that its buffer is full now and then.
                if p.rng.below(3) == 0 && read_all(b, &mut p.rng, &mut got) == Ok(true) {
                    break;
                }
            }
            if !p.step() && got.len() == text.len() {
                break;
            }
        }
        assert_eq!(got.len(), text.len(), "seed {seed}");
        assert!(got == text, "seed {seed}: other bytes");
        p.until(|p| p.a.is_over());
    }
}

#[test]
fn an_unanswered_connection_attempt_is_repeated_and_abandoned() {
    let mut p = Pair::new(1, Cut::Whole);
    p.lost = 1;
    let begun = p.now;
    p.until(|p| p.a.connected().is_some());
    assert_eq!(p.a.connected(), Some(Err(Errno::ETIMEDOUT)));
    assert_eq!(p.now.saturating_since(begun).as_secs(), 127);
}

#[test]
fn an_attempt_to_connect_without_a_listener_is_refused() {
    let mut p = Pair::new(1, Cut::Whole);
    let mut out = Vec::new();
    p.a.send(p.now, &mut p.rng, &mut out);
    let answer = out[0].refusal().unwrap();
    assert_eq!(answer.refusal(), None, "a reset gets no answer");
    p.a.receive(p.now, answer);
    assert_eq!(p.a.connected(), Some(Err(Errno::ECONNREFUSED)));
}

#[test]
fn a_peer_that_has_forgotten_the_connection_resets_it() {
    let mut p = Pair::new(1, Cut::Whole);
    p.until(|p| p.b.as_ref().is_some_and(|b| b.state == State::Open));
    p.b = None;
    assert!(p.a.write(&mut p.rng, 3, [&b"abc"[..]].into_iter()).is_ok());
    p.until(|p| p.a.error().is_some());
    assert_eq!(p.a.error(), Some(Errno::ECONNRESET));
    let read = p.a.read(&mut p.rng, &mut [0; 9], &mut []);
    assert_eq!(read, Err(Some(Errno::ECONNRESET)));
}

#[test]
fn a_new_connection_in_the_place_of_an_old_one_is_made_when_the_old_one_is_reset() {
    let mut p = Pair::new(1, Cut::Whole);
    p.until(|p| p.b.as_ref().is_some_and(|b| b.state == State::Open));
    // The host has restarted, and takes the same port.
    p.a = End::connect(A.parse().unwrap(), B.parse().unwrap(), 77_000_000, Cut::Whole);
    p.until(|p| p.b.as_ref().is_some_and(|b| b.error().is_some()));
    assert_eq!(p.b.take().unwrap().error(), Some(Errno::ECONNRESET));
    p.until(|p| p.a.connected().is_some());
    assert_eq!(p.a.connected(), Some(Ok(A.parse().unwrap())));
}

#[test]
fn a_half_open_connection_is_found_by_keepalives() {
    let mut p = Pair::new(1, Cut::Whole);
    let every = Duration::from_secs(5);
    p.a.wish(Wishes {
        even_retries: false,
        keepalive: Some((Duration::from_secs(30), every, 5)),
        rto_max: Duration::ZERO,
    });
    p.until(|p| p.b.as_ref().is_some_and(|b| b.state == State::Open));
    // Answered, as long as the other host lives.
    p.until(|p| p.now > Instant::from_secs(300));
    assert_eq!(p.a.error(), None);
    p.lost = 1;
    p.until(|p| p.a.error().is_some());
    assert_eq!(p.a.error(), Some(Errno::ETIMEDOUT));
    assert!(p.now < Instant::from_secs(300 + 70), "{:?}", p.now);
}

#[test]
fn bytes_that_are_never_read_end_a_connection_with_a_reset() {
    let mut p = Pair::new(1, Cut::Whole);
    p.until(|p| p.b.as_ref().is_some_and(|b| b.state == State::Open));
    assert!(p.a.write(&mut p.rng, 3, [&b"abc"[..]].into_iter()).is_ok());
    p.until(|p| p.b.as_ref().is_some_and(|b| b.unread() == 3));
    let last = p.b.as_mut().unwrap().close(false).unwrap();
    assert!(last.kind.rst);
    p.a.receive(p.now, last);
    assert_eq!(p.a.error(), Some(Errno::ECONNRESET));
}

#[test]
fn time_outs_of_a_stream_double_unless_its_owner_requests_even_ones() {
    // After six even tries the doubling begins.
    let even = [200, 200, 200, 200, 200, 200, 200, 400, 800];
    for (even, gaps) in [(true, &even[..]), (false, &[200, 400, 800])] {
        let mut p = Pair::new(1, Cut::Whole);
        p.a.wish(Wishes { even_retries: even, keepalive: None, rto_max: Duration::ZERO });
        p.until(|p| p.b.as_ref().is_some_and(|b| b.state == State::Open));
        p.lost = 1;
        assert!(p.a.write(&mut p.rng, 3, [&b"abc"[..]].into_iter()).is_ok());
        p.talk();
        for &gap in gaps {
            let due = p.a.due.saturating_since(p.now);
            assert_eq!(due.as_millis(), gap, "even: {even}");
            assert!(p.step());
            p.talk();
        }
    }
}

/// Writes three bytes and lets `pause` pass, with what happens in it.
fn write_and_pause(p: &mut Pair, pause: Duration) {
    assert!(p.a.write(&mut p.rng, 3, [&b"abc"[..]].into_iter()).is_ok());
    let end = p.now + pause;
    p.talk();
    while p.flying.iter().any(|(at, ..)| *at <= end) || p.a.due <= end {
        assert!(p.step());
        p.talk();
    }
    p.now = end;
}

#[test]
fn a_lost_segment_is_sent_again_though_more_is_sent_behind_it() {
    let mut p = Pair::new(1, Cut::Whole);
    p.until(|p| p.b.as_ref().is_some_and(|b| b.state == State::Open));
    p.lost = 1;
    for _ in 0..6 {
        write_and_pause(&mut p, Duration::from_millis(50));
    }
    assert!(p.a.resent > 0, "300 ms without an answer: {:?}", p.a);
}

#[test]
fn one_lost_segment_is_noticed_by_what_arrives_behind_it() {
    let mut p = Pair::new(1, Cut::Whole);
    p.until(|p| p.b.as_ref().is_some_and(|b| b.state == State::Open));
    p.lost = 1;
    write_and_pause(&mut p, Duration::from_millis(1));
    p.lost = 0;
    for sent in 1..=OVERTAKE {
        assert_eq!(p.a.resent, 0, "{sent}");
        write_and_pause(&mut p, Duration::from_millis(1));
    }
    assert_eq!(p.a.resent, 1);
    assert_eq!(p.a.una, p.a.next, "all is acknowledged");
}
