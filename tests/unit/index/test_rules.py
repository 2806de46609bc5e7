"""Rules must mean here what they mean on the JVM, or be refused: two readings split a partition's layout."""

from __future__ import annotations

import pytest

from bucketlake.errors import ConfigError, UnsupportedError
from bucketlake.index import Rules, parse_rules, rules


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
def test_counts_are_cached_up_to_a_bound() -> None:
    assert rules._count_of.cache_info().maxsize == 500_000
