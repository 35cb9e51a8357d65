//! Protocols as values on a stack: over real sockets, on threads and in the hands of the caller.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use lnet::Report;
use lnet_rt::{
    Below, BelowError, Event, EventKind, Instant, IoVec, MatchEntry, MdId, MdOptions, MdSpec, Nid,
    NodeBuilder, NodeHandle, ProcessId, Put, Stack, Unlink, Upper, UpperId, Wait,
};

use crate::sockets::{address, free_port};

const PORTAL: u32 = 60;
/// User words: a buffer that waits for messages, and one that has been sent.
const POSTED: u64 = 1;
const SENT: u64 = 2;
const LEN: u32 = 3000;

/// What a [`Relay`] lets its test know.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Heard(Vec<u8>),
    Discovered(bool),
    Ended,
    Dropped,
}

/// Takes messages, and gives each back one shorter until it is one byte long: at once, or, with
/// `pause`, when its time-out comes.
struct Relay {
    news: Sender<News>,
    pause: Option<Duration>,
    due: Option<(Instant, ProcessId, Vec<u8>)>,
}

impl Relay {
    fn post(&self, below: &mut Below<'_>) -> Result<MdId, BelowError> {
        let span = below.alloc(LEN).ok_or(BelowError::Span)?;
        let spec = MdSpec {
            threshold: Some(1),
            unlink: Unlink::Auto,
            options: MdOptions::OP_PUT,
            ..MdSpec::new(IoVec::from([span]), POSTED)
        };
        below.attach(PORTAL, MatchEntry::bits(7), spec)
    }

    fn say(&self, to: ProcessId, bytes: &[u8], below: &mut Below<'_>) {
        let span = below.alloc(bytes.len() as u32).unwrap();
        below.bytes_mut(span).copy_from_slice(bytes);
        let spec = MdSpec::new(IoVec::from([span]), SENT);
        let md = below.bind(MdSpec { threshold: Some(1), unlink: Unlink::Auto, ..spec }).unwrap();
        let put = Put {
            md,
            ack: false,
            src: None,
            target: to,
            portal: PORTAL,
            match_bits: 7,
            offset: 0,
            hdr_data: 0,
            timeout: None,
        };
        below.put(put).unwrap();
    }
}

impl Upper for Relay {
    fn event(&mut self, event: &Event, below: &mut Below<'_>) {
        if event.kind == EventKind::Put {
            let spans = below.payload(event);
            let bytes: Vec<u8> = spans.iter().flat_map(|s| below.bytes(*s).to_vec()).collect();
            let _ = self.news.send(News::Heard(bytes.clone()));
            // The next is posted before the answer leaves.
            self.post(below).unwrap();
            match (bytes.len(), self.pause) {
                (0 | 1, _) => {}
                (_, None) => self.say(event.initiator, &bytes[1..], below),
                (_, Some(pause)) => {
                    self.due = Some((below.now() + pause, event.initiator, bytes[1..].to_vec()));
                }
            }
        }
        if event.unlinked {
            if event.kind == EventKind::Unlink {
                assert_eq!(self.post(below), Err(BelowError::Closed));
                let _ = self.news.send(News::Ended);
            }
            let whole = below.payload(&Event { offset: 0, mlength: 1, ..*event });
            whole.iter().for_each(|span| below.free(*span));
        }
    }

    fn spent(&mut self, _: u64) {}

    fn report(&mut self, report: &Report, _: &mut Below<'_>) {
        let _ = self.news.send(News::Discovered(report.outcome.is_ok()));
    }

