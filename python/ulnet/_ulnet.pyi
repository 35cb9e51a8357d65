"""The native half. Programs use `ulnet` and `ulnet.admin`."""

from pathlib import Path
from typing import Any, Optional

__version__: str

class Error(OSError):
    """A node, the network or a daemon failed.

    `errno` is the number that kernel LNet would return, `strerror` the text.
    """

    stage: Optional[str]
    """How far a PUT or GET came: `no-path`, `refused`, `transmission`, `answer`, `no-answer`."""

class Node:
    def __init__(
        self,
        nids: list[str],
        port: int,
        profile: str,
        tunables: list[tuple[str, int]],
        seed: Optional[int],
        spin: float,
    ) -> None: ...
    def put(
        self,
        target: str,
        portal: int,
        match_bits: int,
        data: bytes,
        ack: bool,
        hdr_data: int,
        offset: int,
        source: Optional[str],
        timeout: Optional[float],
        block: bool,
    ) -> int: ...
    def get(
        self,
        target: str,
        portal: int,
        match_bits: int,
        length: int,
        offset: int,
        source: Optional[str],
        timeout: Optional[float],
        block: bool,
    ) -> Any: ...
    def ping(self, target: str, timeout: float, source: Optional[str], block: bool) -> Any: ...
    def discover(self, target: str, force: bool, block: bool) -> Any: ...
    def fileno(self) -> int: ...
    def next_end(self) -> Optional[tuple[int, Any, Optional[Exception]]]: ...
    def cancel(self, number: int) -> None: ...
    def nids(self) -> list[str]: ...
    def add_ni(self, name: str) -> None: ...
    def del_ni(self, name: str) -> None: ...
    def add_peer(self, primary: str, nids: list[str]) -> None: ...
    def add_route(self, net: str, gateway: str, hops: Optional[int], priority: int) -> None: ...
    def set(self, name: str, to: int) -> None: ...
    def value(self, name: str) -> int: ...
    def stop(self, grace: float) -> None: ...
    def is_stopped(self) -> bool: ...

class Inbox:
    def __init__(
        self,
        node: Node,
        portal: int,
        match_bits: int,
        ignore_bits: int,
        from_: Optional[str],
        buffers: int,
        buffer_bytes: int,
        messages_per_buffer: int,
        wait: bool,
    ) -> None: ...
    def take(
        self, timeout: Optional[float]
    ) -> tuple[bool, Optional[tuple[bytes, str, int, int, int, int]]]: ...
    def fileno(self) -> int: ...
    def state(self) -> Optional[tuple[int, int, int, int]]: ...
    def close(self) -> None: ...

class Attachment:
    def __init__(
        self,
        node: Node,
        portal: int,
        match_bits: int,
        ignore_bits: int,
        from_: Optional[str],
        data: bytes,
        put: bool,
        get: bool,
        manage_remote: bool,
        truncate: bool,
        threshold: Optional[int],
    ) -> None: ...
    def take(
        self, timeout: Optional[float]
    ) -> tuple[bool, Optional[tuple[str, int, int, str, int, int, int]]]: ...
    def read(self, offset: int, length: int) -> bytes: ...
    def write(self, offset: int, data: bytes) -> None: ...
    def detach(self) -> None: ...

class Control:
    def __init__(self, socket: Optional[str]) -> None: ...
    @property
    def socket(self) -> Path: ...
    def request(self, request: str, timeout: float) -> str: ...
    def command(self, words: list[str]) -> tuple[int, str, str]: ...
