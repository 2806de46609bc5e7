"""Rules must mean here what they mean on the JVM, or be refused: two readings split a partition's layout."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Sequence

import pytest

from bucketlake.errors import ConfigError, UnsupportedError
from bucketlake.index import BUCKETS_MAX, Rules, declare_rules, parse_rules, resolved_counts


@pytest.mark.shows("P1")
@pytest.mark.parametrize(
    ("expressions", "partition", "count"),
    [
        ("2024-01-0[12],4;2024-.*,8", "2024-01-02", 4),
        ("2024-01-0[12],4;2024-.*,8", "2024-02-01", 8),
        ("2024-01-0[12],4;2024-.*,8", "2023-12-31", 2),
        ("b,3", "abc", 3),  # found anywhere
        ("^b,3", "abc", 2),
        ("b$,3", "abc", 2),
        ("c$,3", "abc", 3),
        ("c$,3", "abc\n", 3),  # before a closing line end, as in Java
        ("c$,3", "abc\r\n", 3),
        ("c$|^x,3", "x/y", 3),
        ("(a|c$),3", "bc", 3),
        ("a.c,3", "a\u2028c", 2),
        ("a.c,3", "a😀c", 3),
        (r"\d,3", "٣", 2),  # ASCII digits only
        (r"^\w+$,3", "é", 2),
        (r"a\sb,3", "a\x0bb", 3),
        (r"^[\s]+$,3", "\x0b", 3),
        ("[^a-c],3", "abc", 2),
        (r"[a\-z],3", "-", 3),
        ("[a-],3", "-", 3),
        (r"1\.5,3", "1x5", 2),
        ("ü,3", "dt=ü", 3),
        ("(?:ab){2},3", "xabab", 3),
        ("a+?b,3", "aab", 3),
        (" dt=1 , 3 ; x,5;", "dt=1", 3),
        ("dt=1,+3", "dt=1", 3),
        (",", "", None),
    ],
)
def test_the_first_rule_that_is_found_wins(expressions: str, partition: str, count: int | None) -> None:
    if count is None:
        with pytest.raises(ConfigError):
            parse_rules(expressions)
        return
    assert Rules(parse_rules(expressions), 2).count_of(partition) == count


@pytest.mark.shows("P1")
@pytest.mark.parametrize(
    ("expressions", "position"),
    [
        ("", 0),
        ("a", 1),
        ("a,1;b", 5),
        ("a,x", 2),
        ("a,0", 2),
        ("a,-1", 2),
        ("a,1,2", 2),
        ("a,2147483648", 2),
        ("a,1;;b,2", 4),
        ("a,1; ,2", 4),
        ("a(b,1", 1),
        ("ab),1", 2),
        ("[ab,1", 0),
        ("x*,1;*a,1", 5),
        ("a{x},1", 1),
        ("[z-a],1", 1),
        ("a\\,1", 1),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_at_its_position(expressions: str, position: int) -> None:
    with pytest.raises(ConfigError, match=rf"position {position}\b"):
        parse_rules(expressions)


@pytest.mark.shows("P1")
@pytest.mark.parametrize(
    ("expressions", "position"),
    [
        ("(a+)+,1", 0),
        ("x(a|b)*,1", 1),
        ("(a?b)*,1", 0),
        ("a++,1", 2),
        ("(?i)a,1", 0),
        ("(?=a),1", 0),
        (r"\bx,1", 0),
        (r"\p{L},1", 0),
        (r"a\1,1", 1),
        ("a$b,1", 1),
        ("(a$)b,1", 2),
        ("(a$|b)c,1", 2),
        ("^*,1", 0),
        ("a},1", 1),
        ("a],1", 1),
        ("[a[b],1", 2),
        ("[a&&b],1", 2),
        ("[],1", 0),
        ("a{1001},1", 1),
    ],
)
def test_syntax_that_two_engines_could_read_differently_is_refused_at_its_position(
    expressions: str, position: int
) -> None:
    with pytest.raises(UnsupportedError, match=rf"position {position}\b"):
        parse_rules(expressions)


@pytest.mark.shows("P9")
def test_counts_are_remembered_up_to_a_bound_and_the_last_used_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolved_counts.PARTITIONS_KEPT == 500_000
    monkeypatch.setattr(resolved_counts, "PARTITIONS_KEPT", 3)
    monkeypatch.setattr(resolved_counts, "_counts", OrderedDict())
    asked: list[str] = []

    def resolve(partitions: Sequence[str]) -> list[int]:
        asked.extend(partitions)
        return [len(partition) for partition in partitions]

    assert resolved_counts.remembered("r", ["a", "bb", "a"], resolve) == [1, 2, 1]
    assert resolved_counts.remembered("r", ["a"], resolve) == [1]
    assert resolved_counts.remembered("other rules", ["a"], resolve) == [1]
    asked.clear()
    assert resolved_counts.remembered("r", ["ccc"], resolve) == [3]
    assert len(resolved_counts._counts) == 3
    assert resolved_counts.remembered("r", ["a", "bb"], resolve) == [1, 2]
    assert asked == ["ccc", "bb"], "bb was asked for longest ago"
    assert resolved_counts.remembered("r", ["1", "22", "333", "4444"], resolve) == [1, 2, 3, 4]


@pytest.mark.shows("P1")
def test_many_partitions_are_counted_as_one_by_one() -> None:
    rules = Rules(parse_rules("2024-01-0[12],4;2024-.*,8;b$,5"), 2)
    partitions = ["dt=2024-01-02", "dt=2024-02-01", "a/b", "", "é", "dt=2024-01-02", "b/c"]
    assert rules.counts_of(partitions) == [4, 8, 5, 2, 2, 4, 2]
    assert [rules.explain(partition).count for partition in partitions] == rules.counts_of(partitions)
    assert rules.counts_of([]) == []


@pytest.mark.shows("P1")
def test_rules_print_themselves_and_say_which_of_them_decided() -> None:
    rules = Rules(parse_rules(" 2024-01 , 4;2024,8;"), 2)
    assert str(rules) == "2024-01,4;2024,8; otherwise 2"
    assert str(rules.explain("dt=2024-02")) == "dt=2024-02: 8 buckets, by rule 2: 2024"
    assert str(rules.explain("x")) == "x: 2 buckets, the default: no rule is found in the path"
    assert pickle.loads(pickle.dumps(rules)) == rules


@pytest.mark.parametrize(("expressions", "position"), [("a,0", 2), ("a,65537", 2), ("a,1;b,99999999", 6)])
def test_declared_counts_have_a_stated_maximum(expressions: str, position: int) -> None:
    with pytest.raises(ConfigError, match=f"position {position}: expected a bucket count from 1 to 65536"):
        declare_rules(expressions, 4)
    assert declare_rules(f"a,{BUCKETS_MAX}", 4).count_of("a") == BUCKETS_MAX


@pytest.mark.parametrize("default", [0, -3, BUCKETS_MAX + 1])
def test_so_has_the_default(default: int) -> None:
    with pytest.raises(ConfigError, match=f"default bucket count is {default}; expected 1 to 65536"):
        declare_rules("a,2", default)
