#!/usr/bin/env python3
"""Makes top.svg: `lnetctl top` on a node that tests two others, as tmux shows it.

    docs/images/make-top.py target/release/ulnet        needs tmux; no root
"""

import html
import os
import re
import subprocess
import sys
import tempfile
import time

PROGRAM = os.path.abspath(sys.argv[1])
HERE = os.path.dirname(os.path.abspath(__file__))
WIDTH, HEIGHT = 116, 26
PORT = 7831
# Colours of the sixteen of a terminal that are used.
COLOURS = {30: "#3b4252", 31: "#d9626d", 32: "#8fbf7f", 33: "#e5c07b", 34: "#6c9fd2", 35: "#b48ead",
           36: "#7fc1ca", 37: "#d8dee9", 90: "#7b8394"}


def lnetctl(socket, *words):
    subprocess.run([PROGRAM, "lnetctl", "--socket", socket, *words], check=True)


def node(dir, n):
    socket = f"{dir}/{n}.sock"
    process = subprocess.Popen([PROGRAM, "lnetd", "--port", str(PORT), "--socket", socket, "--selftest"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not os.path.exists(socket):
        time.sleep(0.05)
    lnetctl(socket, "lnet", "configure")
    for rail in (0, 1):
        lnetctl(socket, "net", "add", "--nid", f"127.83.{rail}.{n}@tcp{rail or str()}")
    return process, socket


def screen(socket):
    name = "ulnet-top"
    subprocess.run(["tmux", "kill-session", "-t", name], stderr=subprocess.DEVNULL)
    subprocess.run(["tmux", "new-session", "-d", "-s", name, "-x", str(WIDTH), "-y", str(HEIGHT),
                    f"{PROGRAM} lnetctl --socket {socket} top"], check=True)
    time.sleep(6)
    text = subprocess.run(["tmux", "capture-pane", "-e", "-p", "-t", name], check=True,
                          capture_output=True, text=True).stdout
    subprocess.run(["tmux", "kill-session", "-t", name])
    return text


def spans(line):
    colour, bold, inverse, at = "#d8dee9", False, False, 0
    for m in re.finditer(r"\x1b\[([0-9;]*)m|([^\x1b]+)", line):
        if m.group(2) is not None:
            yield at, m.group(2), colour, bold, inverse
            at += len(m.group(2))
            continue
        for code in [int(c or 0) for c in m.group(1).split(";")]:
            if code == 0:
                colour, bold, inverse = "#d8dee9", False, False
            elif code == 1:
                bold = True
            elif code == 7:
                inverse = True
            elif code == 39:
                colour = "#d8dee9"
            elif code in COLOURS:
                colour = COLOURS[code]


def svg(text):
    w, h = 8.4, 18
    lines = text.rstrip("\n").split("\n")
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH * w + 24:.0f}" height="{len(lines) * h + 24}" '
           'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14">',
           '<rect width="100%" height="100%" rx="8" fill="#20242e"/>']
    for row, line in enumerate(lines):
        y = 12 + row * h
        for at, words, colour, bold, inverse in spans(line):
            x, length = 12 + at * w, len(words) * w
            if inverse:
                out.append(f'<rect x="{x:.1f}" y="{y}" width="{length:.1f}" height="{h}" fill="{colour}"/>')
                colour = "#20242e"
            if words.strip():
                weight = ' font-weight="bold"' if bold else ""
                out.append(f'<text x="{x:.1f}" y="{y + 13}" fill="{colour}"{weight} xml:space="preserve" '
                           f'textLength="{length:.1f}">{html.escape(words)}</text>')
    return "\n".join([*out, "</svg>", ""])


def main():
    with tempfile.TemporaryDirectory() as dir:
        nodes, load = [], []
        try:
            for n in (1, 2, 3):
                nodes.append(node(dir, n))
            here = nodes[0][1]
            others = [f"127.83.0.{n}@tcp" for n in (2, 3)]
            for other in others:
                lnetctl(here, "discover", other)
            load.append(subprocess.Popen(
                [PROGRAM, "lst", "run", "--quick", *others, "--size", "256K", "--seconds", "16"],
                env=dict(os.environ, ULNET_SOCKET=here), stdout=subprocess.DEVNULL))
            time.sleep(3)
            text = screen(here)
        finally:
            for process in [*load, *(process for process, _ in nodes)]:
                process.kill()
    with open(f"{HERE}/top.svg", "w", encoding="utf-8") as file:
        file.write(svg(text))


main()
