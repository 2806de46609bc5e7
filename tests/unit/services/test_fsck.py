"""A check that misses damage is worse than none: each kind is done by hand, and must be found, and nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from bucketlake import Table, create_table
from bucketlake.commit.metadata_build import build_metadata
from bucketlake.config import update_properties
from bucketlake.layout import DataFile
from bucketlake.metadata.change import Change, change_of
from bucketlake.metadata.delta import delta_commit
from bucketlake.services.fsck import Kind, check_table
from bucketlake.state import files_of, load_state
from bucketlake.storage import LocalStore
from bucketlake.timeline import Action, encode_commit_metadata, read_commit_metadata
from bucketlake.write import ArrowRows, Operation, run_write
from bucketlake.write.report import PROOF_KEY

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("dt", pa.string())])


def rows(keys: range, name: str) -> pa.Table:
    return pa.Table.from_pylist([{"id": n, "name": name, "dt": f"p{n % 2}"} for n in keys], SCHEMA)


def new_table(path: Path, table_type: str = "COPY_ON_WRITE") -> Table:
    table = create_table(
        path, SCHEMA, key="id", partition="dt", buckets=2, table_type=table_type, name="checked"
    )
    for name in ("old", "new"):
        run_write(ArrowRows(rows(range(12), name)), table.store, Operation.UPSERT)
    return table


def found(table: Table) -> set[Kind]:
    return {finding.kind for finding in check_table(table.store).findings}


def newest_files(table: Table) -> list[DataFile]:
    state = load_state(table.store)
    newest = state.timeline.writes[-1].requested
    return [file for files in files_of(state).values() for file in files if file.instant == newest]


def rewrite(table: Table, path: str, change: Callable[[pa.Table], pa.Table], **footer: str) -> None:
    """Change the rows of a base file behind everybody's back; its footer stays as it is, or says `footer`."""
    local = Path(table.store.uri) / path
    before = pq.ParquetFile(local)
    metadata = {key: text for key, text in before.metadata.metadata.items() if b"crc32" not in key}
    metadata |= {k.replace("__", ".").encode(): v for k, v in footer.items()}
    changed = change(before.read())
    with pq.ParquetWriter(local, changed.schema, store_schema=False) as writer:
        writer.write_table(changed)
        writer.add_key_value_metadata(metadata)