    fn handle_timeout(&mut self, below: &mut Below<'_>) {
        if let Some((_, to, bytes)) = self.due.take() {
            self.say(to, &bytes, below);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due.as_ref().map(|(at, ..)| *at)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.news.send(News::Dropped);
    }
}

fn relay(stack: &mut Stack, pause: Option<Duration>) -> (UpperId, Receiver<News>) {
    let (news, heard) = channel();
    let id = stack.add_upper(Box::new(Relay { news, pause, due: None })).unwrap();
    stack.with_upper(id, |relay: &mut Relay, below| relay.post(below)).unwrap().unwrap();
    (id, heard)
}

/// A node with a relay on it.
fn node(last: u8, port: u16, pause: Option<Duration>) -> (NodeHandle, UpperId, Receiver<News>) {
    let node = NodeBuilder::new().tcp(address(last).into(), port).start().unwrap();
    let (id, heard) = node.call(move |stack, _| relay(stack, pause)).blocking().unwrap();
    (node, id, heard)
}

fn heard(news: &Receiver<News>) -> Vec<u8> {
    match news.recv().unwrap() {
        News::Heard(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn uppers_talk_over_sockets_by_events_and_time_outs() {
    let port = free_port(&[address(50), address(51)]);
    let (a, from, a_news) = node(50, port, None);
    let (b, _, b_news) = node(51, port, Some(Duration::from_millis(1)));
    let b_nid: Nid = format!("{}@tcp", address(51)).parse().unwrap();
    let text: Vec<u8> = (0..20).collect();
    let first = text.clone();
    let begun = a.call(move |stack, _| {
        stack.with_upper(from, |relay: &mut Relay, below| {
            relay.say(ProcessId::lustre(b_nid), &first, below);
        })
    });
    assert_eq!(begun.blocking().unwrap(), Some(()));
    for n in 0..text.len() {
        // It goes to and fro.
        let news = if n % 2 == 0 { &b_news } else { &a_news };
        assert_eq!(heard(news), text[n..]);
    }
    let regions = |node: &NodeHandle| node.call(|stack, _| stack.in_use().1).blocking().unwrap();
    assert!(regions(&a) <= 2 && regions(&b) <= 2, "blocks are used again");
}

#[test]
fn stopping_a_node_gives_its_uppers_their_last_events_and_drops_them() {
    let port = free_port(&[address(52)]);
    let (a, id, news) = node(52, port, None);
    a.stop(Duration::from_secs(60)).blocking();
    assert_eq!(news.recv(), Ok(News::Ended));
    assert_eq!(news.recv(), Ok(News::Dropped));
    let late = a.call(move |stack, _| stack.with_upper(id, |_: &mut Relay, _| ()));
    assert!(late.blocking().is_err());
}

#[test]
fn a_removed_upper_comes_back_to_the_caller_without_its_descriptors() {
    let mut stack = NodeBuilder::new().seed(1).build().unwrap();
    let (id, news) = relay(&mut stack, None);
    let (other, other_news) = relay(&mut stack, None);
    assert_ne!(id, other);
    assert!(stack.with_upper(id, |_: &mut Other, _| ()).is_none(), "it is of another type");
    assert!(stack.remove_upper(id).is_some());
    assert_eq!(news.recv(), Ok(News::Dropped));
    assert!(stack.remove_upper(id).is_none());
    // Its match entry is gone: the other one's is found.
    stack.with_upper(other, |relay: &mut Relay, below| {
        relay.say(ProcessId::lustre(Nid::LOOPBACK), b"x", below);
    });
    while stack.turn(Wait::None) {}
    assert_eq!(heard(&other_news), b"x");
}

#[test]
fn reports_go_to_the_upper_that_asked_and_to_no_caller() {
    let mut stack = NodeBuilder::new().seed(1).build().unwrap();
    let (id, news) = relay(&mut stack, None);
    stack.with_upper(id, |_: &mut Relay, below| _ = below.discover(Nid::LOOPBACK)).unwrap();
    while stack.turn(Wait::None) {}
    assert_eq!(news.try_recv(), Ok(News::Discovered(true)));
    assert_eq!((stack.poll_report(), stack.poll_event()), (None, None));
}

/// Does nothing.
struct Other;

impl Upper for Other {
    fn event(&mut self, _: &Event, _: &mut Below<'_>) {}
    fn spent(&mut self, _: u64) {}

    fn report(&mut self, _: &Report, _: &mut Below<'_>) {}
    fn handle_timeout(&mut self, _: &mut Below<'_>) {}
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
