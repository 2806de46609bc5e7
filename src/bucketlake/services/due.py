"""What a service would do, and what it did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Plan(Protocol):
    """What a service has decided on; prints."""

    @property
    def is_empty(self) -> bool: ...


P = TypeVar("P", bound=Plan, covariant=True)
D = TypeVar("D", covariant=True)


@dataclass(frozen=True, slots=True)
class Due(Generic[P]):
    """What a service would do: finish what is pending, then carry out a plan. Prints as both."""

    service: str
    pending: tuple[str, ...]
    """Instants that were planned and not completed, or cut off."""
    plan: P

    @property
    def is_empty(self) -> bool:
        return not self.pending and self.plan.is_empty

    def __str__(self) -> str:
        return "\n".join(
            [*(f"finish the pending {self.service} {instant}" for instant in self.pending), str(self.plan)]
        )


@dataclass(frozen=True, slots=True)
class Done(Generic[D]):
    """What a service did, one by one; prints as that."""

    runs: tuple[D, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.runs)) or "nothing to do"
