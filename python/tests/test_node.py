"""Nodes, as programs that wait see them."""

import errno
import os
import select
import threading
import time
import unittest

import ulnet

from . import assert_interrupted, free_port

PORTAL = 10
ALICE, BOB, ABSENT = "127.0.0.2@tcp", "127.0.0.3@tcp", "127.0.0.99@tcp"


class Nodes(unittest.TestCase):
    def setUp(self) -> None:
        port = free_port()
        self.alice = ulnet.Node(ALICE, port=port, tunables={"transaction_timeout": 20})
        self.bob = ulnet.Node(BOB, port=port)
        self.addCleanup(self.alice.stop, 0)
        self.addCleanup(self.bob.stop, 0)

    def test_a_message_arrives_with_what_its_sender_said(self) -> None:
        inbox = self.bob.inbox(PORTAL, 0x17)
        self.assertEqual(self.alice.put(BOB, PORTAL, 0x17, b"hello", ack=True, hdr_data=42), 5)
        message = inbox.recv(20)
        self.assertEqual(message, ulnet.Message(b"hello", ALICE, 12345, PORTAL, 0x17, 42))

    def test_iterating_ends_with_the_node(self) -> None:
        inbox = self.bob.inbox(PORTAL, 1, buffers=2, buffer_bytes=4096)
        for number in range(200):
            self.alice.put(BOB, PORTAL, 1, b"%3d" % number + bytes(100))
        got = []
        for message in inbox:
            got.append(int(message.data[:3]))
            if len(got) == 200:
                self.bob.stop(0)
        self.assertEqual(got, list(range(200)))
        self.assertTrue(self.bob.stopped)
        with self.assertRaises(ulnet.Closed):
            inbox.recv(0)

    def test_anything_with_a_buffer_is_sent_and_numbers_are_not(self) -> None:
        inbox = self.bob.inbox(PORTAL, 1)
        for data in (bytearray(b"abc"), memoryview(b"xabcx")[1:4], b"abc"):
            self.alice.put(BOB, PORTAL, 1, data)
            self.assertEqual(inbox.recv(20).data, b"abc")
        for data in (5, "abc", None):
            with self.assertRaises(TypeError):
                self.alice.put(BOB, PORTAL, 1, data)

    def test_a_mebibyte_comes_back_from_a_shelf(self) -> None:
        octets = os.urandom(1 << 20)
        with self.bob.attach(PORTAL, 2, octets) as shelf:
            self.assertEqual(self.alice.get(BOB, PORTAL, 2, 1 << 20), octets)
            self.assertEqual(self.alice.get(BOB, PORTAL, 2, 10, offset=5), octets[5:15])
            event = shelf.recv(20)
            self.assertEqual((event.kind, event.length, event.initiator), ("get", 1 << 20, ALICE))
            shelf.write(5, b"changed")
            self.assertEqual(shelf.read(4, 9), octets[4:5] + b"changed" + octets[12:13])
            self.assertEqual(self.alice.get(BOB, PORTAL, 2, 7, offset=5), b"changed")
        with self.assertRaises(ulnet.Error) as raised:
            shelf.read(0, 1)
        self.assertEqual(raised.exception.errno, errno.ESHUTDOWN)

    def test_room_fills_and_is_used_up(self) -> None:
        room = self.bob.attach(PORTAL, 3, bytes(8), put=True, get=False, truncate=False)
        self.alice.put(BOB, PORTAL, 3, b"1234", ack=True)
        self.alice.put(BOB, PORTAL, 3, b"5678", ack=True)
        events = [room.recv(20), room.recv(20)]
        self.assertEqual([(e.kind, e.offset) for e in events], [("put", 0), ("put", 4)])
        with self.assertRaises(ulnet.Closed):
            while True:
                self.assertEqual(room.recv(20).kind, "unlink")

    def test_a_failure_has_number_text_and_stage(self) -> None:
        with self.assertRaises(ulnet.Error) as raised:
            self.alice.get(ABSENT, PORTAL, 1, 1, timeout=5)
        error = raised.exception
        self.assertIsInstance(error, OSError)
        self.assertIn("GET to 127.0.0.99@tcp, portal 10: ", error.strerror)
        self.assertIn(error.stage, ("no-path", "refused", "transmission"))
        with self.assertRaisesRegex(ulnet.Error, "ping of 10.9.9.9@o2ib: No route to host"):
            self.alice.ping("10.9.9.9@o2ib", timeout=2)
        with self.assertRaises(ulnet.Error) as raised:
            self.alice.set("health_sensitivity", 5000)
        self.assertEqual(raised.exception.errno, errno.EINVAL)
        self.assertEqual(raised.exception.strerror, "health_sensitivity 5000: expected 0 to 1000")
        self.assertIsNone(raised.exception.stage)
        for wrong in ("10.0.0.300@tcp", "", "<?>"):
            with self.assertRaises(ValueError):
                self.alice.put(wrong, PORTAL, 1, b"")
        with self.assertRaises(ValueError):
            self.alice.ping(BOB, timeout=-1)
        with self.assertRaisesRegex(ValueError, "expected one of default, documents, kernel"):
            ulnet.Node(profile="kernle")

    def test_a_node_is_configured_while_it_runs(self) -> None:
        self.assertEqual(self.alice.value("transaction_timeout"), 20)
        self.alice.set("retry_count", 5)
        self.assertEqual(self.alice.value("retry_count"), 5)
        self.alice.add_ni("127.0.0.4@tcp")
        self.assertEqual(self.alice.nids, [ALICE, "127.0.0.4@tcp"])
        self.alice.del_ni("127.0.0.4@tcp")
        self.assertEqual(self.alice.nids, [ALICE])
        self.alice.add_peer("10.77.0.1@tcp", "10.77.0.2@tcp")
        self.alice.add_route("tcp7", BOB)
        self.assertEqual(self.alice.ping(BOB).nids, [BOB])
        self.assertEqual(self.alice.discover(BOB), ulnet.Peer(BOB, True, [BOB]))

    def test_a_slow_program_is_seen_in_the_state_of_its_inbox(self) -> None:
        inbox = self.bob.inbox(PORTAL, 1, buffers=2, buffer_bytes=64)
        self.assertEqual(inbox.state, ulnet.InboxState(2, 2, 0, 0))
        for _ in range(3):
            self.alice.put(BOB, PORTAL, 1, bytes(40))
        while inbox.state.exhausted == 0:
            time.sleep(0.01)
        self.assertEqual(inbox.state.posted, 0)
        for _ in range(3):
            self.assertEqual(len(inbox.recv(20).data), 40)
        inbox.close()
        self.assertIsNone(inbox.state)
        self.assertEqual(list(inbox), [])

    def test_the_descriptor_is_readable_until_there_is_nothing(self) -> None:
        inbox = self.bob.inbox(PORTAL, 1)
        self.assertIsNone(inbox.recv(0))
        self.assertEqual(select.select([inbox], [], [], 0)[0], [])
        self.alice.put(BOB, PORTAL, 1, b"x", ack=True)
        self.assertEqual(select.select([inbox], [], [], 20)[0], [inbox])
        self.assertEqual(inbox.recv(0).data, b"x")
        self.assertIsNone(inbox.recv(0))
        self.assertEqual(select.select([inbox], [], [], 0)[0], [])

    def test_other_threads_run_while_one_waits(self) -> None:
        inbox = self.bob.inbox(PORTAL, 1)
        got: list[ulnet.Message] = []
        waiting = threading.Thread(target=lambda: got.append(inbox.recv(20)))
        waiting.start()
        # Would not come to this if the thread held the interpreter.
        self.alice.put(BOB, PORTAL, 1, b"x")
        waiting.join()
        self.assertEqual(got[0].data, b"x")

    def test_ctrl_c_ends_calls_that_wait(self) -> None:
        inbox = self.bob.inbox(PORTAL, 1)
        assert_interrupted(self, inbox.recv)
        assert_interrupted(self, lambda: list(inbox))
        # Nothing matches there, so no answer comes.
        assert_interrupted(self, lambda: self.alice.get(BOB, 40, 1, 10, timeout=600))
        self.alice.put(BOB, PORTAL, 1, b"all goes on", ack=True)
        self.assertEqual(inbox.recv(20).data, b"all goes on")

    def test_with_stops_the_node(self) -> None:
        with ulnet.Node("127.0.0.5@tcp", port=free_port()) as node:
            self.assertFalse(node.stopped)
        self.assertTrue(node.stopped)
        with self.assertRaises(ulnet.Error) as raised:
            node.ping(BOB)
        self.assertEqual(raised.exception.errno, errno.ESHUTDOWN)


if __name__ == "__main__":
    unittest.main()
