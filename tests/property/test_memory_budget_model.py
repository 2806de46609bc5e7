"""The memory budget against a list: the same facts are remembered, and never more bytes than the bound."""

from __future__ import annotations

import sys

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bucketlake.storage import FileCache, FileStat, MemoryBudget, MemoryStore
from bucketlake.storage.memory_budget import ENTRY_BYTES

STORE = MemoryStore("model")
KINDS = ("footers", "blocks", "shards")
BOUNDS = st.integers(0, 20_000)
files = st.sampled_from(
    [FileStat(name, 1, 1, version) for name in ("a", "b", "long" * 50) for version in "12"]
)


class BudgetMachine(RuleBasedStateMachine):
    @initialize(bound=BOUNDS)
    def begin(self, bound: int) -> None:
        self.bound = bound
        self.budget = MemoryBudget(bound)
        self.caches: dict[str, FileCache[int]] = {kind: FileCache(kind, self.budget) for kind in KINDS}
        self.model: list[tuple[str, FileStat, int, int]] = []
        """Kind, file, fact and size; those used last stand last."""
        self.asked = 0

    @rule(kind=st.sampled_from(KINDS), file=files, fact=st.integers(), size_bytes=st.integers(0, 12_000))
    def put(self, kind: str, file: FileStat, fact: int, size_bytes: int) -> None:
        self.caches[kind].put(STORE, file, fact, size_bytes)
        size_bytes += ENTRY_BYTES + sum(map(sys.getsizeof, (STORE.uri, file.path, file.version)))
        is_there = any(entry[:2] == (kind, file) for entry in self.model)
        if not is_there and size_bytes <= self.bound // 2:
            self.model.append((kind, file, fact, size_bytes))
            self.forget()

    @rule(kind=st.sampled_from(KINDS), file=files)
    def get(self, kind: str, file: FileStat) -> None:
        self.asked += 1
        entry = next((entry for entry in self.model if entry[:2] == (kind, file)), None)
        assert self.caches[kind].get(STORE, file) == (None if entry is None else entry[2])
        if entry is not None:
            self.model.remove(entry)
            self.model.append(entry)

    @rule(bound=BOUNDS)
    def resize(self, bound: int) -> None:
        self.bound = bound
        self.budget.resize(bound)
        self.forget()

    def forget(self) -> None:
        while sum(entry[3] for entry in self.model) > self.bound:
            del self.model[0]

    @invariant()
    def what_is_in_use_is_what_the_model_holds(self) -> None:
        found = self.budget.in_use()
        assert found.size_bytes <= found.budget_bytes == self.bound
        for kind in found.kinds:
            sizes = [entry[3] for entry in self.model if entry[0] == kind.kind]
            assert (kind.entries, kind.size_bytes) == (len(sizes), sum(sizes))
        assert sum(kind.hits + kind.misses for kind in found.kinds) == self.asked


TestBudget = pytest.mark.shows("X10")(BudgetMachine.TestCase)
