"""The control socket of a daemon (`lnetd`): what `lnetctl --json` shows, as Python values.

    import ulnet.admin

    daemon = ulnet.admin.Client()
    for net in daemon.nets(verbose=2):
        print(net["net type"], [ni["nid"] for ni in net["local NI(s)"]])

No program is run: requests go over the socket in its own protocol. Names of keys are those of
`lnetctl --json`. Calls leave the interpreter to other threads, and Ctrl-C ends them; a `Client` may be
used by several threads. In asyncio, use `asyncio.to_thread`.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, NamedTuple, Optional, Union

from . import Error, Peer, _ulnet

__all__ = ["Client", "Contact"]

_ERRNO = re.compile(r"errno: (-?\d+)")
_DESCR = re.compile(r'descr: (?:! )?"?(.*?)"?\s*$', re.MULTILINE)
_REASON = re.compile(r"^# (.*)$", re.MULTILINE)


class Contact(NamedTuple):
    """What became of one NID that was pinged or discovered."""

    nid: str
    """The NID that was asked for."""
    peer: Optional[Peer]
    """The peer that answered."""
    error: Optional[Error]
    """Or why none did."""


class Client:
    """A connection to a daemon, made with the first call and again after one that failed.

    Without `socket` it is the usual one: `ULNET_SOCKET`, else `/run/ulnet/lnetd.sock`.
    """

    def __init__(self, socket: Union[str, os.PathLike[str], None] = None) -> None:
        self._core = _ulnet.Control(None if socket is None else os.fspath(socket))

    @property
    def socket(self) -> str:
        """The path of the socket."""
        return os.fspath(self._core.socket)

    def show(self, *words: Any) -> Any:
        """Runs a command of `lnetctl`, such as `show("net", "show", "-v", 2)`, in this process.

        Returns what `lnetctl --json` prints, as a value; the text of commands that have no JSON; `None`
        where nothing is printed. Raises `Error`.
        """
        given = [str(word) for word in words]
        if given[:1] == ["top"]:
            raise ValueError("top: shows a picture on a terminal, has no value")
        code, out, complaint = self._core.command(given)
        value = _parsed(out)
        if code != 0:
            raise _failure(given, code, value, complaint)
        return value

    def request(self, request: Any, timeout: float = 30.0) -> Any:
        """A request of the control protocol, such as `"status"` or `{"peer-show": {...}}`.

        Returns the reply as a value with one key, its kind. Names are those of the protocol
        (`host/lnet-admin`); they may change with its version.
        """
        return json.loads(self._core.request(json.dumps(request), timeout))

    def status(self) -> dict[str, Any]:
        """Version, process, profile; whether LNet is configured."""
        status: dict[str, Any] = self.request("status")["status"]
        return status

    def nets(self, net: Optional[str] = None, verbose: int = 0) -> list[dict[str, Any]]:
        """The local networks with their interfaces; from `verbose=2` on with health and counters."""
        words: list[Any] = ["net", "show", "-v", verbose]
        return self._list("net", words + ([] if net is None else ["--net", net]))

    def peers(self, nid: Optional[str] = None, verbose: int = 0) -> list[dict[str, Any]]:
        """The peers, or the one that has a NID."""
        words: list[Any] = ["peer", "show", "-v", verbose]
        return self._list("peer", words + ([] if nid is None else ["--nid", nid]))

    def routes(self, verbose: int = 0) -> list[dict[str, Any]]:
        """The routes."""
        return self._list("route", ["route", "show", "-v", verbose])

    def routing(self) -> Any:
        """Where forwarding stands, with its buffers; nothing while it is off."""
        return self.show("routing", "show")

    def tunables(self) -> dict[str, Any]:
        """The values that `lnetctl global show` shows."""
        values: dict[str, Any] = self.show("global", "show")["global"]
        return values

    def stats(self) -> dict[str, Any]:
        """The counters of the node."""
        counters: dict[str, Any] = self.show("stats", "show")["statistics"]
        return counters

    def policies(self) -> list[dict[str, Any]]:
        """The rules of selection."""
        return self._list("udsp", ["udsp", "show"])

    def export(self, backup: bool = False) -> Any:
        """The whole configuration and state; with `backup` what brings this node back."""
        return self.show("export", *(["--backup"] if backup else []))

    def set(self, name: str, value: Union[int, str]) -> None:
        """Sets a tunable."""
        self.show("set", name, value)

    def ping(
        self, *nids: str, timeout: Optional[float] = None, source: Optional[str] = None
    ) -> list[Contact]:
        """Pings nodes from the daemon's; one answer for each, failures included."""
        ping: dict[str, Any] = {"nids": list(nids)}
        if timeout is not None:
            ping["timeout_ms"] = int(timeout * 1000)
        if source is not None:
            ping["source"] = source
        # The daemon's own limit of a ping is 180 s.
        limit = 30 + (180 if timeout is None else timeout)
        return _contacts(self.request({"ping": ping}, limit))

    def discover(self, *nids: str, force: bool = False) -> list[Contact]:
        """Lets the daemon discover peers; one answer for each, failures included."""
        return _contacts(self.request({"discover": {"nids": list(nids), "force": force}}, 210))

    def _list(self, key: str, words: list[Any]) -> list[dict[str, Any]]:
        shown = self.show(*words)
        return shown.get(key, []) if isinstance(shown, dict) else []


def _parsed(out: str) -> Any:
    if not out.strip():
        return None
    try:
        return json.loads(out)
    except json.JSONDecodeError:
        return out


def _failure(words: list[str], code: int, value: Any, complaint: str) -> Error:
    """What a command says of its failure: a document with number, text and reason, or lines."""
    said = complaint.strip()
    number, text = _ERRNO.search(said), _DESCR.search(said)
    if number and text:
        parts = [text.group(1), *_REASON.findall(said)]
        return Error(abs(int(number.group(1))) or abs(code), ": ".join(parts))
    for document in _documents(value):
        return Error(abs(document["errno"]), str(document.get("descr", "")))
    if not said and isinstance(value, str):
        said = value.strip()
    # Hints come as comments, for scripts that read the first line.
    said = re.sub(r"^# ", "", said, flags=re.MULTILINE)
    return Error(abs(code), said or f"lnetctl {' '.join(words)}: failed without a word")


def _documents(value: Any) -> list[dict[str, Any]]:
    """The parts of a value that have an error number."""
    if isinstance(value, list):
        return [found for item in value for found in _documents(item)]
    if isinstance(value, dict):
        here = [value] if value.get("errno") else []
        return here + [found for item in value.values() for found in _documents(item)]
    return []


def _contacts(reply: Any) -> list[Contact]:
    return [_contact(item) for item in reply["contacted"]]


def _contact(item: Any) -> Contact:
    found, refusal = item["outcome"].get("Ok"), item["outcome"].get("Err")
    if found is not None:
        peer = Peer(found["primary"], found["multi_rail"], found["nids"])
        return Contact(item["nid"], peer, None)
    said = refusal.get("detail") or refusal["text"]
    return Contact(item["nid"], None, Error(refusal["errno"], said))
