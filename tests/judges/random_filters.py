"""Random rows with random conditions on them, said in three languages: ours, Spark's SQL and DuckDB's.

    case = draw_case(random.Random(7))     columns, batches of rows, conditions
    case.rows()                            what a table holds after the batches
    Condition.ours, .spark, .duckdb        the same condition

Values are those that readers trip over: NaN, both zeros, infinities, the ends of a type, days before the calendar was
reformed. Conditions ask for values that rows have, and for those beside them.
"""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

NUMBER = "n"
"""A column with another number in every row, by which answers are compared."""

UTC = datetime.UTC
NAN, INFINITY = math.nan, math.inf
MOMENTS = [
    datetime.datetime(2024, 1, 2, 3, 4, 5, 678901),
    datetime.datetime(2024, 1, 2, 3, 4, 5, 678902),
    datetime.datetime(1970, 1, 1),
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime.datetime(1500, 2, 28, 12),
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
]


@dataclass(frozen=True, slots=True)
class Kind:
    """A type, its values, and how a value is spelled in SQL."""

    type: pa.DataType
    values: Sequence[Any]
    spark: Callable[[Any], str]
    duckdb: Callable[[Any], str]
    others: Sequence[Any] = ()
    """What may be asked for beside values: a column of this type need not be able to hold it."""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _same(spell: Callable[[Any], str]) -> tuple[Callable[[Any], str], Callable[[Any], str]]:
    return spell, spell


def _decimal(value: Decimal | int) -> str:
    """A literal of just the digits that it has."""
    digits = f"{Decimal(value):f}"
    scale = len(digits.partition(".")[2])
    precision = max(len(digits.lstrip("-").replace(".", "").lstrip("0")), scale, 1)
    return f"CAST('{digits}' AS DECIMAL({precision},{scale}))"


FLOATS = [NAN, 0.0, -0.0, INFINITY, -INFINITY, 1.5, -2.25, 0.1, 1e30, -5e-324]
KINDS: Mapping[str, Kind] = {
    "double": Kind(
        pa.float64(),
        FLOATS,
        lambda v: f"double('{v!r}')",
        lambda v: f"'{v!r}'::DOUBLE",
        others=[2, -3, 2**53 + 1, 10**30],
    ),
    "float": Kind(
        pa.float32(),
        [float(pa.scalar(v, pa.float32()).as_py()) for v in FLOATS],
        lambda v: f"double('{v!r}')",
        lambda v: f"'{v!r}'::DOUBLE",
        others=[0.1, 2, 1e300],
    ),
    "long": Kind(pa.int64(), [0, 1, -1, 7, 2**63 - 1, -(2**63), 2**53 + 1], *_same(lambda v: f"({v})")),
    "int": Kind(pa.int32(), [0, 1, -1, 7, 2**31 - 1, -(2**31)], *_same(lambda v: f"({v})")),
    "decimal": Kind(
        pa.decimal128(9, 2),
        [Decimal(text) for text in ("0.00", "1.50", "-1.50", "9999999.99", "0.01")],
        *_same(_decimal),
        others=[Decimal("1.505"), Decimal("0.0000000001"), 1, Decimal("1E+10"), Decimal("-1E-20"), 10**20],
    ),
    "wide_decimal": Kind(
        pa.decimal128(38, 10),
        [
            Decimal(text)
            for text in ("0", "1.0000000001", f"{'9' * 28}.{'9' * 10}", "-12345678901234567890.5")
        ],
        *_same(_decimal),
        others=[7],  # neither judge compares exactly what takes more than 38 digits
    ),
    "date": Kind(
        pa.date32(),
        [moment.date() for moment in MOMENTS],
        *_same(lambda v: f"DATE'{v.isoformat()}'"),
        others=[datetime.date(1582, 10, 10)],
    ),
    "timestamp": Kind(
        pa.timestamp("us", tz="UTC"),
        [moment.replace(tzinfo=UTC) for moment in MOMENTS],
        lambda v: f"TIMESTAMP'{v.astimezone(UTC).replace(tzinfo=None)}+00:00'",
        lambda v: f"TIMESTAMPTZ'{v.isoformat(sep=' ')}'",
        others=[MOMENTS[0].replace(tzinfo=datetime.timezone(datetime.timedelta(hours=-5)))],
    ),
    "timestamp_ntz": Kind(
        pa.timestamp("us"),
        MOMENTS,
        lambda v: f"TIMESTAMP_NTZ'{v}'",
        lambda v: f"TIMESTAMP'{v}'",
    ),
    "text": Kind(
        pa.string(),
        ["", "a", "a b", "b", "B", "é", "日本", "\N{WATER WAVE}", "\uffff", "ab%", "__null__"],
        *_same(_quoted),
        others=["a ", "A"],
    ),
    "binary": Kind(
        pa.binary(),
        [b"", b"\x00", b"\xff", b"a", b"ab"],
        lambda v: f"X'{v.hex()}'",
        lambda v: "'" + "".join(f"\\x{byte:02X}" for byte in v) + "'::BLOB",
    ),
    "boolean": Kind(pa.bool_(), [True, False], *_same(str)),
}
NESTED = pa.struct(
    [("x", pa.float64()), ("n", pa.int32()), ("deep", pa.struct([("y", pa.float32()), ("t", pa.string())]))]
)
KEYS = ("long", "int", "text", "date", "boolean")
PLACES = ("text", "int", "date", "boolean")
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class Condition:
    """One or more conditions that a row must all satisfy; `ours` is None where filters cannot say it."""

    ours: tuple[tuple[Any, ...], ...] | None
    spark: str
    duckdb: str


