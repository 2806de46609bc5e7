"""Random MERGE statements, and what each of them makes of a table: rows in a dict, one after the other.

    draw(random.Random(7))  ->  RandomMerge     a source, and clauses
    merge.text("orders")    ->  str             as SQL
    merge.apply(rows)       ->  Rows            what is there after it; Refused if it has no one meaning

The model is SQL's MERGE as Delta has it. What an upsert engine adds: of two versions of a row the one with the smaller
ordering value loses, if the table has ordering values; and no key is there twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
Rows = dict[str, Row]
"""By their ids."""
Said = tuple[str, Callable[[Row, Row], Any]]
"""An expression, and what it is for a row of the table, `t`, and one of the source, `s`."""

COLUMNS = "id STRING, n INT, ts BIGINT, v STRING, p STRING"
NAMES = ("id", "n", "ts", "v", "p")


class Refused(Exception):
    """Several rows would become one, and which is not said."""


@dataclass(frozen=True)
class RandomClause:
    part: str
    deed: str
    condition: Said | None
    values: tuple[tuple[str, Said], ...] | None

    def text(self) -> str:
        condition = f" AND {self.condition[0]}" if self.condition else ""
        deed = self.deed
        if deed == "UPDATE":
            said = ", ".join(f"{name} = {value}" for name, (value, _) in self.values or ())
            deed = f"UPDATE SET {said or '*'}"
        elif deed == "INSERT":
            names = ", ".join(name for name, _ in self.values or ())
            said = ", ".join(value for _, (value, _) in self.values or ())
            deed = f"INSERT ({names}) VALUES ({said})" if self.values else "INSERT *"
        return f"WHEN {self.part}{condition} THEN {deed}"

    def holds(self, t: Row, s: Row) -> bool:
        return self.condition is None or self.condition[1](t, s) is True

    def made(self, t: Row, s: Row) -> Row:
        if self.values is None:
            return dict(s)
        before = t if self.deed == "UPDATE" else dict.fromkeys(NAMES)
        return {**before, **{name: value(t, s) for name, (_, value) in self.values}}


@dataclass(frozen=True)
class RandomMerge:
    source: tuple[Row, ...]
    clauses: tuple[RandomClause, ...]

    def source_sql(self) -> str:
        rows = ", ".join(f"({', '.join(_literal(row[name]) for name in NAMES)})" for row in self.source)
        kinds = ("string", "int", "bigint", "string", "string")
        casts = ", ".join(f"CAST({n} AS {k}) AS {n}" for n, k in zip(NAMES, kinds, strict=True))
        return f"SELECT {casts} FROM VALUES {rows} AS x({', '.join(NAMES)})"

    def text(self, table: str) -> str:
        clauses = "\n".join(clause.text() for clause in self.clauses)
        return f"MERGE INTO {table} AS t USING ({self.source_sql()}) AS s ON t.id = s.id\n{clauses}"

    def apply(self, rows: Rows, *, has_ordering: bool) -> Rows:
        deeds: dict[str, list[tuple[str, Row]]] = {}
        nothing: Row = dict.fromkeys(NAMES)
        for s in self.source:
            t = rows.get(s["id"])
            part = "NOT MATCHED" if t is None else "MATCHED"
            for clause in self.clauses:
                if clause.part == part and clause.holds(t or nothing, s):
                    made = clause.made(t or nothing, s)
                    deeds.setdefault(s["id"], []).append((clause.deed, made))
                    break
        matched = {s["id"] for s in self.source}
        for key, t in rows.items():
            for clause in self.clauses:
                if clause.part == "NOT MATCHED BY SOURCE" and key not in matched and clause.holds(t, nothing):
                    deeds.setdefault(key, []).append((clause.deed, clause.made(t, nothing)))
                    break
        after = dict(rows)
        for key, done in deeds.items():
            if len(done) > 1 and any(deed != "DELETE" for deed, _ in done):
                raise Refused(key)
            deed, made = done[0]
            if deed == "DELETE":
                del after[key]
            elif deed == "INSERT" or not has_ordering or made["ts"] >= rows[key]["ts"]:
                after[key] = made
        return after

    def deletes_late(self, rows: Rows) -> bool:
        """Whether a row may be deleted for one of the source with a smaller ordering value: for Hudi, that is late."""
        matched = [(rows[s["id"]], s) for s in self.source if s["id"] in rows]
        deletes = [clause for clause in self.clauses if clause.deed == "DELETE"]
        return any(s["ts"] < t["ts"] and clause.holds(t, s) for t, s in matched for clause in deletes)


def _literal(value: object) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def _sum(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a + b


def _less(a: Any, b: Any) -> bool | None:
    return None if a is None or b is None else a < b


CONDITIONS: tuple[Said, ...] = (
    ("s.n > 3", lambda t, s: _less(3, s["n"])),
    ("t.n < s.n", lambda t, s: _less(t["n"], s["n"])),
    ("s.n IS NULL OR t.v = 'q'", lambda t, s: s["n"] is None or t["v"] == "q"),
    ("NOT (t.ts > s.ts)", lambda t, s: not t["ts"] > s["ts"]),
    ("CASE WHEN s.v = 'q' THEN true ELSE t.n = 2 END", lambda t, s: s["v"] == "q" or t["n"] == 2),
)
OF_SOURCE: tuple[Said, ...] = (CONDITIONS[0], ("s.v <> 'r'", lambda t, s: s["v"] != "r"))
OF_TARGET: tuple[Said, ...] = (
    ("t.n > 3", lambda t, s: _less(3, t["n"])),
    ("t.v = 'r'", lambda t, s: t["v"] == "r"),
)
NUMBERS: tuple[Said, ...] = (
    ("t.n + s.n", lambda t, s: _sum(t["n"], s["n"])),
    ("s.n", lambda t, s: s["n"]),
    ("NULL", lambda t, s: None),
    (
        "coalesce(s.n, t.n * 2, 7)",
        lambda t, s: next(x for x in (s["n"], _sum(t["n"], t["n"]), 7) if x is not None),
    ),
)
TEXTS: tuple[Said, ...] = (
    ("concat(t.v, s.v)", lambda t, s: _sum(t["v"], s["v"])),
    ("'q'", lambda t, s: "q"),
    ("s.v", lambda t, s: s["v"]),
)
TIMES: tuple[Said, ...] = (("s.ts", lambda t, s: s["ts"]), ("t.ts + 1", lambda t, s: t["ts"] + 1))


def draw_rows(chance: random.Random, count: int, *, repeats: bool) -> tuple[Row, ...]:
    ids = [f"k{chance.randrange(12)}" for _ in range(count)]
    return tuple(
        {
            "id": key,
            "n": chance.choice([None, *range(6)]),
            "ts": chance.randrange(1, 6),
            "v": chance.choice(["p", "q", "r"]),
            "p": f"p{int(key[1:]) % 2}",  # so that a key is in one partition
        }
        for key in (ids if repeats else dict.fromkeys(ids))
    )


def draw(chance: random.Random, *, as_hudi_has_it: bool = False, without_target: bool = False) -> RandomMerge:
    """Draw a statement; if Hudi is to run it, without WHEN NOT MATCHED BY SOURCE, and with the ordering value set.

    `without_target`: no condition and no value is of the table's row.
    """

    def chosen(said: tuple[Said, ...]) -> Said:
        return chance.choice([one for one in said if not (without_target and "t." in one[0])])

    def clause(part: str, deeds: str, conditions: tuple[Said, ...], *, is_last: bool) -> RandomClause:
        deed = chance.choice(deeds.split())
        condition = None if is_last and chance.random() < 0.5 else chosen(conditions)
        if deed == "DELETE":
            return RandomClause(part, deed, condition, None)
        if part == "NOT MATCHED":
            named = tuple(
                (n, (f"s.{n}", lambda t, s, n=n: s[n])) for n in NAMES if n != "v" or chance.random() < 0.7
            )
            return RandomClause(part, deed, condition, None if chance.random() < 0.4 else named)
        if part == "MATCHED" and chance.random() < 0.25:
            return RandomClause(part, deed, condition, None)
        if part == "NOT MATCHED BY SOURCE":
            return RandomClause(part, deed, condition, (("n", ("t.n + 10", lambda t, s: _sum(t["n"], 10))),))
        values = [("n", chosen(NUMBERS))]
        if chance.random() < 0.5:
            values.append(("v", chosen(TEXTS)))
        if as_hudi_has_it or chance.random() < 0.5:
            values.append(("ts", chosen(TIMES)))
        return RandomClause(part, deed, condition, tuple(values))

    matched, missing = chance.randrange(3), chance.randrange(2)
    others = chance.randrange(2) if not as_hudi_has_it else 0
    if not matched + missing + others:
        matched = 1
    clauses = [
        *(
            clause("MATCHED", "UPDATE UPDATE DELETE", CONDITIONS, is_last=n == matched - 1)
            for n in range(matched)
        ),
        *(clause("NOT MATCHED", "INSERT", OF_SOURCE, is_last=n == missing - 1) for n in range(missing)),
        *(clause("NOT MATCHED BY SOURCE", "UPDATE DELETE", OF_TARGET, is_last=False) for _ in range(others)),
    ]
    return RandomMerge(
        draw_rows(chance, chance.randrange(1, 8), repeats=chance.random() < 0.2), tuple(clauses)
    )
