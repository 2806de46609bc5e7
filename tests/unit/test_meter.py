"""The benchmarks' meter counts the CPU time of a tree of processes, whatever becomes of them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from benchmarks.meter import SAMPLE_SECONDS, metered

PARENT = """
import os, signal, sys, time
def burn(seconds):
    while time.process_time() < seconds: pass
signal.signal(signal.SIGCHLD, getattr(signal, sys.argv[1]))
for line in sys.stdin:
    word = line.strip()
    if word == "fork":
        done, tell = os.pipe()
        child = os.fork()
        if child == 0:
            burn(1.0)
            os.write(tell, b"!")
            signal.pause()
        os.read(done, 1)
    if word == "kill":
        os.kill(child, signal.SIGKILL)
        if sys.argv[1] == "SIG_DFL":
            os.waitpid(child, 0)
    if word == "burn":
        burn(time.process_time() + 0.5)
    print(word, flush=True)
"""


@contextmanager
def parent(on_end: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, on_end], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def say(process: subprocess.Popen[str], *words: str) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    for word in words:
        print(word, file=process.stdin, flush=True)
        assert process.stdout.readline().strip() == word


@pytest.mark.parametrize("on_end", ["SIG_DFL", "SIG_IGN"])
def test_what_a_child_took_before_is_not_counted_when_it_ends(on_end: str) -> None:
    """Spark's daemon ignores the end of its workers, and the system forgets their time; it was subtracted once."""
    with parent(on_end) as process:
        say(process, "fork")
        cost = metered(process.pid, lambda: say(process, "kill", "burn")).cost
    assert 0.4 < cost.cpu_s < 0.9


@pytest.mark.parametrize("on_end", ["SIG_DFL", "SIG_IGN"])
def test_what_a_child_takes_counts_though_it_ends(on_end: str) -> None:
    with parent(on_end) as process:

        def child_burns() -> None:
            say(process, "fork")
            time.sleep(2 * SAMPLE_SECONDS)
            say(process, "kill")

        cost = metered(process.pid, child_burns).cost
    assert 0.9 < cost.cpu_s < 1.3
