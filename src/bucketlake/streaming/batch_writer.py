"""What Spark calls for every batch of a stream: upserts it, unless the table has it already.

It runs where Spark runs it: in the driver of a classic session, or on the server of Spark Connect, in a process that
knows nothing of the one which started the query. So it is a value that travels, and finds all else by itself: which
stream this is, from the checkpoint. What makes each batch count once is in `stream`; after a commit, what is due of
services is begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from bucketlake import given
from bucketlake.arguments import StreamArguments, WriteArguments
from bucketlake.config import load_properties
from bucketlake.errors import ConfigError, UnsupportedError, shown
from bucketlake.index import IndexValue
from bucketlake.services import asked_maintenance
from bucketlake.storage import Store, open_store
from bucketlake.streaming.checkpoint import check_query, query_id
from bucketlake.streaming.stream import Stream, check_pipelined
from bucketlake.streaming.upkeep import Upkeep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(slots=True)
class _Run:
    """What a writer has found out, in the process where Spark calls it."""

    stream: Stream
    upkeep: Upkeep


@dataclass(slots=True, kw_only=True, eq=False)
class BatchWriter:
    """Upserts the batches of one stream: `frame.writeStream.foreachBatch(table.batch_writer(checkpoint=path))`."""

    store: Store
    told: IndexValue | None
    checkpoint: str
    storage_options: Mapping[str, str] | None = None
    """Of the checkpoint's store."""
    name: str = ""
    identifier: str = ""
    verify_replay: bool = False
    accept_checkpoint: bool = False
    pipelined: bool = False
    runs_services: bool = True
    """Beside the stream."""
    options: WriteArguments = field(default_factory=WriteArguments)
    _run: _Run | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        told = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "_run"}
        return _made, (told,)

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Write a batch, if it is not in the table."""
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ConfigError(f"the number of the batch is {shown(number)}; expected Spark's, from 0 on.")
        run = self._found(frame, number)
        summary = run.stream.upsert(frame, number)
        if summary is not None and summary.instant is not None:
            run.upkeep.after_commit(summary.number, frame.sparkSession)
            run.stream.behind = run.upkeep.behind

    def join(self) -> None:
        """Wait for services that run beside the stream, in this process."""
        if self._run is not None:
            self._run.upkeep.join()

    def _found(self, frame: DataFrame, number: int) -> _Run:
        """Find out which stream this is. A first batch may be that of a new checkpoint in the place of another."""
        if self._run is None or number == 0:
            stream = query_id(self.checkpoint, frame.sparkSession, self.storage_options)
            if self._run is None or self._run.stream.id != stream:
                self._run = _Run(self._stream(stream), Upkeep(self.store, self.runs_services))
        check_query(self._run.stream.id, self.checkpoint, frame.sparkSession)
        return self._run

    def _stream(self, stream: str) -> Stream:
        options: WriteArguments = {**self.options}
        if self.runs_services:
            options["maintenance"] = "off"  # they run beside the batches
        return Stream(
            store=self.store,
            id=stream,
            told=self.told,
            checkpoint=self.checkpoint,
            name=self.name,
            identifier=self.identifier,
            verify_replay=self.verify_replay,
            accept_checkpoint=self.accept_checkpoint,
            pipelined=self.pipelined,
            options=options,
        )


BESIDE = "beside"
"""The word for services that run in the driver, and make no batch wait."""


def made_writer(
    store: Store, told: IndexValue | None, checkpoint: str, arguments: StreamArguments
) -> BatchWriter:
    """Check what a caller gave, and make a writer of it."""
    given.known(arguments, StreamArguments)
    of_writes = {name: value for name, value in arguments.items() if name in WriteArguments.__annotations__}
    maintenance = of_writes.pop("maintenance", None)
    is_beside = maintenance in (None, BESIDE)
    if not is_beside:
        try:
            asked_maintenance(maintenance)
        except ConfigError as fault:
            raise ConfigError(f"{fault} For a stream, {BESIDE!r} too.") from None
        of_writes["maintenance"] = maintenance
    _check_place(checkpoint, arguments.get("storage_options"), store)
    return BatchWriter(
        store=store,
        told=told,
        checkpoint=checkpoint,
        storage_options=arguments.get("storage_options"),
        name=given.text(arguments.get("name", ""), "name"),
        identifier=given.text(arguments.get("identifier", ""), "identifier"),
        verify_replay=given.flag(arguments.get("verify_replay", False), "verify_replay"),
        accept_checkpoint=given.flag(arguments.get("accept_checkpoint", False), "accept_checkpoint"),
        pipelined=_checked_pipelined(arguments, store),
        runs_services=is_beside,
        options=cast("WriteArguments", of_writes),
    )


def _check_place(checkpoint: str, storage_options: Mapping[str, str] | None, store: Store) -> None:
    if not checkpoint:
        raise ConfigError("the checkpoint is an empty text; expected Spark's folder of the query.")
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise ConfigError(
            f"storage_options is {shown(storage_options)}; expected a mapping of names to texts."
        )
    try:
        place = open_store(checkpoint, storage_options).uri.rstrip("/")
    except UnsupportedError:
        return  # a file system that only Spark knows
    if place == store.uri.rstrip("/"):
        raise ConfigError(
            f"the checkpoint {checkpoint!r} is the folder of the table, where Spark's folders would be taken for "
            f"partitions. Give a folder of its own."
        )


def _checked_pipelined(arguments: StreamArguments, store: Store) -> bool:
    is_pipelined = given.flag(arguments.get("pipelined", False), "pipelined")
    if is_pipelined:
        check_pipelined(load_properties(store), store)
    return is_pipelined


def _made(told: dict[str, Any]) -> BatchWriter:
    return BatchWriter(**told)
