"""The control socket: what `ulnet.admin` says is what `lnetctl --json` prints."""

import contextlib
import errno
import io
import json
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import ulnet
import ulnet.admin

from . import assert_interrupted, free_port

PROGRAM = os.environ.get("ULNET", "")
EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"
HERE, PEER, ABSENT = "127.0.0.6@tcp", "127.0.0.7@tcp", "127.0.0.99@tcp"


@unittest.skipUnless(PROGRAM, "ULNET does not name the program")
class Admin(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.socket = os.path.join(directory.name, "s")
        port = free_port()
        self.daemon = subprocess.Popen(
            [PROGRAM, "daemon", "--quiet", "--socket", self.socket, "--port", str(port)]
        )
        self.addCleanup(self.daemon.wait)
        self.addCleanup(self.daemon.terminate)
        # Waits for the socket to appear.
        self.client = ulnet.admin.Client(self.socket)
        self.client.show("lnet", "configure")
        self.client.show("net", "add", "--nid", HERE)
        self.node = ulnet.Node(PEER, port=port)
        self.addCleanup(self.node.stop, 0)

    def printed(self, *words: str):
        """What the program prints."""
        command = [PROGRAM, "ctl", "--socket", self.socket, "--json", *words]
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)

    def test_shows_what_the_program_prints(self) -> None:
        self.client.discover(PEER)
        for words in (
            ("net", "show"),
            ("peer", "show"),
            ("route", "show"),
            ("routing", "show"),
            ("global", "show"),
            ("udsp", "show"),
            ("export", "--backup"),
            ("debug", "recovery", "-l"),
            ("fault", "drop", "show"),
        ):
            with self.subTest(words):
                self.assertEqual(self.client.show(*words), self.printed(*words))
        self.assertEqual(self.client.tunables(), self.printed("global", "show")["global"])
        self.assertEqual(self.client.nets(), self.printed("net", "show")["net"])
        self.assertEqual(self.client.stats().keys(), self.printed("stats", "show")["statistics"].keys())
        self.assertEqual(self.client.routes(), [])
        self.assertEqual(self.client.policies(), [])

    def test_state_and_changes(self) -> None:
        status = self.client.status()
        self.assertEqual((status["pid"], status["configured"]), (self.daemon.pid, True))
        health = self.client.nets("tcp", verbose=2)[0]["local NI(s)"][0]["health stats"]
        self.assertEqual(health["health value"], 1000)
        self.client.set("retry_count", 4)
        self.assertEqual(self.client.tunables()["retry_count"], 4)
        self.assertIsNone(self.client.show("route", "add", "--net", "tcp7", "--gateway", PEER))
        self.assertEqual([route["net"] for route in self.client.routes()], ["tcp7"])

    def test_contacts_have_a_peer_or_an_error(self) -> None:
        answers, silent = self.client.ping(PEER, ABSENT, timeout=3)
        self.assertEqual((answers.nid, answers.peer.nids, answers.error), (PEER, [PEER], None))
        self.assertEqual((silent.nid, silent.peer), (ABSENT, None))
        self.assertGreater(silent.error.errno, 0)
        (found,) = self.client.discover(PEER)
        self.assertTrue(found.peer.multi_rail)
        self.assertEqual(self.client.peers(PEER)[0]["primary nid"], PEER)

    def test_refusals_have_number_and_text(self) -> None:
        for words, number, text in (
            (("set", "health_sensitivity", 5000), errno.ENODATA, "sensitivity 5000: expected 0 to 1000"),
            (("net", "del", "--net", "tcp9"), None, "cannot del network: net tcp9: not configured"),
            (("nett", "show"), errno.EPERM, "\ndid you mean 'net'?"),
            (("net", "add", "--net", "tcp", "--nid", HERE), errno.EINVAL, "--net is invalid"),
            (("debug", "recovery"), errno.EINVAL, "see 'lnetctl help debug recovery'"),
            (("ping", ABSENT, "--timeout", "1000"), None, ABSENT),
        ):
            with self.subTest(words), self.assertRaises(ulnet.Error) as raised:
                self.client.show(*words)
            self.assertIn(text, raised.exception.strerror)
            self.assertGreater(raised.exception.errno, 0)
            if number is not None:
                self.assertEqual(raised.exception.errno, number)
        with self.assertRaises(ValueError):
            self.client.request({"no-such-request": 1})
        with self.assertRaises(ValueError):
            self.client.show("top")

    def test_a_daemon_that_is_gone_is_named_and_one_that_came_back_is_found(self) -> None:
        self.client.status()
        self.daemon.terminate()
        self.daemon.wait()
        os.path.exists(self.socket) and os.unlink(self.socket)
        for _ in range(2):
            with self.assertRaisesRegex(ulnet.Error, self.socket):
                self.client.status()
        port = str(free_port())
        again = subprocess.Popen([PROGRAM, "daemon", "--quiet", "--socket", self.socket, "--port", port])
        self.addCleanup(again.wait)
        self.addCleanup(again.terminate)
        self.assertEqual(self.client.status()["pid"], again.pid)

    def test_ctrl_c_ends_a_call_and_the_next_one_works(self) -> None:
        self.daemon.send_signal(signal.SIGSTOP)
        # A busy machine lets it answer once more before it stops.
        os.waitpid(self.daemon.pid, os.WUNTRACED)
        assert_interrupted(self, self.client.status)
        self.daemon.send_signal(signal.SIGCONT)
        self.assertEqual(self.client.status()["pid"], self.daemon.pid)

    def test_the_example_prints_health_and_answers(self) -> None:
        said = io.StringIO()
        with mock.patch.dict(os.environ, {"ULNET_SOCKET": self.socket}):
            with mock.patch.object(sys, "argv", ["health.py", PEER, ABSENT]):
                with contextlib.redirect_stdout(said):
                    runpy.run_path(str(EXAMPLES / "health.py"), run_name="__main__")
        lines = said.getvalue().splitlines()
        self.assertIn(f"{HERE} up health 1000", lines)
        self.assertIn(f"{PEER} answers", lines)
        self.assertTrue(any(line.startswith(f"{ABSENT} ") and "answers" not in line for line in lines))


if __name__ == "__main__":
    unittest.main()
