"""LNet nodes inside Python programs.

    import ulnet

    with ulnet.Node("10.0.0.1@tcp", port=7988) as node:
        inbox = node.inbox(portal=10, match_bits=0x17)
        node.put("10.0.0.2@tcp", 10, 0x17, b"hello", ack=True)
        for message in inbox:
            print(message.initiator, message.data)

Calls that wait leave the interpreter to other threads, and Ctrl-C ends them. For asyncio there are
methods with `_async`, and inboxes are asynchronous iterators as well. Whatever fails raises `Error`.
The control socket of a daemon is in `ulnet.admin`.
"""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Any, AsyncIterator, Callable, Iterator, Mapping, NamedTuple, Optional, Type

from . import _ulnet
from ._ulnet import Error, __version__

__all__ = [
    "Attachment",
    "Closed",
    "Error",
    "Event",
    "Inbox",
    "InboxState",
    "Message",
    "Node",
    "Peer",
    "__version__",
]


class Closed(EOFError):
    """Nothing comes any more: the node has stopped, or the inbox or attachment is closed or used up."""


class Peer(NamedTuple):
    """A node that has answered."""

    primary: str
    """The NID that it is known by."""
    multi_rail: bool
    """Whether it is Multi-Rail."""
    nids: list[str]
    """Its NIDs."""


class Message(NamedTuple):
    """A message of an inbox."""

    data: bytes
    """What was sent."""
    initiator: str
    """The peer that sent it, by its primary NID: replies go there."""
    pid: int
    """The process there; 12345 for Lustre services."""
    portal: int
    """Where it came."""
    match_bits: int
    """Its match bits."""
    hdr_data: int
    """64 bits of the initiator."""


class Event(NamedTuple):
    """What has happened at an attachment."""

    kind: str
    """`put`: a PUT has arrived; `get`: a GET has read; `unlink`: used up."""
    offset: int
    """Where in the buffer, bytes."""
    length: int
    """Bytes moved."""
    initiator: str
    """The peer that began it, by its primary NID."""
    pid: int
    """The process there."""
    match_bits: int
    """Its match bits."""
    hdr_data: int
    """64 bits of the initiator of a PUT."""


class InboxState(NamedTuple):
    """Where the buffers of an inbox are."""

    buffers: int
    """Buffers of the ring."""
    posted: int
    """Of these, posted: messages can land."""
    unread: int
    """Messages that have arrived and were not taken."""
    exhausted: int
    """How often the last posted buffer became full."""


