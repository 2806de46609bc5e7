"""CREATE TABLE, as Spark's users write it for Hudi and as the design of partition-level buckets does, after Flink.

    CREATE [EXTERNAL] TABLE [IF NOT EXISTS] name [(columns)] USING bucketlake|hudi
        [PARTITIONED BY (...)] [TBLPROPERTIES|OPTIONS (...)] [LOCATION '...']
    CREATE TABLE [IF NOT EXISTS] name (columns) [PARTITIONED BY (...)] WITH ('connector' = 'hudi', ...)

Columns are left as text, for Spark to read; a key may be declared among them: PRIMARY KEY (id) NOT ENFORCED.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bucketlake.config import RECORD_LEVEL, BucketEngine, IndexType, TableType
from bucketlake.errors import ConfigError, UnsupportedError
from bucketlake.index import (
    BUCKETS_DEFAULT,
    RULE_TYPE,
    ConsistentBuckets,
    DynamicBuckets,
    ExtendibleBuckets,
    IndexValue,
    PartitionBuckets,
    RecordIndex,
    SimpleBuckets,
)
from bucketlake.index.dynamic import (
    ASSIGNERS_DEFAULT,
    ASSIGNERS_KEY,
    BYTES_DEFAULT,
    BYTES_KEY,
    KEYS_DEFAULT,
    KEYS_KEY,
    VERIFY_KEY,
)
from bucketlake.index.rings import VIRTUAL_LOGS
from bucketlake.index.told import index_of_text, told
from bucketlake.sql.tokens import Cursor, Token, place
from bucketlake.write.state import NON_BLOCKING, NULL_ELEMENTS_ALLOWED

_T = TypeVar("_T")

PROVIDERS = frozenset({"BUCKETLAKE", "HUDI"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable:
    """A table to be made, or, if it has no columns, one that is there and gets a name."""

    name: str
    if_not_exists: bool = False
    columns: str | None = None
    """As Spark's DDL."""
    location: str | None = None
    partition: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    ordering: tuple[str, ...] = ()
    table_type: TableType = TableType.COPY_ON_WRITE
    index: IndexValue | None = None
    """Where keys live; None: as it is where nobody says."""
    hive_style: bool = False
    url_encode: bool = False
    merge_schema: bool = False
    allow_missing_columns: bool = False
    maintenance: str | None = None
    allow_null_elements: bool = False
    non_blocking: bool = False
    metadata: bool = False


@dataclass(frozen=True, slots=True)
class _Property:
    """A pair of names and values in a statement."""

    name: str
    value: str
    at: Token


@dataclass(slots=True)
class _Clauses:
    """What has been read of a statement."""

    columns: list[str] = field(default_factory=list)
    key: tuple[str, ...] = ()
    partition: tuple[str, ...] = ()
    properties: list[_Property] = field(default_factory=list)
    location: str | None = None


def is_create(cursor: Cursor) -> bool:
    """Say whether a statement that begins with CREATE makes a table of ours; leaves the cursor where it is."""
    count = 1
    depth = 0
    while (token := cursor.ahead(count)).kind:
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if not depth and token.word == "USING":
            return cursor.ahead(count + 1).text.strip("`").upper() in PROVIDERS
        if not depth and token.word == "WITH" and cursor.ahead(count + 1).text == "(":
            return _has_connector(cursor, count + 2)
        count += 1
    return False


def _has_connector(cursor: Cursor, count: int) -> bool:
    while (token := cursor.ahead(count)).kind:
        if token.text[1:-1].lower() == "connector":
            return cursor.ahead(count + 2).text.strip("'\"").upper() in PROVIDERS
        count += 1
    return False


