"""How secondary indexes were built is a table property. Misread, a build that is done would be taken for one to go on
with."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.config import TableProperties, load_properties
from bucketlake.metadata.places import SECONDARY_BUILT
from bucketlake.metadata.secondary_index import SecondaryBuild, builds_of, render_builds
from stand_ins.orders_table import orders_table

pytestmark = pytest.mark.shows("R11")

PROPERTIES = load_properties(orders_table("memory://builds").store)
BUILT = SecondaryBuild("00000000000000003", "20260618120000000", 4)


def saying(text: str) -> TableProperties:
    return replace(PROPERTIES, raw={**PROPERTIES.raw, SECONDARY_BUILT: text})


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_=-]{1,5}", fullmatch=True).map("secondary_index_{}".format),
        st.builds(replace, st.just(BUILT), shards=st.integers(1, 10_000)),
    )
)
def test_what_is_rendered_is_read_again(builds: dict[str, SecondaryBuild]) -> None:
    assert builds_of(saying(render_builds(builds))) == builds


@pytest.mark.parametrize(
    "text",
    ["", ",", "a", "a=", "a=1_2", "a=1_2_x", "=1_2_3", "a=1_2_3_4", "00000000000000003_20260618120000000"],
)
def test_what_does_not_parse_says_nothing_of_any_index(text: str) -> None:
    assert builds_of(saying(text)) == {}
