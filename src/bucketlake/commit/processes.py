"""Which process this is, and whether another one is provably dead.

    boot id          /proc/sys/kernel/random/boot_id    this host, since it was started
    pid namespace    inode of /proc/self/ns/pid         containers of one host count their processes separately
    pid              what `kill` asks for
    start time       /proc/<pid>/stat, field 22         pids are used again, but not at the same tick

A process is provably dead if the host has not been restarted, the namespace is ours, and no process of that pid has
that start time. An inode of a namespace is used again only when all processes in it are gone. Of other hosts, other
namespaces and other systems than Linux nothing can be proved.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_START_TIME = 22 - 3
"""Its place in `stat` behind the name of the program, which may hold blanks and brackets; 3 is the field after it."""


@dataclass(frozen=True, slots=True)
class Process:
    boot_id: str
    pid_namespace: int
    pid: int
    start_time: int
    """In clock ticks since the host was started."""


def this_process() -> Process | None:
    """Name this process; None where that would prove nothing."""
    pid = os.getpid()
    try:
        if str((_PROC / "self").readlink()) != str(pid):
            return None  # a /proc of another namespace, which counts otherwise
        boot_id = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = (_PROC / "self/ns/pid").stat().st_ino
    except OSError:
        return None
    start_time = _start_time(pid)
    return Process(boot_id, namespace, pid, start_time) if boot_id and start_time is not None else None


def is_provably_dead(process: Process) -> bool:
    """Tell whether a process has ended; False also if that cannot be known from here."""
    here = this_process()
    if here is None or (here.boot_id, here.pid_namespace) != (process.boot_id, process.pid_namespace):
        return False
    if not _exists(process.pid):
        return True
    start_time = _start_time(process.pid)
    return start_time is not None and start_time != process.start_time


def _exists(pid: int) -> bool:
    """Ask the kernel, not /proc, which may be told to hide the processes of other users."""
    if pid <= 0:
        return True  # `kill` means groups by these: nothing is proved
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _start_time(pid: int) -> int | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
        return int(stat.rpartition(")")[2].split()[_START_TIME])
    except (OSError, ValueError, IndexError):
        return None
