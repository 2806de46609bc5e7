"""Claims: where writers agree, once and for all, on what becomes of an instant.

    .hoodie/.bucketlake/commits/<number>    {"instant": T, "action": ..., "outcome": ..., "completed": C, ...}

A completed instant's file name holds its completion time, so two processes that complete one instant, or one that
completes it while another rolls it back, would not meet in one name. They meet here: numbers are taken in turn with
`put_new`, and who has taken one does what it says. It says everything that has to be decided, so that whoever
finishes a claim which its maker did not live to finish does exactly the same.

1. A number is taken only after the one before it is settled: its instant is published, or void (no longer pending).
   So at most the newest claim is open, and an open one is for the next comer to finish.
2. What the claims say is read before the timeline, and a number is taken after both: who was overtaken in between
   finds the number taken.
3. A plan that is put on the timeline is claimed too. A compaction takes in what completed before its instant and
   leaves out what completes after it; so no commit may be on its way when its instant is chosen, and whoever commits
   next must know of it.
4. Old claims are deleted. A writer that slept through all of that could take a number that was used before; it
   looks again after taking one, and gives it back if there is a higher one. If it dies in between, no harm is done
   by rule 1: only the newest claim of a commit counts.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum

from bucketlake.errors import CorruptTableError
from bucketlake.layout.names import CLAIM_FOLDER, claim_path, parse_claim_number, split_path
from bucketlake.storage import Store
from bucketlake.timeline import Action, Timeline

CLAIMS_KEPT = 64


class Outcome(StrEnum):
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SCHEDULE = "schedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What becomes of an instant, decided."""

    number: int
    instant: str
    action: Action
    outcome: Outcome
    completed: str
    """The completion time: of the instant, or of the rollback that takes it back. Of a plan, its own instant."""
    rollback: str | None = None
    """The requested time of that rollback."""
    plan: str | None = None
    """What a plan's requested file says, as text: see `packed`."""
    keeps_plan: bool = False
    """Of a rollback: it takes back what was run of a plan, which may be run again then."""
    metadata_completed: str | None = None
    """When the same is completed in the metadata table, which is first; None if there is none to keep."""
    is_of_metadata: bool = False
    """Of a plan: it is one of the metadata table, and goes on that timeline."""
    metadata_partitions: tuple[str, ...] = ()
    """Which of its partitions are told."""
    metadata_columns: tuple[str, ...] = ()
    """The columns that it has statistics of."""


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a table, as they were when they were listed."""

    store: Store
    numbers: tuple[int, ...]
    """Sorted."""
    newest: Claim | None

    @property
    def next_number(self) -> int:
        return self.numbers[-1] + 1 if self.numbers else 1

    def rollback_of(self, instant: str) -> Claim | None:
        """Return the claim that `instant` is rolled back, if there is one."""
        for claim in self._newest_first():
            if claim.instant == instant and claim.outcome is Outcome.ROLLBACK:
                return claim
            # Completion times grow with the numbers, and a claim is later than its instant.
            if claim.completed < instant:
                return None
        return None

    def _newest_first(self) -> Iterator[Claim]:
        if self.newest is None:
            return
        yield self.newest
        for number in reversed(self.numbers):
            if number < self.newest.number and (claim := _read_claim(self.store, number)):
                yield claim


def packed(body: bytes) -> str:
    """Turn the body of a requested file into text for a claim.

    >>> unpacked(packed(b"plan"))
    b'plan'
    """
    return base64.b64encode(zlib.compress(body)).decode()


def unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def list_claims(store: Store) -> Claims:
    """List the claims of a table, and read the newest."""
    numbers = _numbers(store)
    newest = next((claim for n in reversed(numbers) if (claim := _read_claim(store, n))), None)
    return Claims(store, numbers, newest)


def take(store: Store, claim: Claim) -> bool:
    """Take the claim's number; False if somebody else has it, or a later one."""
    is_ours = store.put_new(claim_path(claim.number), _render(claim))
    # It may be ours all the same, if an answer was lost on the way and the request repeated.
    if not is_ours and _read_claim(store, claim.number) != claim:
        return False
    if any(number > claim.number for number in _numbers(store)):
        store.delete(claim_path(claim.number))
        return False
    return True


def forget_old(store: Store, claim: Claim) -> None:
    """Delete claims that nobody asks for any more, now and then: after every `CLAIMS_KEPT` new ones."""
    if claim.number % CLAIMS_KEPT == 0:
        for number in _numbers(store)[:-CLAIMS_KEPT]:
            store.delete(claim_path(number))


def latest_time(timeline: Timeline, claims: Claims) -> str:
    """Return the latest time that anybody has used: every new one must be later."""
    times = [time for i in timeline.instants for time in (i.requested, i.completed) if time is not None]
    return max([*times, claims.newest.completed if claims.newest else ""])


def _numbers(store: Store) -> tuple[int, ...]:
    found = (parse_claim_number(split_path(file.path)[1]) for file in store.list(CLAIM_FOLDER).files)
    return tuple(sorted(number for number in found if number is not None))


def _render(claim: Claim) -> bytes:
    return json.dumps(asdict(claim), indent=1).encode()


def _read_claim(store: Store, number: int) -> Claim | None:
    """Read a claim; None if it was forgotten meanwhile."""
    path = claim_path(number)
    try:
        body = json.loads(store.read(path))
        return Claim(
            number=number,
            instant=str(body["instant"]),
            action=Action(body["action"]),
            outcome=Outcome(body["outcome"]),
            completed=str(body["completed"]),
            rollback=body["rollback"],
            plan=body.get("plan"),
            metadata_completed=body.get("metadata_completed"),
            is_of_metadata=bool(body.get("is_of_metadata", False)),
            # Claims of old do not say them, and knew of `files` only.
            metadata_partitions=tuple(body.get("metadata_partitions", ())),
            metadata_columns=tuple(body.get("metadata_columns", ())),
            # Claims of old do not say it, and the only plans they took back whole were resizes'.
            keeps_plan=bool(
                body.get("keeps_plan", Action(body["action"]) in (Action.COMPACTION, Action.LOG_COMPACTION))
            ),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as fault:
        raise CorruptTableError(
            path=path,
            found=f"text that is no claim ({fault})",
            expected='{"instant": ..., "action": ..., "outcome": ..., "completed": ..., "rollback": ...}',
            remedy="If the instant it was for is completed, or gone, delete the file.",
        ) from fault
