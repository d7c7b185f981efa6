"""UTC that is set during a run, told from readings of the two clocks beside each other."""

from __future__ import annotations

import os
from dataclasses import astuple

from pktswarm.master.cluster.utc_steps import Step, UtcSteps
from pktswarm.nodes.utc import Utc

S = 1_000_000_000


def test_readings_that_differ_by_no_more_than_they_may_be_off_are_no_step() -> None:
    utc = UtcSteps()
    for at_ns, value_ns, within_ns in ((0, 10 * S, 40_000), (1, 10 * S + 90_000, 60_000), (2, 10 * S + 100, 101)):
        utc.take(at_ns, value_ns, within_ns)
    assert utc.found == []


def test_a_step_is_told_with_its_size_and_to_the_distance_of_two_readings() -> None:
    utc = UtcSteps()
    for at_ns, value_ns in ((S, 50), (2 * S, 50), (3 * S, 50 - 2 * S), (4 * S, 50 - 2 * S)):
        utc.take(at_ns, value_ns, 1_000)
    assert utc.found == [Step(-2 * S, 2 * S, 3 * S)]
    assert utc.found[0].describe(S) == "its UTC was set by -2.000000 s in all between 1.00 s and 2.00 s after the start"


def test_a_step_there_and_back_is_two_steps() -> None:
    utc = UtcSteps()
    for at_ns, value_ns in enumerate((0, 2 * S, 0)):
        utc.take(at_ns, value_ns, 1_000)
    assert [step.by_ns for step in utc.found] == [2 * S, -2 * S]


def test_small_steps_that_add_up_are_seen_beside_the_closest_reading() -> None:
    utc = UtcSteps()
    for at_ns, value_ns in enumerate((0, 900, 1_800, 2_700)):  # each within what two poor readings may differ by
        utc.take(at_ns, value_ns, 100 if at_ns == 0 else 1_000)
    assert [step.by_ns for step in utc.found] == [1_800]


def test_readings_of_this_machine_are_no_step() -> None:
    utc, here = UtcSteps(), Utc()
    here.was_set()
    for at_ns in range(1000):
        utc.take(at_ns, *astuple(here.read()))
    os.close(here.descriptor)
    assert utc.found == []


def test_one_that_was_set_and_set_back_between_two_readings_is_not_missed() -> None:
    utc = UtcSteps()
    for at_ns, was_set in ((S, False), (2 * S, True), (3 * S, False)):
        utc.take(at_ns, 50, 1_000, was_set)
    assert utc.found == [Step(None, S, 2 * S)]
    assert utc.found[0].describe(S) == "its UTC was set and set back between 0.00 s and 1.00 s after the start"


def test_a_step_that_is_read_is_not_told_again_as_one_and_back() -> None:
    """The reading that finds it may be one that was not asked whether it was set."""
    utc = UtcSteps()
    readings = ((0, False), (0, False), (2 * S, None), (2 * S, True), (2 * S, False), (0, True), (0, False), (0, True))
    for at_ns, (value_ns, was_set) in enumerate(readings):
        utc.take(at_ns, value_ns, 1_000, was_set)
    assert [step.by_ns for step in utc.found] == [2 * S, -2 * S, None]
