"""Tests of the package: `python3 -m unittest discover -t . tests`, with `ULNET` naming the program for those of
`ulnet.admin`."""

from __future__ import annotations

import os
import signal
import socket
import threading
import unittest
from typing import Any, Callable


def free_port() -> int:
    """A port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.2", 0))
        return probe.getsockname()[1]


def assert_interrupted(test: unittest.TestCase, call: Callable[[], Any]) -> None:
    """Ctrl-C ends a call that would wait for long."""
    # A shell's background jobs begin with the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with test.assertRaises(KeyboardInterrupt):
            call()
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
