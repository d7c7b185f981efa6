"""A link that was down, told from what its interface's counters said at each sample."""

import pytest

from pktswarm.master.cluster.link_outages import Outages

S = 1_000_000_000


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([(1, 0, 0), (2, 0, 0)], []),
        ([(1, 0, 0), (2, 1, 0), (3, 1, 0), (4, 1, 1)], ["was down from 2.00 s to 4.00 s after the start"]),
        ([(1, 0, 0), (2, 1, 0)], ["was down from 2.00 s on after the start"]),
        ([(1, 0, 0), (2, 2, 2)], ["was down from 2.00 s to 2.00 s after the start (2 times)"]),
        (
            [(1, 1, 1), (2, 1, 1), (3, 2, 1)],
            ["from 1.00 s to 1.00 s", "from 3.00 s on"],
        ),
    ],
)
def test_outages(samples: list[tuple[int, int, int]], words: list[str]) -> None:
    link = Outages()
    for at_s, downs, ups in samples:
        link.take(at_s * S, {"link_downs": downs, "link_ups": ups})
    told = link.describe("eth1")
    assert len(told) == len(words) and all(part in one for part, one in zip(words, told, strict=True))