@dataclass(frozen=True, slots=True)
class Case:
    schema: pa.Schema
    key: str
    partition: str | None
    batches: tuple[pa.Table, ...]
    conditions: tuple[Condition, ...]

    def rows(self) -> pa.Table:
        """Return what a table holds once the batches were upserted, one after the other."""
        last: dict[Any, int] = {}
        everything = pa.concat_tables(self.batches)
        for row, key in enumerate(everything.column(self.key).to_pylist()):
            last[key_text(key)] = row
        return everything.take(sorted(last.values()))


def key_text(value: Any) -> str:
    """Two keys are one if they are spelled alike: the zeros are two."""
    return repr(value)


def draw_case(rng: random.Random, *, conditions: int = 12) -> Case:
    key, partition = rng.choice(KEYS), rng.choice([None, *PLACES])
    kinds = rng.sample(sorted(KINDS), rng.randrange(3, 6))
    fields = [(NUMBER, pa.int64()), ("k", KINDS[key].type)]
    columns = {"k": key} | {f"v_{kind}": kind for kind in kinds}
    fields += [(f"v_{kind}", KINDS[kind].type) for kind in kinds]
    fields += [("s", NESTED), ("xs", pa.list_(pa.float64()))]
    if partition is not None:
        fields.append(("p", KINDS[partition].type))
        columns["p"] = partition
    schema = pa.schema(fields)
    batches = _draw_batches(rng, schema, columns)
    return Case(
        schema=schema,
        key="k",
        partition=None if partition is None else "p",
        batches=batches,
        conditions=tuple(_draw_condition(rng, columns) for _ in range(conditions)),
    )


def _draw_batches(rng: random.Random, schema: pa.Schema, columns: Mapping[str, str]) -> tuple[pa.Table, ...]:
    count = 0
    places: dict[str, Any] = {}
    batches: list[pa.Table] = []
    for _ in range(rng.randrange(2, 4)):
        rows: dict[str, dict[str, Any]] = {}
        for _ in range(rng.randrange(1, 16)):
            count += 1
            row: dict[str, Any] = {NUMBER: count}
            for name, kind in columns.items():
                row[name] = _draw_value(rng, kind, name)
            if rng.random() < 0.8:
                deep = {"y": rng.choice([None, *FLOATS[:5]]), "t": rng.choice([None, "a"])}
                row["s"] = {
                    "x": rng.choice([None, *FLOATS]),
                    "n": rng.choice([None, 1, 2]),
                    "deep": rng.choice([None, deep]),
                }
            row["xs"] = rng.choice([None, [], [NAN, 1.0], [-0.0]])
            if "p" in columns:  # a key stays in its partition: elsewhere it would be another record
                row["p"] = places.setdefault(key_text(row["k"]), row["p"])
            rows[key_text(row["k"])] = row
        batches.append(pa.Table.from_pylist(list(rows.values()), schema))
    return tuple(batches)


def _draw_value(rng: random.Random, kind: str, name: str) -> Any:
    values = KINDS[kind].values
    if name == "k":
        return rng.choice([value for value in values if value != ""])
    if name == "p":  # an empty text and null share a folder, and read as null
        return rng.choice([None, *(value for value in values[:4] if value != "")])
    return rng.choice(values) if rng.random() < 0.8 else None


def _draw_condition(rng: random.Random, columns: Mapping[str, str]) -> Condition:
    if rng.random() < 0.15:
        return _draw_nested(rng)
    parts = [_draw_plain(rng, *rng.choice(list(columns.items()))) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
    return Condition(
        tuple(filter_ for filter_, _, _ in parts),
        " AND ".join(f"({spark})" for _, spark, _ in parts),
        " AND ".join(f"({duckdb})" for _, _, duckdb in parts),
    )


def _draw_plain(rng: random.Random, column: str, name: str) -> tuple[tuple[Any, ...], str, str]:
    kind = KINDS[name]
    wanted = [*kind.values, *kind.others]
    operators = [*COMPARISONS, "in", "not in", "is null", "is not null"]
    operator = rng.choice([*operators, "=", "in", *(["starts with"] if name == "text" else [])])
    if operator.startswith("is"):
        return (column, operator), f"{column} {operator}", f"{column} {operator}"
    if operator.endswith("in"):
        values = rng.sample(wanted, rng.randrange(1, min(4, len(wanted) + 1)))
        # DuckDB makes one type of a list's, and some decimals have none in common.
        one_of = " OR ".join(f"{column} = {kind.duckdb(value)}" for value in values)
        return (
            (column, operator, values),
            f"{column} {operator} ({', '.join(map(kind.spark, values))})",
            f"NOT ({one_of})" if operator == "not in" else one_of,
        )
    value = rng.choice(wanted)
    if operator == "starts with":
        return (column, operator, value), *(
            f"{word}({column}, {_quoted(value)})" for word in ("startswith", "starts_with")
        )
    return (
        (column, operator, value),
        f"{column} {operator} {kind.spark(value)}",
        f"{column} {operator} {kind.duckdb(value)}",
    )


def _draw_nested(rng: random.Random) -> Condition:
    """Conditions that Spark can hand down to a reader, and our filters cannot say."""
    path, kind = rng.choice([("s.x", "double"), ("s.deep.y", "double"), ("s.n", "int"), ("s.deep.t", "text")])
    operator, value = rng.choice(COMPARISONS), rng.choice(KINDS[kind].values)
    return Condition(
        None,
        f"{path} {operator} {KINDS[kind].spark(value)}",
        f"{path} {operator} {KINDS[kind].duckdb(value)}",
    )
