//! Inboxes: buffers that are posted again, messages that wait, ends.

use lnet::MatchEntry;
use lnet_rt::{AttachOptions, Buffer, InboxOptions, OpError};
use lnet_types::ProcessId;

use crate::wire::{left, nid, nodes, settles};

const PORTAL: u32 = 5;
const SMALL: InboxOptions = InboxOptions { buffers: 2, buffer_bytes: 64, ..InboxOptions::DEFAULT };

#[test]
fn an_inbox_receives_many_times_its_memory_without_a_gap() {
    let [(a, _), (b, _)] = nodes();
    let inbox = b.inbox(PORTAL, MatchEntry::bits(7), SMALL).unwrap();
    for n in 0..200_u32 {
        // Lengths that fit a buffer never, just, or with a rest; empty ones too.
        let text = vec![n as u8; [0, 1, 33, 63, 64][n as usize % 5]];
        a.put(nid(2), PORTAL, 7, text.clone()).ack().blocking().unwrap();
        let message = inbox.recv_blocking().unwrap();
        assert_eq!((&message[..], message.event.initiator.nid), (&text[..], nid(1)), "{n}");
    }
    assert_eq!(inbox.state().unread, 0);
    drop(inbox);
    settles(&b);
    assert_eq!(left(&b), (0, 0));
}

#[test]
fn senders_wait_while_the_program_holds_all_buffers_and_no_message_is_lost() {
    let [(a, _), (b, _)] = nodes();
    let inbox = b.inbox(PORTAL, MatchEntry::bits(7), SMALL).unwrap();
    let sends: Vec<_> =
        (0..20_u8).map(|n| a.put(nid(2), PORTAL, 7, vec![n; 40]).ack().into_future()).collect();
    let held: Vec<_> = (0..2).map(|_| inbox.recv_blocking().unwrap()).collect();
    assert_eq!(held.iter().map(|m| m[0]).collect::<Vec<_>>(), [0, 1]);
    // A third one does not fit behind either of the two.
    while inbox.state().exhausted == 0 {
        std::thread::yield_now();
    }
    let state = inbox.state();
    assert_eq!((state.buffers, state.posted, state.unread), (2, 0, 0));
    drop(held);
    for n in 2..20 {
        assert_eq!(inbox.recv_blocking().unwrap()[..], [n; 40], "{n}");
    }
    for sent in sends {
        assert_eq!(crate::wire::block_on(sent).unwrap().mlength, 40);
    }
}

#[test]
fn an_inbox_that_can_t_be_opened_leaves_the_messages_that_wait_for_another_one() {
    let [(a, _), (b, _)] = nodes();
    let options = InboxOptions { messages_per_buffer: 1, ..SMALL };
    let inbox = b.inbox(PORTAL, MatchEntry::bits(7), options).unwrap();
    let sends: Vec<_> =
        (0..3_u8).map(|n| a.put(nid(2), PORTAL, 7, vec![n; 40]).ack().into_future()).collect();
    let held: Vec<_> = (0..2).map(|_| inbox.recv_blocking().unwrap()).collect();
    while inbox.state().exhausted == 0 {
        std::thread::yield_now();
    }
    // An entry of the other kind of matching.
    let unique = MatchEntry { from: ProcessId::lustre(nid(1)), ..MatchEntry::bits(8) };
    b.inbox(PORTAL, unique, SMALL).err().unwrap();
    drop(held);
    assert_eq!(inbox.recv_blocking().unwrap()[..], [2; 40]);
    for sent in sends {
        assert_eq!(crate::wire::block_on(sent).unwrap().mlength, 40);
    }
}

#[test]
fn messages_stay_readable_when_the_inbox_and_the_node_are_gone() {
    let [(a, _), (b, _)] = nodes();
    let inbox = b.inbox(PORTAL, MatchEntry::bits(7), SMALL).unwrap();
    a.put(nid(2), PORTAL, 7, "kept").ack().blocking().unwrap();
    let message = inbox.recv_blocking().unwrap();
    b.stop(std::time::Duration::ZERO).blocking();
    assert!(inbox.recv_blocking().is_none(), "the node has stopped");
    drop((inbox, b));
    assert_eq!(message[..], *b"kept");
}

#[test]
fn empty_messages_come_to_the_end_of_a_buffer_too() {
    let [(a, _), (b, _)] = nodes();
    let options = InboxOptions { messages_per_buffer: 1, ..SMALL };
    let inbox = b.inbox(PORTAL, MatchEntry::bits(7), options).unwrap();
    let mut held = Vec::new();
    for _ in 0..2 {
        a.put(nid(2), PORTAL, 7, "").ack().blocking().unwrap();
        held.push(inbox.recv_blocking().unwrap());
    }
    assert_eq!(inbox.state().posted, 0);
    held.clear();
    a.put(nid(2), PORTAL, 7, "").ack().blocking().unwrap();
    assert!(inbox.recv_blocking().unwrap().is_empty());
}

#[test]
fn options_of_zero_are_refused_by_name() {
    let [(_a, _), (b, _)] = nodes();
    let options = InboxOptions { buffers: 0, ..SMALL };
    let e = b.inbox(PORTAL, MatchEntry::bits(7), options).err().unwrap();
    assert_eq!(e.to_string(), "inbox option buffers 0: must be at least 1");
    let e = b.inbox(64, MatchEntry::bits(7), SMALL).err().unwrap();
    assert!(matches!(e, OpError::Attach(_)), "{e}");
    settles(&b);
}

#[test]
fn a_used_up_attachment_returns_none_and_the_message_goes_to_the_next() {
    let [(a, _), (b, _)] = nodes();
    let post = |bytes| {
        let buffer = Buffer::zeroed(bytes);
        b.attach(PORTAL, MatchEntry::bits(7), buffer, AttachOptions::PUT).unwrap()
    };
    let (first, second) = (post(25), post(30));
    for text in ["0123456789", "abcdefghij", "ABCDEFGHIJ"] {
        a.put(nid(2), PORTAL, 7, text).ack().blocking().unwrap();
    }
    let texts: Vec<_> = std::iter::from_fn(|| first.recv_blocking().map(|d| d.to_vec())).collect();
    assert_eq!(texts, [b"0123456789".to_vec(), b"abcdefghij".to_vec(), Vec::new()], "and UNLINK");
    assert_eq!(second.recv_blocking().unwrap()[..], *b"ABCDEFGHIJ");
    // One that is full to the last byte is spent with the message that fills it.
    a.put(nid(2), PORTAL, 7, vec![7; 20]).ack().blocking().unwrap();
    assert!(second.recv_blocking().unwrap().event.unlinked);
    assert!(second.recv_blocking().is_none());
}
