"""Options of `format("bucketlake")` are named as the arguments of Python are."""

from __future__ import annotations

import inspect

import pytest

from bucketlake import ConfigError, Table
from bucketlake.arguments import QueryArguments, WriteArguments
from bucketlake.datasource.options import READING, STREAMING, WRITING, SourceOptions

OF_OPEN = set(inspect.signature(Table.open).parameters) - {"gone", "storage_options"}
"""What says which table is meant. Options of its store are called `storage.<name>`."""

NOT_OF_THE_SOURCE = {
    "filters": "a frame's own: Spark's `where`",
    "progress": "Spark runs the tasks, and shows its own bar",
    "op": "`df.write` appends rows as they are; table.upsert takes a feed",
    "op_words": "as op",
}
OF_THE_SOURCE_ONLY = {"query": "Hudi's word beside read_optimized"}


@pytest.mark.shows("H4")
def test_options_are_the_arguments_of_python_by_the_same_names() -> None:
    read, written = set(QueryArguments.__annotations__), set(WriteArguments.__annotations__)
    assert READING - OF_OPEN - OF_THE_SOURCE_ONLY.keys() == read - NOT_OF_THE_SOURCE.keys()
    assert written - NOT_OF_THE_SOURCE.keys() == WRITING - OF_OPEN
    # What a stream has beside these says where it begins and how much a batch takes; Python has no such call.
    assert STREAMING - OF_OPEN - read == {"start", "max_instants", "max_rows", "op"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        ({"read_optimized": "true"}, True),
        ({"READ_OPTIMIZED": "True"}, True),
        ({"query": "read_optimized"}, True),
        ({"query": "read_optimized", "read_optimized": "true"}, True),
        ({"query": "snapshot", "read_optimized": "false"}, False),
    ],
)
def test_base_files_only_are_asked_for_as_in_python_or_in_hudis_words(
    options: dict[str, str], expected: bool
) -> None:
    assert SourceOptions.parse({"path": "t", **options}).query["read_optimized"] is expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query": "snapshot", "read_optimized": "true"}, "which is the opposite"),
        ({"query": "everything"}, "expected 'snapshot' or 'read_optimized'"),
        ({"read_optimized": "yes"}, "expected true or false"),
    ],
)
def test_options_that_contradict_each_other_or_make_no_sense_are_refused(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        SourceOptions.parse({"path": "t", **options})
