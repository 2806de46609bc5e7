"""Python, SQL and the command line can do the same things, by the same names.

The three lists are derived: the public methods of `Table` and `table.buckets`, the procedures of CALL, the commands.
What one of them has and another has not, or calls otherwise, stands here with the reason.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import pytest
import typer.main

from bucketlake import arguments, create_table
from bucketlake.buckets import Buckets
from bucketlake.cli import app
from bucketlake.metadata_table import MetadataTable
from bucketlake.sql.create import CreateTable
from bucketlake.sql.procedures import PROCEDURES
from bucketlake.table import Table

pytestmark = pytest.mark.shows("H4")

OTHER_STATEMENTS = {
    "read": "SELECT",
    "to_arrow": "SELECT: a statement returns a frame",
    "get": "SELECT ... WHERE key = ...",
    "get_by": "SELECT ... WHERE column = ...",
    "query": "SELECT: what it checks is checked there",
    "plan": "SELECT: Spark's EXPLAIN shows what is read",
    "upsert": "INSERT INTO",
    "bulk_insert": "INSERT INTO: in a bucket without rows they are the same",
    "overwrite": "INSERT OVERWRITE",
    "delete": "DELETE FROM",
    "delete_where": "DELETE FROM ... WHERE",
    "update": "UPDATE",
    "merge": "MERGE INTO",
    "add_columns": "ALTER TABLE ... ADD COLUMNS",
    "upsert_stream": "INSERT INTO, for rows that are all there: a statement starts no query",
    "batch_writer": "a function for a query of Python's",
    "open": "every statement opens the tables that it names",
    "advise": "a text for a person: CALL layout returns the sizes of today",
    "report": "a page: CALL layout and CALL timeline return its rows",
    "run": "a plan is a value of Python's; the verb beside it does what it says",
}
"""What SQL does by other statements than CALL."""

OTHER_COMMANDS = {
    "to_arrow": "read: a command has no frames, and prints rows",
    "query": "read: what it checks is checked there",
    "plan": "read: prints rows, and no plan of them",
    "open": "every command opens the table that it names",
    "upsert_stream": "a query lives in a session; upsert writes files once",
    "batch_writer": "a function for a query of Python's",
    "delete_where": "sql 'DELETE FROM bucketlake.`PATH` WHERE ...'",
    "update": "sql 'UPDATE bucketlake.`PATH` SET ...'",
    "merge": "sql 'MERGE INTO bucketlake.`PATH` ...'",
    "run": "a plan is a value of Python's; a command prints it, and with --yes does it",
    "maintain": "service run: a process of its own, which may go on and on",
}
"""What the command line does by other commands, or has no use for."""

RENAMED_COMMANDS = {"maintain": "service.run"}

GROUPED_COMMANDS = {
    "index.create": "create_index",
    "index.drop": "drop_index",
    "index.list": "indexes",
    "stream.status": "stream_status",
    "stream.metrics": "stream_metrics",
    "stream.progress": "query_progress",
}
"""Commands that are methods of the table itself, and lie together in a group."""

COMMANDS_ONLY = {
    "create": "create_table: a function of Python, and CREATE TABLE in SQL",
    "sql": "a statement, for SQL",
    "service.run": OTHER_COMMANDS["maintain"],
    "doctor": "bucketlake.doctor: about a machine, not a table",
    "demo": "a show for a person",
}

NOT_IN_TEXT = {
    "spark": "SQL has its session; a command starts one with --spark",
    "progress": "a bar is shown on a terminal, and nowhere else",
    "storage_options": "options of a statement's session; --storage of a command",
    "in_zone": "a statement has its session's zone, a command this machine's",
    "maintenance": "said in words: see MaintenanceArguments; after a write, by the next statement or command",
}
"""Arguments that are no texts or numbers."""

OF_EVERY_COMMAND = {"table", "yes", "as_json", "storage", "spark", "help"}

SAID_OTHERWISE = {
    ("cluster", "partitions"): "partition",  # may be repeated, one at a time
    ("buckets.resize", "partitions"): "partition",
    ("read", "filters"): "where",  # the word of SQL, for conditions that are texts
    ("upsert", "rows"): "files",  # rows come from files
    ("bulk_insert", "rows"): "files",
    ("overwrite", "rows"): "files",
    ("delete", "rows_or_keys"): "key",  # and --from, for a file of keys
}
"""How a command calls an argument of Python's."""

OF_A_COMMAND_ONLY = {
    "read": {"limit", "every", "index", "buckets"},  # what to print; what `Table.open` is told
    "get": {"index", "buckets"},
    "get_by": {"index", "buckets"},
    "describe": {"index", "buckets", "process"},  # and what `bucketlake.memory_in_use` says
    "layout": {"index", "buckets"},
    "report": {"index", "buckets", "output"},
    "explain": {"index", "buckets"},
    "locations": {"limit", "every"},
    "query_progress": {"limit", "every"},
    "upsert": {"format_"},  # of the files
    "bulk_insert": {"format_"},
    "overwrite": {"format_"},
    "delete": {"from_file", "format_"},
    "advise": {"files_or_table", "key", "partition", "format_"},  # of rows that are in no table yet
    "fsck": {"repair"},  # of a table whose properties are broken, which Python cannot open
}