def set_column(data: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return data.set_column(data.column_names.index(name), name, values)


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_sound_table_has_no_findings(tmp_path: Path, table_type: str) -> None:
    report = check_table(new_table(tmp_path, table_type).store)
    assert report.is_sound
    assert (report.rows, report.commits) == (12, 2)
    assert str(report).startswith("sound: 12 rows")


def with_metadata(path: Path) -> Table:
    table = new_table(path)
    build_metadata(table.store)
    run_write(ArrowRows(rows(range(4), "newest")), table.store, Operation.UPSERT)
    return Table.open(path)


def log_of_metadata(table: Table) -> Path:
    newest = load_state(table.store).timeline.writes[-1].requested
    [path] = Path(table.store.uri.removeprefix("file://"), ".hoodie/metadata/files").glob(
        f".files-0000-0_{newest}.log*"
    )
    return path


@pytest.mark.shows("M4")
def test_a_metadata_table_that_lacks_a_commit_is_found(tmp_path: Path) -> None:
    table = with_metadata(tmp_path / "t")
    assert found(table) == set()
    newest = load_state(table.store).timeline.writes[-1].requested
    for path in Path(table.store.uri.removeprefix("file://"), ".hoodie/metadata/.hoodie/timeline").glob(
        f"{newest}*"
    ):
        path.unlink()
    assert found(table) == {Kind.OUT_OF_STEP}
    assert f"lacks the commit of {newest}" in str(check_table(table.store))


@pytest.mark.shows("M4")
def test_a_log_of_the_metadata_table_that_is_gone_or_cut_off_is_found(tmp_path: Path) -> None:
    table = with_metadata(tmp_path / "t")
    log = log_of_metadata(table)
    content = log.read_bytes()
    log.write_bytes(content[:-9])
    assert found(table) == {Kind.UNREADABLE}
    log.unlink()
    assert found(table) == {Kind.OUT_OF_STEP}


@pytest.mark.shows("M4")
def test_files_that_the_metadata_table_lists_otherwise_than_they_are_are_found(tmp_path: Path) -> None:
    table = with_metadata(tmp_path / "t")
    newest = load_state(table.store).timeline.writes[-1]
    change = change_of(newest.action, table.store.read(newest.path), path="")
    names = sorted(change.added["p0"])
    sizes = {**change.added["p0"], names[0]: change.added["p0"][names[0]] + 1}
    added = {"p0": {**sizes, names[0].replace(newest.requested, "20240101000000000"): 7}}
    for content in delta_commit(newest.requested, Change(added=added)).files.values():
        log_of_metadata(table).write_bytes(content)
    said = [finding for finding in check_table(table.store).damage if finding.kind is Kind.WRONG_LISTING]
    texts = sorted(finding.text.partition(". ")[0] for finding in said)
    size, lacking = change.added["p0"][names[0]], change.added["p1"]
    assert texts == sorted(
        [
            f"it lists {size + 1:,} bytes, and there is {size:,} bytes",
            "it lists 7 bytes, and there is nothing",
            *(f"it lists nothing, and there is {other:,} bytes" for other in lacking.values()),
        ]
    )


def test_a_lost_file_is_found(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    lost = newest_files(table)[0].path
    table.store.delete(lost)
    report = check_table(table.store)
    assert [(f.kind, f.place) for f in report.findings if f.kind is Kind.MISSING_FILE] == [
        (Kind.MISSING_FILE, lost)
    ]
    assert lost in str(report)


def test_a_lost_log_file_is_found(tmp_path: Path) -> None:
    table = new_table(tmp_path, "MERGE_ON_READ")
    lost = newest_files(table)[0].path
    table.store.delete(lost)
    assert [f.place for f in check_table(table.store).findings] == [lost]


@pytest.mark.parametrize("is_compacted", [True, False])
def test_a_log_that_is_named_after_an_earlier_write_is_found(tmp_path: Path, is_compacted: bool) -> None:
    """So Hudi's SQL names the log of an UPDATE: after the write of the row that it changes."""
    table = new_table(tmp_path, "MERGE_ON_READ")
    earlier = newest_files(table)[0].instant
    if is_compacted:
        table.compact()
    table.upsert(rows(range(1), "lost"))
    (log,) = newest_files(table)
    named = log.path.replace(log.instant, earlier).replace(".log.1_", ".log.2_")
    table.store.put(named, table.store.read(log.path))
    table.store.delete(log.path)
    newest = load_state(table.store).timeline.writes[-1]
    said = read_commit_metadata(table.store, newest)
    stats = tuple(
        replace(stat, path=named, log_files=(Path(named).name,)) if stat.path == log.path else stat
        for stat in said.write_stats
    )
    body = encode_commit_metadata(replace(said, write_stats=stats), action=Action.DELTA_COMMIT)
    table.store.put(newest.path, body)
    report = check_table(table.store)
    (finding,) = (one for one in report.damage if one.kind is Kind.MISNAMED_LOG)
    assert finding.place == named
    assert f"the write of {log.instant} put it under the instant of {earlier}" in finding.text
    assert ("do not see its rows" in finding.text) is is_compacted
    assert ("lost" in table.to_arrow()["name"].to_pylist()) is not is_compacted
    assert "hoodie.spark.sql.optimized.writes.enable=false" in str(report)


def test_a_file_of_no_write_is_an_orphan(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    path = newest_files(table)[0].path
    instant = newest_files(table)[0].instant
    orphan = path.replace(instant, str(int(instant) + 1))
    table.store.put(orphan, table.store.read(path))
    report = check_table(table.store)
    assert [(f.kind, f.place) for f in report.findings] == [(Kind.ORPHAN, orphan)]
    assert report.is_sound and "archive deletes" in str(report)


def test_a_file_that_its_commit_does_not_name_is_found(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    path = newest_files(table)[0].path
    table.store.put(path.replace("_1-0-1_", "_1-0-0_"), table.store.read(path))
    assert found(table) == {Kind.UNNAMED_FILE, Kind.WRONG_FOOTER}, "its rows say that they are elsewhere"


def test_bytes_that_do_not_read_are_found_and_the_rest_is_still_checked(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    path = newest_files(table)[0].path
    table.store.put(path, b"x" * len(table.store.read(path)))
    report = check_table(table.store)
    assert {f.kind for f in report.findings} == {Kind.UNREADABLE}
    assert 0 < report.rows < 12


@pytest.mark.shows("X3")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_whatever_is_in_a_file_the_check_ends_in_findings(tmp_path: Path, table_type: str) -> None:
    """Files of the table, each in turn replaced by what no decoder expects."""
    table = new_table(tmp_path, table_type)
    before = check_table(table.store)
    needed = [
        file.path
        for file in table.store.list("", recursive=True).files
        if file.path.endswith((".commit", ".deltacommit", "hoodie.properties")) or ".hoodie" not in file.path
    ]
    assert len(needed) > 7
    for path in needed:
        sound = table.store.read(path)
        for bytes_there in (
            b"",
            b"\xff" * 64,
            sound[: len(sound) // 2],
            b"\xff" + sound[1:],
            sound[:-9] + b"\x80" * 9,
        ):
            table.store.put(path, bytes_there)
            report = check_table(table.store)
            # A comment that begins otherwise is a property that nobody knows; a copy is looked at when it is needed.
            is_harmless = ".bucketlake/" in path or (path.endswith("s") and bytes_there[1:] == sound[1:])
            assert report.is_sound == is_harmless, f"{path}: {bytes_there[:20]!r}"
            if path.endswith((".parquet", ".log.1_1-0-1")):
                assert 0 < report.rows <= before.rows, "the others are still read"
        table.store.put(path, sound)
    assert check_table(table.store) == before


def test_a_file_with_other_rows_than_its_commit_says_is_found(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    first, second = newest_files(table)[:2]
    table.store.put(first.path, table.store.read(second.path))
    assert {Kind.WRONG_PROOF, Kind.WRONG_FOOTER} & found(table)


def test_a_key_that_is_there_twice_is_found(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    rewrite(table, newest_files(table)[0].path, lambda data: pa.concat_tables([data, data.slice(0, 1)]))
    assert Kind.DUPLICATE_KEY in found(table)


def test_a_key_in_the_wrong_bucket_is_found(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    path = newest_files(table)[0].path

    def swap(data: pa.Table) -> pa.Table:
        keys = pc.add(data.column("id"), 1)
        return set_column(set_column(data, "id", keys), "_hoodie_record_key", pc.cast(keys, pa.string()))

    rewrite(table, path, swap)
    assert {Kind.MISPLACED_KEY, Kind.WRONG_FOOTER} <= found(table)


def test_a_key_that_is_not_that_of_its_columns_is_found(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    path = newest_files(table)[0].path
    rewrite(table, path, lambda data: set_column(data, "id", pc.add(data.column("id"), 100)))
    assert Kind.WRONG_KEY in found(table)


def test_a_row_in_the_wrong_partition_is_found(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    path = newest_files(table)[0].path

    def move(data: pa.Table) -> pa.Table:
        return set_column(data, "dt", pa.array(["elsewhere"] * data.num_rows))

    rewrite(table, path, move)
    assert Kind.WRONG_PARTITION in found(table)


def test_rows_of_an_unknown_commit_are_found(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    path = newest_files(table)[0].path

    def date(data: pa.Table) -> pa.Table:
        return set_column(data, "_hoodie_commit_time", pa.array(["20010101000000000"] * data.num_rows))

    rewrite(table, path, date)
    assert Kind.UNKNOWN_COMMIT in found(table)


def test_a_footer_that_miscounts_is_found(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    rewrite(table, newest_files(table)[0].path, lambda data: data, bucketlake__key_hash_sum="7")
    assert Kind.WRONG_FOOTER in found(table)


def test_a_file_of_another_size_is_found(tmp_path: Path) -> None:
    table = new_table(tmp_path, "MERGE_ON_READ")
    path = newest_files(table)[0].path
    table.store.put(path, table.store.read(path) * 2)
    assert {Kind.WRONG_SIZE, Kind.WRONG_PROOF} <= found(table)


@pytest.mark.parametrize("text", ["no JSON", json.dumps({"file_rows": 12, "file_key_hash_sum": 5}), "{}"])
def test_a_commit_that_proves_something_else_is_found(tmp_path: Path, text: str) -> None:
    table = new_table(tmp_path)
    newest = load_state(table.store).timeline.writes[-1]
    metadata = read_commit_metadata(table.store, newest)
    extra = {**metadata.extra, PROOF_KEY: text}
    changed = type(metadata)(
        operation=metadata.operation,
        write_stats=metadata.write_stats,
        replaced=metadata.replaced,
        extra=extra,
    )
    table.store.put(newest.path, encode_commit_metadata(changed, action=Action.COMMIT))
    assert found(table) == {Kind.WRONG_PROOF}


def test_two_file_groups_of_a_bucket_are_found(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    stat = read_commit_metadata(table.store, load_state(table.store).timeline.writes[-1]).write_stats[0]
    twin = stat.path.replace(stat.file_id, stat.file_id[:8] + "-0000-0000-0000-000000000000-0")
    table.store.put(twin, table.store.read(stat.path))
    assert {Kind.SHARED_BUCKET, Kind.UNNAMED_FILE} <= found(table)


def test_a_file_group_that_is_no_bucket_is_found(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    stat = read_commit_metadata(table.store, load_state(table.store).timeline.writes[-1]).write_stats[0]
    stray = stat.path.replace(stat.file_id, "00000009" + stat.file_id[8:])
    table.store.put(stray, table.store.read(stat.path))
    assert {Kind.STRAY_GROUP, Kind.MISPLACED_KEY} <= found(table)


def test_a_layout_that_does_not_fit_is_found(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    update_properties(table.store, {"bucketlake.key.encoding": "field:value"})
    assert found(table) == {Kind.WRONG_LAYOUT}


def test_another_bucket_count_is_found(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    update_properties(table.store, {"hoodie.bucket.index.num.buckets": "3"})
    assert Kind.MISPLACED_KEY in found(table)


def test_a_partition_that_is_not_marked_as_one_is_found(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.store.delete("p0/.hoodie_partition_metadata")
    report = check_table(table.store)
    assert {(f.kind, f.place) for f in report.findings} == {(Kind.NO_PARTITION, "p0")}


def test_what_a_dead_writer_left_is_found_and_is_no_damage(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.store.put(".hoodie/.temp/20010101000000000/p0/x_1-0-1_20010101000000000.parquet.marker.CREATE", b"")
    table.store.put(".hoodie/timeline/29990101000000000.commit.requested", b"")
    report = check_table(table.store)
    assert {f.kind for f in report.findings} == {Kind.LEFT_MARKERS, Kind.UNFINISHED}
    assert report.is_sound
    assert report.damage == ()
    assert str(report).startswith("sound: 12 rows") and "note: a write that was cut off" in str(report)


GOLDEN = Path(__file__).parents[2] / "golden"
UNFINISHED = {"cow_failed_inflight_markers", "cow_failed_inflight_timeline_markers", "mor_failed_inflight"}


@pytest.mark.parametrize(
    "name",
    sorted(
        path.name.removesuffix(".tar.gz")
        for path in GOLDEN.glob("*.tar.gz")
        if "virtual_keys" not in path.name  # they store no keys that could be checked
    ),
)
def test_tables_of_hudi_are_sound(golden_table: Callable[[str], Path], name: str) -> None:
    report = check_table(LocalStore(golden_table(name)))
    wanted = {Kind.UNFINISHED} if name in UNFINISHED else set()
    assert {finding.kind for finding in report.findings} == wanted, str(report)


def test_a_key_in_two_file_groups_of_a_table_without_buckets_is_found(
    golden_table: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(golden_table("cow_simple_bucket"), tmp_path / "copy"))
    store = LocalStore(folder)
    state = load_state(store)
    file = next(f for files in files_of(state).values() for f in files)
    store.put(file.path.replace(file.file_id, "00000009" + file.file_id[8:]), store.read(file.path))
    assert Kind.DUPLICATE_KEY in {finding.kind for finding in check_table(store).findings}


def test_tasks_are_one_per_file_group_and_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    report = check_table(
        new_table(tmp_path).store, on_progress=lambda done, total: told.append((done, total))
    )
    assert told[-1] == (report.file_groups, report.file_groups)
