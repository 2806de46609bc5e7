"""Write the page docs/options.md: every option there is, its default, and why, as the code says them.

    python tools/options.py            write the page

A constant says in its docstring what it is: `A table property: ...` or `An environment variable: ...`; so do fields of
argument types, and the `Args:` of functions. What follows `Default:` there is the default, and why it is that one.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import bucketlake

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src/bucketlake"
PAGE = ROOT / "docs/options.md"

PROPERTY = "A table property: "
VARIABLE = "An environment variable: "
_DEFAULT = " Default: "

CALLS = (
    ("A new table", "`create_table(path, schema, key=…, …)`", "table.py", "create_table"),
    ("Simple buckets", "`index=SimpleBuckets(…)`", "index/simple.py", "SimpleBuckets"),
    ("Partition buckets", "`index=PartitionBuckets(…)`", "index/ruled.py", "PartitionBuckets"),
    (
        "Consistent and extendible buckets",
        "`index=ConsistentBuckets(…)`, `index=ExtendibleBuckets(…)`",
        "index/rings.py",
        "GrowingBuckets",
    ),
    ("Dynamic buckets", "`index=DynamicBuckets(…)`", "index/dynamic.py", "DynamicBuckets"),
    ("Record-level index", "`index=RecordIndex(…)`", "index/record_level.py", "RecordIndex"),
    ("Change a table", "`table.alter(…)`", "table.py", "Table.alter"),
    (
        "Reads",
        "`table.read(spark, …)`, `table.to_arrow(…)`, `table.plan(…)`",
        "arguments.py",
        "QueryArguments",
    ),
    (
        "Writes",
        "`table.upsert(rows, …)`, `bulk_insert`, `overwrite`, `delete`",
        "arguments.py",
        "WriteArguments",
    ),
    (
        "Streams",
        "`table.upsert_stream(frame, checkpoint=…, …)`, `table.batch_writer(…)`; also what writes take",
        "arguments.py",
        "StreamArguments",
    ),
    (
        "Compaction",
        "`table.compact(…)`, `table.plan_compaction(…)`, `CompactionTrigger(…)`. Without any of these, every "
        "file group that has logs",
        "arguments.py",
        "CompactionArguments",
    ),
    (
        "Clean",
        "`table.clean(…)`, `table.plan_clean(…)`; give one of them. In a `Retention(…)` they are `commits`, `hours` "
        "and `versions`",
        "arguments.py",
        "RetentionArguments",
    ),
    ("Archive", "`table.archive(…)`, `table.plan_archive(…)`", "table.py", "Table.archive"),
    (
        "Clustering",
        "`table.cluster(by=…, …)`, `table.plan_clustering(by=…, …)`",
        "arguments.py",
        "ClusteringArguments",
    ),
    (
        "Bucket rules",
        "`table.buckets.overwrite(rules, …)`, `table.buckets.add(rules, …)`, and their plans",
        "arguments.py",
        "RulesArguments",
    ),
    (
        "Resizes",
        "`table.buckets.resize(…)`, `table.buckets.plan_resize(…)`, `ResizeTrigger(…)`",
        "arguments.py",
        "ResizeArguments",
    ),
    (
        "Maintenance in words",
        "`CALL maintain(…)`, and `bucketlake service run --compact-delta-commits …`",
        "arguments.py",
        "MaintenanceArguments",
    ),
)

OF_SPARK = {
    "as_of": "read the table as it was at this moment",
    "begin": "read what was written after this moment",
    "end": "read what was written up to this moment",
    "query": "`snapshot` or `read_optimized`, which is Hudi's way to say `read_optimized=true`",
    "read_optimized": "`true` reads base files only: faster, and older. Default: `false`",
    "columns": "the columns to read, with commas between them",
    "meta_columns": "`true` (the default) or `false`: whether to return Hudi's meta columns",
    "start": "where a stream begins: `beginning` (the default), `now`, `oldest`, or a moment",
    "max_instants": "how many writes a batch takes at most. Default: no limit",
    "max_rows": "about how many rows a batch takes. Default: no limit",
    "op": "the name of a column to add, which says `insert`, `update` or `delete`. Default: none",
    "log_format": "`parquet` (the default) or `avro`",
    "merge_schema": "as of writes; `mergeSchema` is the same",
    "maintenance": "as of writes",
    "index": "where keys live, as Python writes it: `SimpleBuckets(4)`",
    "buckets": "short for `index`: a number of simple buckets",
}


class Option(NamedTuple):
    name: str
    text: str
    default: str

    def row(self) -> str:
        return f"| `{self.name}` | {self.text} | {self.default} |"


def page() -> str:
    """The page of all options."""
    lines = [
        "# Options",
        "",
        "Every option, its default, and why. This page is made from the code (`make pages`); a test fails when "
        "it is behind.",
        "",
        "An option that bucketlake does not know is an error that lists those it knows.",
    ]
    for title, calls, file, name in CALLS:
        # A docstring of several paragraphs on fields would be too much for a table.
        lines += ["", f"## {title}", "", f"{calls}.", "", *_table(list(options_of(file, name)))]
    lines += [
        "",
        "`spark=` runs a service on that session, and without it in this process. `progress=` shows a bar or hides it.",
        "",
        '## `format("bucketlake")`',
        "",
        "| option | reads | streams | writes | |",
        "|---|---|---|---|---|",
        *_of_spark(),
        "| `storage.<name>` | ✓ | ✓ | ✓ | an option of the object store |",
        "",
        "## Environment variables",
        "",
        "A process reads them once, when it first needs them. For Spark's executors, set "
        "`spark.executorEnv.<name>` before the session starts.",
        "",
        *_table(sorted(constants(VARIABLE), key=lambda one: one.name)),
        "",
        "## Table properties",
        "",
        "`.hoodie/hoodie.properties` keeps these. `create_table` and `table.alter` set them. Those that we set are for "
        "us alone: leave them as they are.",
        "",
        *_table(sorted(constants(PROPERTY), key=lambda one: one.name)),
        "",
        "## Hudi's table properties that are read",
        "",
        "Hudi defines these; [table properties](formats/table-properties.md) says what is refused.",
        "",
        "| field | property |",
        "|---|---|",
        *_of_hudi(),
    ]
    return "\n".join(lines) + "\n"


def constants(kind: str) -> Iterator[Option]:
    """Find the constants of a kind, by their docstrings."""
    for file in sorted(SOURCES.rglob("*.py")):
        for node, text in _documented(_parsed(file).body):
            value = node.value
            if text.startswith(kind) and isinstance(value, ast.Constant):
                yield _option(str(value.value), text.removeprefix(kind))


def unexplained() -> list[str]:
    """Name constants that look like table properties or variables, and whose docstring does not say what they are."""
    told = {option.name for kind in (PROPERTY, VARIABLE) for option in constants(kind)}
    # What commits, footers and logs say is no option.
    others = re.compile(r"(KEY|MARK)$")
    return [
        f"{file.relative_to(ROOT)}: {node.value.value}"
        for file in sorted(SOURCES.rglob("*.py"))
        for node in _parsed(file).body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and re.match(r"bucketlake\.[a-z.]+$|BUCKETLAKE_", str(node.value.value))
        and str(node.value.value) not in told | NO_OPTIONS
        and not others.fullmatch(str(node.value.value))
    ]


NO_OPTIONS = {
    "bucketlake.rows",
    "bucketlake.sql.tables",
    "bucketlake.index.files",
    "bucketlake.index.concerned",
    "bucketlake.logged.keys",
    "bucketlake.computed",
    "bucketlake.regrouped",
    "bucketlake.stream",
    "bucketlake.rescale",
    "bucketlake.proof",
}
"""What commits, footers of files and sessions say."""


def options_of(file: str, name: str) -> Iterator[Option]:
    """Find the options of an argument type by its fields, or of a function by its `Args:`."""
    node: ast.AST = _parsed(SOURCES / file)
    for part in name.split("."):
        node = next(
            one
            for one in getattr(node, "body", [])
            if isinstance(one, ast.ClassDef | ast.FunctionDef) and one.name == part
        )
    if isinstance(node, ast.ClassDef):
        for field, text in _documented(node.body):
            told = (
                ""
                if _DEFAULT in text or file == "arguments.py"
                else _DEFAULT + _of_code(name, _name_of(field))
            )
            yield _option(_name_of(field), text + told)
        return
    assert isinstance(node, ast.FunctionDef)
    names = [one.arg for one in node.args.args]
    required = {*names[: len(names) - len(node.args.defaults)]} | {
        one.arg
        for one, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        if default is None
    }
    arguments = ast.get_docstring(node) or ""
    body = arguments.partition("\nArgs:\n")[2]
    # Up to the next heading or paragraph at the left margin.
    body = re.split(r"\n(?=\S)", body)[0]
    for entry in re.split(r"\n(?=\S)", textwrap.dedent(body)):
        if entry.strip():
            word, _, text = entry.partition(":")
            is_required = word.strip() in required
            yield _option(
                word.strip(), " ".join(text.split()) + (f"{_DEFAULT}required" if is_required else "")
            )


_PUBLIC = {"GrowingBuckets": "ConsistentBuckets"}
"""A class that public ones inherit their fields from -> one of these."""


def _of_code(name: str, field: str) -> str:
    """Return the default of a field of a public value."""
    default = next(
        one.default for one in fields(getattr(bucketlake, _PUBLIC.get(name, name))) if one.name == field
    )
    if default is MISSING:
        return "required"
    return f"{default:,}" if type(default) is int else f"`{default!r}`"


def undocumented(file: str, name: str) -> list[str]:
    """Name the fields of an argument type that say nothing of themselves."""
    found = next(
        one for one in _parsed(SOURCES / file).body if isinstance(one, ast.ClassDef) and one.name == name
    )
    told = {_name_of(field) for field, _ in _documented(found.body)}
    return [
        _name_of(one) for one in found.body if isinstance(one, ast.AnnAssign) and _name_of(one) not in told
    ]


def _option(name: str, text: str) -> Option:
    said, _, default = text.partition(_DEFAULT)
    assert default, f"{name} does not say its default: {text}"
    return Option(name, said.strip().rstrip("."), default.strip().rstrip("."))


def _table(options: list[Option]) -> list[str]:
    return ["| name | what it does | default |", "|---|---|---|", *(option.row() for option in options)]


def _of_spark() -> Iterator[str]:
    module = _parsed(SOURCES / "datasource/options.py")
    kinds = {
        _name_of(one): {str(part.value) for part in ast.walk(one.value) if isinstance(part, ast.Constant)}
        for one in module.body
        if isinstance(one, ast.Assign) and _name_of(one) in ("READING", "STREAMING", "WRITING")
    }
    known = set().union(*kinds.values()) - {"path"}
    assert known == set(OF_SPARK), f"say in OF_SPARK what they do: {known ^ set(OF_SPARK)}"
    for name, text in OF_SPARK.items():
        ticks = " | ".join("✓" if name in kinds[kind] else "" for kind in ("READING", "STREAMING", "WRITING"))
        yield f"| `{name}` | {ticks} | {text} |"


def _of_hudi() -> Iterator[str]:
    found = next(
        one
        for one in _parsed(SOURCES / "config/properties.py").body
        if isinstance(one, ast.ClassDef) and one.name == "TableProperties"
    )
    for field, text in _documented(found.body):
        if "hoodie." in text:
            yield f"| `{_name_of(field)}` | {text} |"


def _documented(body: list[ast.stmt]) -> Iterator[tuple[ast.Assign | ast.AnnAssign, str]]:
    """Pair assignments with the strings below them, of which the first paragraph counts."""
    for node, below in pairwise(body):
        if (
            isinstance(node, ast.Assign | ast.AnnAssign)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            yield node, " ".join(below.value.value.partition("\n\n")[0].split())


def _name_of(node: ast.Assign | ast.AnnAssign) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return target.id if isinstance(target, ast.Name) else ""


@cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


if __name__ == "__main__":
    PAGE.write_text(page())