OF_PYTHON_ONLY = {
    ("delete", "merge_schema"): "rows to delete bring no columns",
    **{
        (name, word): "refused: only upsert takes a change feed"
        for name in ("bulk_insert", "overwrite", "delete")
        for word in ("op", "op_words")
    },
}


def python_calls() -> dict[str, dict[str, inspect.Parameter]]:
    """The public methods, with the arguments that each takes."""
    calls: dict[str, dict[str, inspect.Parameter]] = {}
    for prefix, owner in (("", Table), ("buckets.", Buckets), ("metadata.", MetadataTable)):
        for name, method in vars(owner).items():
            if name.startswith("_") or isinstance(method, property):
                continue
            function = method.__func__ if isinstance(method, classmethod) else method
            calls[prefix + name] = parameters(function)
    return calls


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    found: dict[str, inspect.Parameter] = {}
    for name, one in inspect.signature(function).parameters.items():
        if name in ("self", "cls") or one.annotation == "Never":
            continue
        if one.kind is one.VAR_KEYWORD:
            shared = getattr(arguments, one.annotation.removeprefix("Unpack[").removesuffix("]"))
            found |= {word: one.replace(name=word, kind=one.KEYWORD_ONLY) for word in shared.__annotations__}
        else:
            found[name] = one
    return found


def commands() -> dict[str, set[str]]:
    """The commands, those of a group after its name and a dot, with the names of their parameters."""

    def walk(group: Any, prefix: str) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                found |= walk(command, f"{prefix}{name}.")
            else:
                found[prefix + name.replace("-", "_")] = {str(one.name) for one in command.params}
        return found

    return {
        GROUPED_COMMANDS.get(name, name): takes
        for name, takes in walk(typer.main.get_command(app), "").items()
    }


PYTHON, COMMANDS = python_calls(), commands()
VERBS = [name for name in PYTHON if not name.rpartition(".")[2].startswith("plan_")]


def test_every_method_is_a_procedure_or_a_statement() -> None:
    assert set(PROCEDURES) | set(OTHER_STATEMENTS) == set(PYTHON)
    assert not set(PROCEDURES) & set(OTHER_STATEMENTS)


def test_every_method_is_a_command_and_every_plan_is_that_command_without_yes() -> None:
    assert (set(COMMANDS) - set(COMMANDS_ONLY)) | set(OTHER_COMMANDS) == set(VERBS)
    plans = {name.replace("plan_", "") for name in PYTHON if name.rpartition(".")[2].startswith("plan_")}
    nouns = {"compaction": "compact", "clustering": "cluster", "maintenance": "maintain"}
    assert {nouns.get(plan, plan) for plan in plans} <= set(VERBS)


def said(name: str) -> set[str]:
    """The arguments of a method that can be said in texts and numbers."""
    if name in ("maintain", "plan_maintenance"):
        return set(arguments.MaintenanceArguments.__annotations__)
    in_text = {"maintenance"} if name == "alter" else set()  # a word there
    return set(PYTHON[name]) - (set(NOT_IN_TEXT) - in_text) - ({"path"} if name == "adopt" else set())


@pytest.mark.parametrize("name", PROCEDURES)
def test_a_procedure_takes_what_its_method_takes(name: str) -> None:
    assert set(PROCEDURES[name]) == said(name)


@pytest.mark.parametrize("name", [name for name in VERBS if name in COMMANDS])
def test_a_command_takes_what_its_method_takes(name: str) -> None:
    expected = {
        SAID_OTHERWISE.get((name, word), word) for word in said(name) if (name, word) not in OF_PYTHON_ONLY
    }
    found = COMMANDS[name] - OF_EVERY_COMMAND - OF_A_COMMAND_ONLY.get(name, set())
    assert found == expected


def test_a_command_by_another_name_takes_what_the_method_takes() -> None:
    in_words = {*said("maintain"), "archive"} - {"archive_min", "archive_max"}  # one option of two numbers
    assert COMMANDS[RENAMED_COMMANDS["maintain"]] - OF_EVERY_COMMAND == in_words | {
        "watch",
        "every",
        "dry_run",
    }


def test_a_table_is_made_with_the_same_words_on_the_command_line() -> None:
    wanted = set(parameters(create_table)) - {"path", *NOT_IN_TEXT} | {"maintenance"}
    assert COMMANDS["create"] - OF_EVERY_COMMAND - {"schema_from"} == wanted


def test_a_table_is_made_with_the_same_words_in_sql() -> None:
    of_sql = {"path": "location", "schema": "columns"}
    wanted = {of_sql.get(word, word) for word in parameters(create_table)} - set(NOT_IN_TEXT) - {"buckets"}
    wanted |= {"maintenance"}  # a word there
    assert {field.name for field in fields(CreateTable)} - {"if_not_exists"} == wanted, (
        "buckets are in the index"
    )


def test_whatever_has_a_session_takes_it_by_keyword_and_only_reads_take_it_first() -> None:
    functions: Mapping[str, Mapping[str, inspect.Parameter]] = PYTHON | {
        "create_table": parameters(create_table)
    }
    by_place = {
        name
        for name, found in functions.items()
        if "spark" in found and found["spark"].kind is not inspect.Parameter.KEYWORD_ONLY
    }
    assert by_place == {"read"}


def test_no_method_has_a_dry_run() -> None:
    assert not [name for name, found in PYTHON.items() if "dry_run" in found]