def parse_create(cursor: Cursor) -> CreateTable:
    """Read the statement; ConfigError says where it makes no sense."""
    cursor.take("CREATE")
    cursor.may_take("EXTERNAL")
    cursor.take("TABLE")
    if_not_exists = cursor.may_take("IF", "NOT", "EXISTS")
    name = cursor.take_name("the table's name")
    if cursor.is_sign("."):
        cursor.fail("a name without a dot: the catalog has no databases")
    clauses = _Clauses()
    if cursor.is_sign("("):
        _read_columns(cursor, clauses)
    _read_clauses(cursor, clauses)
    cursor.finish("PARTITIONED BY, TBLPROPERTIES, OPTIONS, WITH, LOCATION or the end of the statement")
    made = _Settings(cursor.text, clauses.properties)
    location = _one("LOCATION", clauses.location, "path", made.text("path"))
    if not clauses.columns:
        return _registered(name, location, clauses, if_not_exists=if_not_exists)
    key = _one("PRIMARY KEY", clauses.key or None, "primaryKey", made.names("primaryKey") or None)
    if key is None:
        raise ConfigError(
            f"the table {name!r} has no key. Name its columns: primaryKey = 'id' among the table's properties, or "
            f"PRIMARY KEY (id) NOT ENFORCED among its columns."
        )
    made.check_index()
    return CreateTable(
        name=name,
        if_not_exists=if_not_exists,
        columns=", ".join(clauses.columns),
        location=location,
        partition=clauses.partition,
        key=key,
        ordering=made.names("orderingFields"),
        table_type=made.table_type(),
        index=made.index(),
        hive_style=made.flag("hoodie.datasource.write.hive_style_partitioning"),
        url_encode=made.flag("hoodie.datasource.write.partitionpath.urlencode"),
        merge_schema=made.flag("mergeSchema"),
        allow_missing_columns=made.flag("allowMissingColumns"),
        maintenance=made.text("maintenance"),
        allow_null_elements=made.flag("allowNullElements"),
        non_blocking=made.flag("nonBlocking"),
        metadata=made.flag("metadata"),
    )


def _one(name: str, value: _T | None, other_name: str, other: _T | None) -> _T | None:
    """Return what is said in one of two places, or alike in both."""
    if value is not None and other is not None and value != other:
        raise ConfigError(
            f"{name} is {value!r} and {other_name} is {other!r}: the two mean the same. Give one of them."
        )
    return value if value is not None else other


def _registered(name: str, location: str | None, clauses: _Clauses, *, if_not_exists: bool) -> CreateTable:
    """A table without columns is one that is there: it brings all that could be said of it."""
    if location is None:
        raise ConfigError(
            f"the table {name!r} has no columns. Give them in parentheses after its name, or the LOCATION of a table "
            f"that is there."
        )
    said = [pair.name for pair in clauses.properties if pair.name.lower() not in ("connector", "path")]
    if said or clauses.partition:
        raise ConfigError(
            f"the table {name!r} has no columns, so the one that is at {location!r} gets this name; it says itself "
            f"what it is. Leave out {', '.join(said) or 'PARTITIONED BY'}, or give columns to make a new table."
        )
    return CreateTable(name=name, if_not_exists=if_not_exists, location=location)


def _read_columns(cursor: Cursor, clauses: _Clauses) -> None:
    cursor.take_sign("(")
    while True:
        if cursor.may_take("CONSTRAINT"):
            cursor.take_name("the constraint's name")
        if cursor.is_words("PRIMARY", "KEY"):
            _set_key(cursor, clauses, None)
        else:
            clauses.columns.append(_read_column(cursor, clauses))
        if not cursor.may_take_sign(","):
            break
    if not cursor.is_sign(")"):
        cursor.fail("',' and another column, or ')'")
    cursor.step()


def _read_column(cursor: Cursor, clauses: _Clauses) -> str:
    """Step over a column; return it as Spark's DDL has it, without what it says of a key."""
    start = cursor.token
    name = cursor.take_name("a column's name")
    if cursor.token.text in (",", ")") or not cursor.token.kind:
        cursor.fail(f"the type of column {name!r}")
    end = start.end
    depth = 0
    while cursor.token.kind and (depth or cursor.token.text not in (",", ")")):
        if not depth and cursor.is_words("PRIMARY", "KEY"):
            ddl = cursor.text[start.start : end]
            _set_key(cursor, clauses, name)
            return ddl
        if cursor.is_sign("("):
            cursor.skip_parentheses()
            end = cursor.ahead(-1).end
            continue
        depth += {"<": 1, ">": -1}.get(cursor.token.text, 0)
        end = cursor.step().end
    return cursor.text[start.start : end]


