"""A table's metadata must not be able to name a file outside of the table."""

from __future__ import annotations

import pytest

from bucketlake.errors import UnsafePathError
from bucketlake.storage.paths import check_path
from bucketlake.testing.store_contract import ODD_NAMES, UNSAFE_PATHS


@pytest.mark.parametrize("path", ["", *UNSAFE_PATHS])
def test_an_unsafe_path_is_refused_and_named(path: str) -> None:
    with pytest.raises(UnsafePathError) as refusal:
        check_path(path)
    assert repr(path) in str(refusal.value)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_an_odd_name_is_not_unsafe(name: str) -> None:
    check_path(name)
    check_path(f"a/{name}/b")
