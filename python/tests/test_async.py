"""Nodes in asyncio."""

import asyncio
import unittest

import ulnet

from . import free_port

PORTAL = 10
ALICE, BOB = "127.0.0.2@tcp", "127.0.0.3@tcp"


class Async(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        port = free_port()
        self.alice = ulnet.Node(ALICE, port=port)
        self.bob = ulnet.Node(BOB, port=port)
        self.addCleanup(self.alice.stop, 0)
        self.addCleanup(self.bob.stop, 0)

    async def test_requests_are_answered_by_a_task_beside_them(self) -> None:
        requests = self.bob.inbox(PORTAL, 1)
        replies = self.alice.inbox(PORTAL + 1, 7)

        async def serve() -> None:
            async for request in requests:
                await self.bob.put_async(request.initiator, PORTAL + 1, request.hdr_data, request.data)

        serving = asyncio.create_task(serve())
        for number in range(50):
            text = b"request %d" % number
            await self.alice.put_async(BOB, PORTAL, 1, text, hdr_data=7)
            self.assertEqual((await replies.recv_async()).data, text)
        self.bob.stop(0)
        # The end of the node is the end of the iteration.
        await asyncio.wait_for(serving, 20)

    async def test_many_operations_at_once_each_get_their_own_end(self) -> None:
        octets = bytes(range(256))
        with self.bob.attach(PORTAL, 2, octets):
            reads = [self.alice.get_async(BOB, PORTAL, 2, 1, offset=n) for n in range(256)]
            self.assertEqual(b"".join(await asyncio.gather(*reads)), octets)

    async def test_peers_are_found(self) -> None:
        self.assertEqual((await self.alice.ping_async(BOB)).nids, [BOB])
        self.assertTrue((await self.alice.discover_async(BOB)).multi_rail)
        with self.assertRaises(ulnet.Error):
            await self.alice.ping_async("127.0.0.99@tcp", timeout=2)

    async def test_a_cancelled_task_cancels_its_operation(self) -> None:
        # Nothing matches there, so no answer comes.
        waiting = asyncio.create_task(self.alice.get_async(BOB, 40, 1, 10, timeout=600))
        await asyncio.sleep(0.1)
        waiting.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await waiting
        self.assertEqual((await self.alice.ping_async(BOB)).primary, BOB)
        self.assertEqual(self.alice._waiting, {})
        self.assertEqual(self.alice._loops, set())

    async def test_tasks_share_an_inbox(self) -> None:
        inbox = self.bob.inbox(PORTAL, 1)
        tasks = [asyncio.create_task(inbox.recv_async()) for _ in range(5)]
        await asyncio.sleep(0)
        for number in range(5):
            await self.alice.put_async(BOB, PORTAL, 1, b"%d" % number)
        got = [message.data for message in await asyncio.wait_for(asyncio.gather(*tasks), 20)]
        self.assertEqual(sorted(got), [b"%d" % n for n in range(5)])


class Loops(unittest.TestCase):
    def test_a_node_serves_one_loop_after_another(self) -> None:
        port = free_port()
        with ulnet.Node(ALICE, port=port) as alice, ulnet.Node(BOB, port=port):
            for _ in range(3):
                self.assertEqual(asyncio.run(alice.ping_async(BOB)).primary, BOB)


if __name__ == "__main__":
    unittest.main()