def _set_key(cursor: Cursor, clauses: _Clauses, column: str | None) -> None:
    at = cursor.token
    cursor.take("PRIMARY", "KEY")
    names = (column,) if column is not None else cursor.take_names("a column of the key")
    # The standard's words for a key that the engine does not check; ours holds, and saying them is no harm.
    cursor.may_take("NOT", "ENFORCED")
    if clauses.key:
        cursor.fail("one PRIMARY KEY: list all its columns in it", at=at)
    clauses.key = names


def _read_clauses(cursor: Cursor, clauses: _Clauses) -> None:
    while True:
        if cursor.may_take("USING"):
            cursor.take_name("bucketlake or hudi")
        elif cursor.is_words("PARTITIONED", "BY"):
            at = cursor.token
            cursor.take("PARTITIONED", "BY")
            if clauses.partition:
                cursor.fail("PARTITIONED BY once", at=at)
            clauses.partition = _read_partition(cursor, clauses)
        elif cursor.token.word in ("TBLPROPERTIES", "OPTIONS", "WITH"):
            cursor.step()
            clauses.properties += read_properties(cursor)
        elif cursor.may_take("LOCATION"):
            clauses.location = cursor.take_text("the location in quotes")
        elif cursor.is_words("AS") or cursor.is_words("SELECT"):
            cursor.fail("the end of the statement: make the table first, then INSERT INTO it")
        else:
            return


def _read_partition(cursor: Cursor, clauses: _Clauses) -> tuple[str, ...]:
    """Read partition columns: names of columns, or, as Hive has it, columns with their types."""
    cursor.take_sign("(")
    names: list[str] = []
    while True:
        if cursor.ahead(1).text in (",", ")"):
            names.append(cursor.take_name("a partition column"))
        else:
            before = cursor.token
            column = _read_column(cursor, clauses)
            names.append(Cursor(column).take_name("a partition column"))
            if not clauses.columns:
                cursor.fail("columns of the table before its partition columns", at=before)
            clauses.columns.append(column)
        if not cursor.may_take_sign(","):
            break
    cursor.take_sign(")")
    return tuple(names)


def read_properties(cursor: Cursor) -> list[_Property]:
    """Step over names and values in parentheses."""
    cursor.take_sign("(")
    pairs: list[_Property] = []
    while True:
        at = cursor.token
        name = _property_name(cursor)
        if not cursor.may_take_sign("="):
            cursor.fail(f"'=' and the value of {name}")
        pairs.append(_Property(name, cursor.take_value(), at))
        if not cursor.may_take_sign(","):
            break
    if not cursor.is_sign(")"):
        cursor.fail("',' and another property, or ')'")
    cursor.step()
    return pairs


def _property_name(cursor: Cursor) -> str:
    if cursor.token.kind == "text":
        return cursor.take_text("a property's name")
    parts = [cursor.take_name("a property's name")]
    while cursor.may_take_sign("."):
        parts.append(cursor.take_name("the rest of the property's name"))
    return ".".join(parts)


