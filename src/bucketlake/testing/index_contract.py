"""What every `PlacedIndex` must do. A new index subclasses `IndexContract` and gets the tests.

The one promise that matters is that pruning never loses a row: whatever `locate` says of a key, `file_groups`
must contain the file group that begins so, and whatever an index does not recognise makes it give everything
back.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod

import pyarrow as pa

from bucketlake.index import PlacedIndex, hash_pieces

KEYS = [
    *(f"key-{number}" for number in range(200)),
    "",
    "ü",
    "日本語",
    "😀",
    "a,b",
    "a:b",
    "a,b:c",
    "id:a,other:b",
    "id:__null__,other:b",
    "id:__empty__,other:b",
    "other:2014-10-22 13:50:42,id:x",
]


class IndexContract(ABC):
    """Tests that hold for every index. A subclass makes one, and says how its file groups are named."""

    @abstractmethod
    def index(self) -> PlacedIndex:
        """Return the index to test, with `id` among its hash fields if it has any."""

    @abstractmethod
    def partition(self) -> str:
        """Return a partition that the index knows."""

    @abstractmethod
    def file_ids(self) -> list[str]:
        """Return the file ids of all file groups the partition can have."""

    def test_locate_answers_once_for_every_key(self) -> None:
        located = self.index().locate(self.partition(), pa.array(KEYS))
        assert isinstance(located, pa.DictionaryArray)
        assert len(located) == len(KEYS)

    def test_locate_answers_the_same_every_time(self) -> None:
        first = self.index().locate(self.partition(), pa.array(KEYS)).to_pylist()
        assert self.index().locate(self.partition(), pa.array(KEYS)).to_pylist() == first

    def test_locate_says_of_a_column_what_slot_of_says_of_each_key(self) -> None:
        index = self.index()
        one_by_one = [index.slot_of(self.partition(), hash_pieces(key, index.hash_fields)) for key in KEYS]
        assert index.locate(self.partition(), pa.array(KEYS)).to_pylist() == one_by_one

    def test_locate_does_not_depend_on_the_order_or_the_chunks_of_keys(self) -> None:
        index = self.index()
        straight = index.locate(self.partition(), pa.array(KEYS)).to_pylist()
        backwards = index.locate(self.partition(), pa.array(KEYS[::-1])).to_pylist()
        chunked = index.locate(self.partition(), pa.chunked_array([KEYS[:7], [], KEYS[7:]], pa.string()))
        sliced = index.locate(self.partition(), pa.array(["x", *KEYS]).slice(1))
        assert backwards[::-1] == straight
        assert chunked.to_pylist() == straight
        assert sliced.to_pylist() == straight

    def test_a_null_key_is_nowhere(self) -> None:
        located = self.index().locate(self.partition(), pa.array(["a", None], pa.string()))
        assert located[1].as_py() is None

    def test_no_keys_are_located_as_no_places(self) -> None:
        assert len(self.index().locate(self.partition(), pa.array([], pa.string()))) == 0

    def test_pruning_keeps_the_file_group_of_every_key(self) -> None:
        index = self.index()
        located = index.locate(self.partition(), pa.array(KEYS)).to_pylist()
        for key, prefix in zip(KEYS, located, strict=True):
            kept = index.file_groups(self.partition(), self.file_ids(), [hash_pieces(key, index.hash_fields)])
            owners = {file_id for file_id in self.file_ids() if prefix and file_id.startswith(prefix)}
            assert owners <= kept <= frozenset(self.file_ids())

    def test_pruning_for_many_keys_keeps_what_pruning_for_each_keeps(self) -> None:
        index = self.index()
        pieces = [hash_pieces(key, index.hash_fields) for key in KEYS[:20]]
        each = [index.file_groups(self.partition(), self.file_ids(), [piece]) for piece in pieces]
        assert index.file_groups(self.partition(), self.file_ids(), pieces) == frozenset().union(*each)
        assert index.file_groups(self.partition(), self.file_ids(), pieces[::-1]) == frozenset().union(*each)

    def test_a_file_group_that_is_not_recognised_makes_pruning_keep_everything(self) -> None:
        index = self.index()
        for stranger in ("8f3d1c2e-159a-4953-a3c4-b777b847ae7f-0", "x", "", "99999999-0000-0000-0000-0-0"):
            file_ids = [*self.file_ids(), stranger]
            kept = index.file_groups(self.partition(), file_ids, [hash_pieces("key-1", index.hash_fields)])
            assert kept == frozenset(file_ids)

    def test_file_groups_come_only_from_those_that_are_visible(self) -> None:
        index = self.index()
        assert (
            index.file_groups(self.partition(), [], [hash_pieces("key-1", index.hash_fields)]) == frozenset()
        )

    def test_no_key_is_astray_where_it_is_located(self) -> None:
        index = self.index()
        keys = pa.array(KEYS)
        located = index.locate(self.partition(), keys)
        for file_id in self.file_ids():
            own = [
                key
                for key, prefix in zip(KEYS, located.to_pylist(), strict=True)
                if prefix is not None and file_id.startswith(prefix)
            ]
            assert index.stray(self.partition(), file_id, pa.array(own, pa.string())) is None

    def test_a_file_group_has_the_slot_that_its_keys_are_located_by(self) -> None:
        index = self.index()
        prefixes = set(index.locate(self.partition(), pa.array(KEYS)).to_pylist()) - {None}
        for file_id in self.file_ids():
            prefix = index.slot_of_file(self.partition(), file_id)
            owned = {one for one in prefixes if file_id.startswith(one)}
            assert owned <= {prefix}
        assert index.slot_of_file(self.partition(), "8f3d1c2e-159a-4953-a3c4-b777b847ae7f-0") is None

    def test_an_index_travels_to_executors(self) -> None:
        index = self.index()
        travelled: PlacedIndex = pickle.loads(pickle.dumps(index))
        assert travelled.hash_fields == index.hash_fields
        keys = pa.array(KEYS)
        assert (
            travelled.locate(self.partition(), keys).to_pylist()
            == index.locate(self.partition(), keys).to_pylist()
        )
