"""Functions that are compiled to machine code, once: what was compiled is kept for the processes to come.

numba keeps it beside the source, or else in the user's home, and refuses to compile where it can do neither: for a
user without a home whose packages somebody else has installed. For these it is kept in a temporary folder.

The first process that compiles says so on a terminal: it takes seconds, in which nothing else can be seen.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numba
from numba import int64, types
from numba.core import cgutils, event
from numba.extending import intrinsic

_numba: Any = numba  # a border around a library whose types stand in the way
_log = logging.getLogger("bucketlake")
_own: WeakSet[Callable[..., Any]] = WeakSet()
"""The functions that are given to `compiled`: other libraries compile theirs."""


class _FirstCompilation(event.Listener):
    """Says once, on a terminal, that a function of ours is compiled. What was kept is loaded without a word."""

    def __init__(self) -> None:
        self._has_said = False

    def on_start(self, event: Any) -> None:
        if self._has_said or event.data["dispatcher"].py_func not in _own:
            return
        self._has_said = True
        with suppress(Exception):  # no word is worth a failed call; some have no standard error
            if sys.stderr.isatty():
                sys.stderr.write("bucketlake: compiling for this machine, once; this takes a few seconds\n")
                sys.stderr.flush()

    def on_end(self, event: Any) -> None:
        """Nothing more is said."""


event.register("numba:compile", _FirstCompilation())  # type: ignore[no-untyped-call] # numba has no types there


def compiled(*signatures: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function: for these signatures now, without any when it is called."""

    def decorate(function: Callable[..., Any]) -> Any:
        _own.add(function)
        if _numba_has_a_place():
            with suppress(RuntimeError, OSError):  # a place that nothing can be put into
                return _numba.njit(*signatures, cache=True, nogil=True)(function)
        folder = _own_folder()
        # Other libraries' functions are none of our business: what is set here is set for one of ours.
        before, _numba.config.CACHE_DIR = _numba.config.CACHE_DIR, folder or ""
        try:
            return _numba.njit(*signatures, cache=folder is not None, nogil=True)(function)
        finally:
            _numba.config.CACHE_DIR = before

    return decorate


def keeps_compiled() -> str | None:
    """Return the folder in which compiled functions are kept; None if there is none."""
    if _numba.config.CACHE_DIR:
        return str(_numba.config.CACHE_DIR)
    if os.access(Path(__file__).parent, os.W_OK):
        return str(Path(__file__).parent / "__pycache__")
    return str(Path.home() / ".cache/numba") if _numba_has_a_place() else _own_folder()


def _numba_has_a_place() -> bool:
    """Say whether numba may look for one: to a user without a home, `~` is a folder where the process runs."""
    if os.access(Path(__file__).parent, os.W_OK):
        return True
    try:
        return Path.home().is_absolute()
    except RuntimeError:
        return False


@lru_cache(maxsize=1)
def _own_folder() -> str | None:
    """Make a temporary folder for what this user compiles; None if there is none, or somebody else may write to it."""
    why = "numba can write neither to the folder of the package nor to the user's home"
    try:
        folder = Path(tempfile.gettempdir()) / f"bucketlake-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if found.st_uid != os.getuid() or found.st_mode & 0o022 or not os.access(folder, os.W_OK):
            raise PermissionError(f"{folder} belongs to somebody else, or others may write to it")
    except OSError as error:
        _log.warning(
            "%s, and a temporary folder cannot be used (%s): every process compiles bucketlake anew, which takes "
            "seconds. Set NUMBA_CACHE_DIR to a folder that can be written to.",
            why,
            error,
        )
        return None
    _log.warning(
        "%s: what bucketlake compiles is kept in %s. Set NUMBA_CACHE_DIR to choose another folder.",
        why,
        folder,
    )
    return str(folder)


def _copy_bytes(  # type: ignore[no-untyped-def]  # numba infers
    _context, target, _target_at, source, _source_at, _length
):
    """Copy `length` bytes from array to array.

    A loop in Python's words becomes one that moves a byte at a time for the short texts of a table, at a
    fifth of the speed.
    """

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to = context.make_array(signature.args[0])(context, builder, arguments[0])
        origin = context.make_array(signature.args[2])(context, builder, arguments[2])
        cgutils.raw_memcpy(  # type: ignore[no-untyped-call]
            builder,
            builder.gep(to.data, [arguments[1]]),
            builder.gep(origin.data, [arguments[3]]),
            arguments[4],
            context.get_constant(types.intp, 1),
        )
        return context.get_dummy_value()

    return types.void(target, int64, source, int64, int64), build


copy_bytes: Any = intrinsic(_copy_bytes)