_SPELLINGS: dict[str, Sequence[str]] = {
    "primaryKey": (
        "hoodie.datasource.write.recordkey.field",
        "hoodie.table.recordkey.fields",
    ),
    "orderingFields": (
        "preCombineField",
        "precombine.field",
        "ordering.fields",
        "hoodie.datasource.write.precombine.field",
        "hoodie.table.precombine.field",
        "hoodie.table.ordering.fields",
    ),
    "type": ("table.type", "hoodie.datasource.write.table.type", "hoodie.table.type"),
    "hoodie.index.type": ("index.type",),
    "hoodie.index.bucket.engine": ("hoodie.bucket.index.engine",),
    "hoodie.bucket.index.num.buckets": (),
    "hoodie.bucket.index.hash.field": (),
    "hoodie.bucket.index.partition.expressions": (),
    "hoodie.bucket.index.partition.rule.type": ("hoodie.bucket.index.partition.rule",),
    "hoodie.datasource.write.hive_style_partitioning": (),
    "hoodie.datasource.write.partitionpath.urlencode": (),
    "mergeSchema": ("bucketlake.merge.schema",),
    "allowMissingColumns": ("bucketlake.allow.missing.columns",),
    "maintenance": ("bucketlake.maintenance",),
    "allowNullElements": (NULL_ELEMENTS_ALLOWED,),
    "nonBlocking": (NON_BLOCKING,),
    "metadata": ("hoodie.metadata.enable",),
    "hoodie.metadata.global.record.level.index.enable": ("hoodie.metadata.record.index.enable",),
    "hoodie.metadata.record.level.index.enable": (),
    "hoodie.record.index.update.partition.path": (),
    "index": (),
    "virtualLogs": (VIRTUAL_LOGS,),
    "assigners": (ASSIGNERS_KEY,),
    "keysPerBucket": (KEYS_KEY,),
    "bytesPerBucket": (BYTES_KEY,),
    "verifyHits": (VERIFY_KEY,),
    "connector": (),
    "path": (),
}
_TYPE = "hoodie.index.type"
_TYPES = {**{str(one): one for one in IndexType}, "RECORD_INDEX": IndexType.GLOBAL_RECORD_LEVEL_INDEX}
"""By Hudi's words; the last is its older one."""
_MOVES = "hoodie.record.index.update.partition.path"
_ENABLED = {
    "hoodie.metadata.global.record.level.index.enable": IndexType.GLOBAL_RECORD_LEVEL_INDEX,
    "hoodie.metadata.record.level.index.enable": IndexType.RECORD_LEVEL_INDEX,
}
_ENGINE = "hoodie.index.bucket.engine"
_COUNT = "hoodie.bucket.index.num.buckets"
_FIELDS = "hoodie.bucket.index.hash.field"
_RULES = "hoodie.bucket.index.partition.expressions"
_RULE_TYPE = "hoodie.bucket.index.partition.rule.type"
_DYNAMIC = ("assigners", "keysPerBucket", "bytesPerBucket")
_INDEX_WORDS = (_ENGINE, _COUNT, _FIELDS, _RULES, _RULE_TYPE, "virtualLogs", *_DYNAMIC, "verifyHits")
_MEANING = {spelling.lower(): name for name, others in _SPELLINGS.items() for spelling in (name, *others)}
_ENGINES = frozenset({*BucketEngine, "SIMPLE_HASHING"})