class Node:
    """A node on a thread of its own. It ends with `stop`, or with its `with` block.

    `nids` are its interfaces, such as `10.0.0.1@tcp`. `port` is the one that it and its peers listen
    on: 988 among kernel nodes, which needs a right. `tunables` have the names, units and bounds that
    `lnetctl set` knows.
    """

    def __init__(
        self,
        *nids: str,
        port: int = 988,
        profile: str = "default",
        tunables: Optional[Mapping[str, int]] = None,
        seed: Optional[int] = None,
        spin: float = 0.0,
    ) -> None:
        given = list((tunables or {}).items())
        self._core = _ulnet.Node(list(nids), port, profile, given, seed, spin)
        self._lock = threading.Lock()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._loops: set[asyncio.AbstractEventLoop] = set()

    def put(
        self,
        target: str,
        portal: int,
        match_bits: int,
        data: Any,
        *,
        ack: bool = False,
        hdr_data: int = 0,
        offset: int = 0,
        source: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> int:
        """Sends bytes to a portal of `target`; with `ack` waits until the target has them.

        Returns how many bytes were sent, or with `ack` taken. `bytes` are not copied.
        """
        octets = _octets(data)
        return self._core.put(
            target, portal, match_bits, octets, ack, hdr_data, offset, source, timeout, True
        )

    async def put_async(
        self,
        target: str,
        portal: int,
        match_bits: int,
        data: Any,
        *,
        ack: bool = False,
        hdr_data: int = 0,
        offset: int = 0,
        source: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> int:
        """`put` for asyncio. Cancelled with its task."""
        octets = _octets(data)
        sent: int = await self._ended(
            lambda: self._core.put(
                target, portal, match_bits, octets, ack, hdr_data, offset, source, timeout, False
            )
        )
        return sent

    def get(
        self,
        target: str,
        portal: int,
        match_bits: int,
        length: int,
        *,
        offset: int = 0,
        source: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> bytes:
        """Fetches at most `length` bytes from a portal of `target`."""
        fetched: bytes = self._core.get(
            target, portal, match_bits, length, offset, source, timeout, True
        )
        return fetched

    async def get_async(
        self,
        target: str,
        portal: int,
        match_bits: int,
        length: int,
        *,
        offset: int = 0,
        source: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> bytes:
        """`get` for asyncio. Cancelled with its task."""
        fetched: bytes = await self._ended(
            lambda: self._core.get(
                target, portal, match_bits, length, offset, source, timeout, False
            )
        )
        return fetched

    def ping(self, target: str, *, timeout: float = 5.0, source: Optional[str] = None) -> Peer:
        """Asks a node for its interfaces."""
        return Peer(*self._core.ping(target, timeout, source, True))

    async def ping_async(
        self, target: str, *, timeout: float = 5.0, source: Optional[str] = None
    ) -> Peer:
        """`ping` for asyncio."""
        ping = lambda: self._core.ping(target, timeout, source, False)
        return Peer(*await self._ended(ping))

    def discover(self, target: str, *, force: bool = False) -> Peer:
        """Discovers the peer that has a NID: all its NIDs are used from then on."""
        return Peer(*self._core.discover(target, force, True))

    async def discover_async(self, target: str, *, force: bool = False) -> Peer:
        """`discover` for asyncio."""
        return Peer(*await self._ended(lambda: self._core.discover(target, force, False)))

    def inbox(
        self,
        portal: int,
        match_bits: int,
        *,
        ignore_bits: int = 0,
        from_nid: Optional[str] = None,
        buffers: int = 4,
        buffer_bytes: int = 1 << 20,
        messages_per_buffer: int = 16384,
        wait: bool = True,
    ) -> Inbox:
        """Opens an inbox: buffers that receive without end.

        Messages wait while no buffer is free, and their senders with them; without `wait` they are
        dropped.
        """
        core = _ulnet.Inbox(
            self._core,
            portal,
            match_bits,
            ignore_bits,
            from_nid,
            buffers,
            buffer_bytes,
            messages_per_buffer,
            wait,
        )
        return Inbox(core)

    def attach(
        self,
        portal: int,
        match_bits: int,
        data: Any,
        *,
        put: bool = False,
        get: bool = True,
        manage_remote: Optional[bool] = None,
        truncate: bool = True,
        threshold: Optional[int] = None,
        ignore_bits: int = 0,
        from_nid: Optional[str] = None,
    ) -> Attachment:
        """Attaches a copy of `data` to a portal: bytes that peers GET, or room for their PUTs.

        With `manage_remote` (as long as GETs alone may match, unless given) initiators choose the
        offset. To receive without end, use an inbox.
        """
        remote = (get and not put) if manage_remote is None else manage_remote
        core = _ulnet.Attachment(
            self._core,
            portal,
            match_bits,
            ignore_bits,
            from_nid,
            _octets(data),
            put,
            get,
            remote,
            truncate,
            threshold,
        )
        return Attachment(core)

    @property
    def nids(self) -> list[str]:
        """Its own NIDs."""
        return self._core.nids()

    def add_ni(self, nid: str) -> None:
        """Adds an interface."""
        self._core.add_ni(nid)

    def del_ni(self, nid: str) -> None:
        """Removes an interface."""
        self._core.del_ni(nid)

    def add_peer(self, primary: str, *nids: str) -> None:
        """Adds a peer. Peers need not be added: they are discovered when they are first sent to."""
        self._core.add_peer(primary, list(nids))

    def add_route(
        self, net: str, gateway: str, *, hops: Optional[int] = None, priority: int = 0
    ) -> None:
        """Adds a route to a network by a gateway on a local network."""
        self._core.add_route(net, gateway, hops, priority)

    def set(self, name: str, value: int) -> None:
        """Sets a tunable."""
        self._core.set(name, value)

    def value(self, name: str) -> int:
        """The value of a tunable."""
        return self._core.value(name)

    def stop(self, grace: float = 1.0) -> None:
        """Stops it: operations may finish within `grace` seconds, then they fail."""
        self._core.stop(grace)

    @property
    def stopped(self) -> bool:
        """Whether it has stopped."""
        return self._core.is_stopped()

    def __enter__(self) -> Node:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.stop()

    async def _ended(self, begin: Callable[[], int]) -> Any:
        """Begins an operation and awaits its end."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            # Its end is looked for under the lock as well, so it is known here before.
            number = begin()
            self._waiting[number] = future
            if loop not in self._loops:
                loop.add_reader(self._core.fileno(), self._take_ends)
                self._loops.add(loop)
        try:
            return await future
        finally:
            with self._lock:
                unfinished = self._waiting.pop(number, None) is not None
                if loop in self._loops and not self._has_waiting(loop):
                    loop.remove_reader(self._core.fileno())
                    self._loops.discard(loop)
            if unfinished:
                self._core.cancel(number)

    def _has_waiting(self, loop: asyncio.AbstractEventLoop) -> bool:
        return any(future.get_loop() is loop for future in self._waiting.values())

    def _take_ends(self) -> None:
        """Takes what has ended to its waiters, of whatever loop they are."""
        with self._lock:
            while True:
                end = self._core.next_end()
                if end is None:
                    return
                number, result, error = end
                future = self._waiting.pop(number, None)
                if future is not None:
                    try:
                        future.get_loop().call_soon_threadsafe(_settle, future, result, error)
                    except RuntimeError:
                        # Its loop has been closed: it has no waiter any more.
                        pass


class _Receiving:
    """What inboxes and attachments have in common: something to take, one by one."""

    _core: Any

    def __init__(self, core: Any) -> None:
        self._core = core
        self._turn: Optional[asyncio.Lock] = None

    def _take(self, timeout: Optional[float]) -> Any:
        ended, fields = self._core.take(timeout)
        if ended:
            raise Closed("the end: the node has stopped, or it is closed or used up")
        return fields


class Inbox(_Receiving):
    """Buffers that receive without end, from `Node.inbox`.

    Iterating, also with `async for`, ends when the inbox is closed or the node has stopped.
    """

    _core: _ulnet.Inbox

    def recv(self, timeout: Optional[float] = None) -> Optional[Message]:
        """The next message; `None` after so many seconds without one. Raises `Closed` at the end."""
        fields = self._take(timeout)
        return None if fields is None else Message(*fields)

    async def recv_async(self) -> Message:
        """The next message, for asyncio. Raises `Closed` at the end."""
        if self._turn is None:
            self._turn = asyncio.Lock()
        # A descriptor has one reader in a loop: tasks take turns.
        async with self._turn:
            while True:
                message = self.recv(0)
                if message is not None:
                    return message
                await _readable(self.fileno())

    def fileno(self) -> int:
        """A descriptor that polls readable while there may be messages, until `recv(0)` says `None`.

        For `select` and event loops. It is neither to be read from nor to be closed.
        """
        return self._core.fileno()

    @property
    def state(self) -> Optional[InboxState]:
        """How far the program is behind its senders; `None` when it is closed."""
        state = self._core.state()
        return None if state is None else InboxState(*state)

    def close(self) -> None:
        """Ends it. Messages that were not taken are gone."""
        self._core.close()

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        try:
            message = self.recv()
        except Closed:
            raise StopIteration from None
        # Without a limit there is no other end.
        assert message is not None
        return message

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.recv_async()
        except Closed:
            raise StopAsyncIteration from None

    def __enter__(self) -> Inbox:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()


class Attachment(_Receiving):
    """A buffer at a portal, from `Node.attach`."""

    _core: _ulnet.Attachment

    def recv(self, timeout: Optional[float] = None) -> Optional[Event]:
        """The next event; `None` after so many seconds without one. Raises `Closed` at the end."""
        fields = self._take(timeout)
        return None if fields is None else Event(*fields)

    def read(self, offset: int, length: int) -> bytes:
        """A copy of bytes, as they are between two messages."""
        return self._core.read(offset, length)

    def write(self, offset: int, data: Any) -> None:
        """Changes bytes that GETs will read."""
        self._core.write(offset, _octets(data))

    def detach(self) -> None:
        """Ends it."""
        self._core.detach()

    def __enter__(self) -> Attachment:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.detach()


def _octets(data: Any) -> bytes:
    """Bytes of anything that has a buffer."""
    if type(data) is bytes:
        return data
    return memoryview(data).tobytes()


def _settle(future: asyncio.Future[Any], result: Any, error: Optional[BaseException]) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


async def _readable(fd: int) -> None:
    """Waits until a descriptor polls readable."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _settle, ready, None, None)
    try:
        await ready
    finally:
        loop.remove_reader(fd)
