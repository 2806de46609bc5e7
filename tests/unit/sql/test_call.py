"""CALL of the bucket index manager: every spelling that Hudi or its design has, and what is wrong with others."""

from __future__ import annotations

import re

import pytest

from bucketlake.errors import ConfigError
from bucketlake.sql.call import ManagerAction, ManagerCall
from bucketlake.sql.parse import PassThrough, parse

OVERWRITE = ManagerCall(
    table="orders", action=ManagerAction.OVERWRITE, rules="2024-.*,8", bucket_number=2, dry_run=False
)


@pytest.mark.parametrize(
    "text",
    [
        "CALL partition_bucket_index_manager("
        "table => 'orders', overwrite => '2024-.*,8', bucket_number => 2, dry_run => false)",
        "call partitionBucketIndexManager("
        "table => 'orders', overwrite => '2024-.*,8', bucket-number => '2', dry-run => 'false')",
        "call `partitionBucketIndexManager`("
        'TABLE => "orders", Overwrite => "2024-.*,8", `bucket_number` => 2, DRY-RUN => FALSE);',
        "call partitionBucketIndexManager("
        "'dry-run' = 'false', 'table' = 'orders', overwrite => '2024-.*,8', bucket-number => 2)",
        "CALL partition_bucket_index_manager('orders', '2024-.*,8', 2, NULL, false)",
        "CALL partition_bucket_index_manager('orders', '2024-.*,8', 2, dry_run => false, show_config => false)",
        "CALL /* now */ partition_bucket_index_manager( -- for good\n'orders', '2024-.*,8', 2, dry-run => false)",
    ],
)
def test_all_spellings_mean_the_same(text: str) -> None:
    assert parse(text, ()) == OVERWRITE


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("add => 'a,1'", ManagerCall(table="t", action=ManagerAction.ADD, rules="a,1")),
        (
            "add => 'a,1', bucket-number => -1, rule => 'year', options => 'x=1, y = a=b'",
            ManagerCall(
                table="t", action=ManagerAction.ADD, rules="a,1", rule="year", options={"x": "1", "y": "a=b"}
            ),
        ),
        (
            "rollback => '20260618093000000', dry_run => false",
            ManagerCall(table="t", action=ManagerAction.ROLLBACK, instant="20260618093000000", dry_run=False),
        ),
        (
            "rollback => 20260618093000000",
            ManagerCall(table="t", action=ManagerAction.ROLLBACK, instant="20260618093000000"),
        ),
        (
            "rollback => '20260618093000000', with-newer => true",
            ManagerCall(
                table="t", action=ManagerAction.ROLLBACK, instant="20260618093000000", with_newer=True
            ),
        ),
        ("show-config => true", ManagerCall(table="t", action=ManagerAction.SHOW_CONFIG)),
        (r"overwrite => '\\d+,4'", ManagerCall(table="t", action=ManagerAction.OVERWRITE, rules=r"\d+,4")),
        (r"overwrite => '\d+,4'", ManagerCall(table="t", action=ManagerAction.OVERWRITE, rules=r"\d+,4")),
    ],
)
def test_every_action_has_its_arguments_and_a_dry_run_is_the_default(
    arguments: str, expected: ManagerCall
) -> None:
    assert parse(f"CALL partition_bucket_index_manager(table => 't', {arguments})", ()) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", r"found 'CALL' at position 0 .*expected one of overwrite, add, rollback"),
        ("table => 't'", r"one of overwrite, add, rollback, show_config"),
        ("table => 't', show_config => false", r"one of overwrite, add, rollback, show_config"),
        ("table => 't', add => 'a,1', overwrite => 'b,1'", r"found \"?'a,1'.*one of overwrite"),
        (
            "table => 't', ad => 'a,1'",
            r"found 'ad' at position 50 .*expected an argument's name: table, overwrite",
        ),
        ("table => 't', add => 'a,1', add => 'b,1'", r"found 'add' .*expected add once"),
        ("table => 't', 'a,1'", r"arguments without a name come before"),
        ("'t', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1", r"no more than 9"),
        ("table => 't', add => ", r"found '\)' .*expected a value"),
        ("table => 't', add => a", r"found 'a' .*in quotes"),
        ("table => t, add => 'a,1'", r"found 't' .*in quotes"),
        ("table => ' ', add => 'a,1'", r"not empty"),
        ("table => 5, add => 'a,1'", r"found '5' at .*a text in quotes"),
        ("table => 't' add => 'a,1'", r"found 'add' .*expected ',' and another argument"),
        ("table => 't', add => 'a,1',", r"another argument after ','"),
        ("table => 't', add => 'a,1', bucket_number => 0", r"found '0' .*from 1, or -1"),
        ("table => 't', add => 'a,1', bucket_number => -2", r"from 1, or -1"),
        ("table => 't', add => 'a,1', bucket_number => 1.5", r"from 1, or -1"),
        ("table => 't', add => 'a,1', dry_run => 1", r"found '1' .*TRUE or FALSE"),
        ("table => 't', rollback => 'yesterday'", r"an instant of the timeline"),
        ("table => 't', rollback => '1', bucket_number => 4", r"bucket_number only with overwrite or add"),
        ("table => 't', add => 'a,1', with_newer => true", r"with_newer only with rollback"),
        ("table => 't', rollback => '1', with_newer => 1", r"found '1' .*TRUE or FALSE"),
        ("table => 't', show_config => true, rule => 'year'", r"rule only with overwrite or add"),
        ("table => 't', add => 'a,1', options => 'x'", r"options such as"),
    ],
)
def test_a_mistake_is_told_with_its_place(arguments: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"at position [0-9]+ (?s:.)*expected") as error:
        parse(f"CALL partition_bucket_index_manager({arguments})", ())
    assert re.search(f"(?s){message}", str(error.value)), error.value


def test_what_follows_the_call_is_refused_and_other_procedures_are_spark_s() -> None:
    with pytest.raises(ConfigError, match=r"found 'x' .*expected the end"):
        parse("CALL partition_bucket_index_manager('t', 'a,1') x", ())
    with pytest.raises(ConfigError, match=r"found the end .*expected ',' and another"):
        parse("CALL partition_bucket_index_manager('t', 'a,1'", ())
    assert parse("CALL show_commits('t')", ()) == PassThrough("CALL show_commits('t')")