class _Settings:
    """The properties of a statement, by what they mean; each is said once, or twice alike."""

    def __init__(self, text: str, pairs: Sequence[_Property]) -> None:
        self._text = text
        self._values: dict[str, _Property] = {}
        for pair in pairs:
            meaning = _MEANING.get(pair.name.lower())
            if meaning is None:
                known = ", ".join(spelling for name in _SPELLINGS for spelling in (name, *_SPELLINGS[name]))
                raise ConfigError(
                    f"unknown property {pair.name!r} at {place(text, pair.at.start)}; a table has {known}."
                )
            other = self._values.setdefault(meaning, pair)
            if other.value != pair.value:
                raise ConfigError(
                    f"{other.name} is {other.value!r} and {pair.name}, at {place(text, pair.at.start)}, is "
                    f"{pair.value!r}: the two mean the same. Give one of them."
                )

    def text(self, name: str) -> str | None:
        pair = self._values.get(name)
        return pair.value if pair is not None else None

    def names(self, name: str) -> tuple[str, ...]:
        """Read names of columns, separated by commas."""
        value = self.text(name)
        if value is None:
            return ()
        names = tuple(part.strip() for part in value.split(","))
        if not all(names):
            raise self._bad(name, "names of columns, separated by commas")
        return names

    def count(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not (value.isascii() and value.isdigit()):
            raise self._bad(name, "a number")
        return int(value)

    def flag(self, name: str) -> bool:
        value = (self.text(name) or "false").lower()
        if value not in ("true", "false"):
            raise self._bad(name, "'true' or 'false'")
        return value == "true"

    def table_type(self) -> TableType:
        found = TableType.of_word(self.text("type") or "cow")
        if found is None:
            raise self._bad("type", "'cow', 'mor', 'COPY_ON_WRITE' or 'MERGE_ON_READ'")
        return found

    def check_index(self) -> None:
        """Refuse an index, or an engine, that new tables cannot have."""
        for name, supported, words in (
            (_TYPE, frozenset(_TYPES), ", ".join(IndexType)),
            (_ENGINE, _ENGINES, ", ".join(sorted(_ENGINES))),
        ):
            value = self.text(name)
            if value is not None and value.upper() not in supported:
                raise UnsupportedError(
                    subject=f"{self._values[name].name}, at {self._place(name)},",
                    found=repr(value),
                    supported=f"{words} for new tables",
                    remedy="Leave the property out, or make the table with Hudi.",
                )

    def index(self) -> IndexValue | None:
        """Make one value of what is said of the index: in Hudi's words, or as `index`, as Python has it."""
        found = self._record_index() or self._buckets()
        engine = None if found is None else found.engine
        self._check_type(engine)
        self._check_enabled(engine)
        if _MOVES in self._values and not isinstance(found, RecordIndex):
            raise ConfigError(
                f"{_MOVES}, at {self._place(_MOVES)}, says what becomes of rows in an index of the whole table. Give "
                f"{_TYPE} = '{IndexType.GLOBAL_RECORD_LEVEL_INDEX}' too, or neither."
            )
        return found

    def _record_index(self) -> RecordIndex | None:
        """Make a value of Hudi's words for a record-level index; None if there are none."""
        word = _TYPES.get((self.text(_TYPE) or "").upper())
        is_dynamic = (self.text(_ENGINE) or "").upper() == BucketEngine.DYNAMIC
        if word not in RECORD_LEVEL or "index" in self._values:
            return None
        if word == IndexType.RECORD_LEVEL_INDEX and is_dynamic:
            return None  # the two go together
        said = [name for name in _INDEX_WORDS if name in self._values]
        if said:
            raise ConfigError(
                f"{self._values[said[0]].name}, at {self._place(said[0])}, is {self.text(said[0])!r}, and "
                f"{self._values[_TYPE].name} is {self.text(_TYPE)!r}, which has no buckets. Drop one of them."
            )
        stays = _MOVES in self._values and not self.flag(_MOVES)
        index = told(RecordIndex(word == IndexType.RECORD_LEVEL_INDEX, update_partition=not stays))
        assert isinstance(index, RecordIndex)
        return index

    def _check_type(self, engine: str | None) -> None:
        """Refuse a type that `index` contradicts."""
        word = _TYPES.get((self.text(_TYPE) or "").upper())
        if word is None or "index" not in self._values:
            return
        if (engine if engine in RECORD_LEVEL else IndexType.BUCKET) != word:
            raise ConfigError(
                f"index, at {self._place('index')}, is {self.text('index')!r}, and {self._values[_TYPE].name}, at "
                f"{self._place(_TYPE)}, is {self.text(_TYPE)!r}: the first says all about the index. Drop the other."
            )

    def _check_enabled(self, engine: str | None) -> None:
        """Refuse a metadata table, or a part of it, that is said to be what the index does not make it."""
        for name, word in {**_ENABLED, "metadata": None}.items():
            if name not in self._values:
                continue
            is_on, is_needed = self.flag(name), engine == word or (word is None and engine in RECORD_LEVEL)
            if is_needed and not is_on:
                raise ConfigError(
                    f"{self._values[name].name}, at {self._place(name)}, is {self.text(name)!r}, and the table finds "
                    f"its keys by an index that is kept there: {engine}. Drop it, or choose buckets."
                )
            if is_on and word is not None and not is_needed:
                kind = ", per_partition => true" if word == IndexType.RECORD_LEVEL_INDEX else ""
                raise ConfigError(
                    f"{self._values[name].name}, at {self._place(name)}, is {self.text(name)!r}, and keys are found "
                    f"by {engine or 'buckets'}. Give {_TYPE} = '{word}' to find them by this index; or make the table "
                    f"without, then give it one beside its buckets: CALL metadata.build(record_index => true{kind})."
                )

    def _buckets(self) -> IndexValue | None:
        said = [name for name in _INDEX_WORDS if name in self._values]
        if "index" in self._values:
            if said:
                raise ConfigError(
                    f"index, at {self._place('index')}, is {self.text('index')!r}, and {self._values[said[0]].name}, "
                    f"at {self._place(said[0])}, is {self.text(said[0])!r}: the first says all about the index. Give "
                    f"one of them."
                )
            return index_of_text(self.text("index") or "")
        if not said:
            return None
        if (self.text(_ENGINE) or "").upper() == BucketEngine.DYNAMIC:
            for name in (_COUNT, _FIELDS, _RULES, _RULE_TYPE, "virtualLogs"):
                self._refuse_beside(name, _ENGINE)
            assigners, keys, size = (self.count(name) for name in _DYNAMIC)
            return told(
                DynamicBuckets(
                    ASSIGNERS_DEFAULT if assigners is None else assigners,
                    KEYS_DEFAULT if keys is None else keys,
                    BYTES_DEFAULT if size is None else size,
                    self.flag("verifyHits"),
                )
            )
        for name in (*_DYNAMIC, "verifyHits"):
            if name in self._values:
                raise ConfigError(
                    f"{self._values[name].name}, at {self._place(name)}, is {self.text(name)!r}, and {_ENGINE} is "
                    f"{self.text(_ENGINE) or BucketEngine.SIMPLE}; expected {BucketEngine.DYNAMIC}: only its buckets "
                    f"open as others fill."
                )
        count = self.count(_COUNT)
        buckets = BUCKETS_DEFAULT if count is None else count
        fields, rules = self.names(_FIELDS), self.text(_RULES)
        for kind in (ConsistentBuckets, ExtendibleBuckets):
            if (self.text(_ENGINE) or "").upper() == kind.engine:
                self._refuse_beside(_RULES, _ENGINE)
                self._refuse_beside(_RULE_TYPE, _ENGINE)
                return told(kind(buckets, fields, self.flag("virtualLogs")))
        if self.flag("virtualLogs"):
            raise ConfigError(
                f"{self._values['virtualLogs'].name}, at {self._place('virtualLogs')}, is true, and {_ENGINE} is "
                f"{self.text(_ENGINE) or BucketEngine.SIMPLE}; expected {BucketEngine.CONSISTENT_HASHING} or "
                f"{BucketEngine.EXTENDIBLE_HASHING}: only their buckets are resized."
            )
        if rules is None:
            if _RULE_TYPE in self._values:
                raise ConfigError(
                    f"{self._values[_RULE_TYPE].name}, at {self._place(_RULE_TYPE)}, names a type of rules, and there "
                    f"are no rules. Give {_RULES} too, or neither."
                )
            return told(SimpleBuckets(buckets, fields))
        return told(PartitionBuckets(rules, buckets, fields, self.text(_RULE_TYPE) or RULE_TYPE))

    def _refuse_beside(self, name: str, other: str) -> None:
        if name in self._values:
            raise ConfigError(
                f"{self._values[name].name}, at {self._place(name)}, is {self.text(name)!r}, and {other} is "
                f"{self.text(other)!r}, whose buckets grow by themselves: it means nothing there. Drop one of them."
            )

    def _bad(self, name: str, expected: str) -> ConfigError:
        pair: Any = self._values[name]
        return ConfigError(f"{pair.name}, at {self._place(name)}, is {pair.value!r}; expected {expected}.")

    def _place(self, name: str) -> str:
        return place(self._text, self._values[name].at.start)
