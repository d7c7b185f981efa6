"""The figures of a run while it goes, from the nodes' events; how they are shown, asked for and served."""

from __future__ import annotations

import fcntl
import io
import json
import re
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from typer.testing import CliRunner

from pktswarm.master.cli.app import app
from pktswarm.master.live import status, view
from pktswarm.master.live.document import LiveDocument
from pktswarm.master.live.expected_sent import ExpectedSent
from pktswarm.master.live.figures import Figures
from pktswarm.master.live.metrics import Served
from pktswarm.master.live.rate_window import RateWindow, combine
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.results.folder import Folder
from pktswarm.master.results.ledger import Ledger, Sessions, Shown
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.protocol.rank0_events import Drift, Rank0Event
from pktswarm.traffic.schedule.due_times import due_times, exponential_gaps, intended_packets
from result_folders import FRAME_BYTES, Made, leg
from run_events import as_event

SECOND = 1_000_000_000
LABELS = ("scenario", "stream", "group", "node", "role")


class Going(Made):
    """A run of 3 s in which each leg sends 100 packets/s, told up to a time."""

    def up_to(self, seconds: float, events: Sequence[Rank0Event] = ()) -> tuple[Figures, Ledger]:
        self.ranks_now = self.ranks()
        ledger = self.ledger_now = Ledger(self.ranks_now)
        ledger.resolved = Resolved(list(self.legs))
        figures = Figures(self.name, self.seconds)
        samples = [
            as_event(
                {"event": "sample", "rank": rank.number, "at_ns": self._at_ns(tick / 10), **self._told(rank, tick / 10)}
            )
            for tick in range(int(seconds * 10) + 1)
            for rank in self.ranks_now
        ]
        for event in [*self._begin(), *samples, *events]:
            ledger.take(event)
            figures.take(ledger, event)
        return figures, ledger

    def _told(self, rank: Any, at_s: float) -> dict[str, Any]:
        return self._sample(rank, self._of(rank), at_s)

    @staticmethod
    def _at_ns(at_s: float) -> int:
        """On the node's clock: what `_begin` tells of it."""
        return int(at_s * SECOND) + 1_000 + 50


def document(seconds: float = 2.0, events: Sequence[Rank0Event] = (), **made: Any) -> LiveDocument:
    figures, ledger = Going(**made).up_to(seconds, events)
    return figures.document(ledger)


def shown(told: LiveDocument, width: int = 160, height: int = 40) -> str:
    console = Console(file=io.StringIO(), width=width, height=height)
    console.print(view.screen(told, width, height))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


# --- figures ---------------------------------------------------------------------------------------------------------


def test_sessions_are_told_until_their_phase_is_over() -> None:
    told: list[Shown] = [
        as_event({"event": "phase", "name": "sessions", "at_ns": 1}),
        Sessions(41_000, 100_000),
    ]
    figures, ledger = Figures("upf", 1.0), Ledger([])
    for event in told:
        figures.take(ledger, event)
    assert view.line(figures.document(ledger)) == "setting up the sessions, 41,000 of 100,000"
    figures.take(ledger, as_event({"event": "phase", "name": "clocks", "at_ns": 2}))
    assert figures.document(ledger)["sessions"] is None


def test_a_rate_is_of_the_last_second_and_a_count_since_the_start() -> None:
    track = RateWindow()
    for tick in range(31):
        track.take(tick * SECOND // 10, {"packets": tick * tick, "gone": None})
    assert track.last("packets") == 900 and track.change("packets") == 30 * 30 - 20 * 20
    assert track.rate("packets") == pytest.approx(500)
    assert track.rate("gone") is None and track.rate("never") is None
    alone = RateWindow()
    alone.take(5, {"packets": 3})
    assert alone.last("packets") == 3 and alone.rate("packets") is None


def test_a_sum_that_lacks_a_part_is_none() -> None:
    assert combine([1, 2, 3]) == 6 and combine([3.0, 1.0], min) == 1.0
    assert combine([1, None]) is None and combine([]) is None


def test_streams_and_nodes_have_what_was_told_of_them() -> None:
    told = document(2.0, lost={1: 5})
    small, large = told["streams"]
    assert (small["stream"], small["group"]) == ("small", "target")
    assert (small["intended_packets"], small["sent_packets"], small["received_packets"]) == (200, 200, 200)
    assert small["sent_bytes"] == 200 * (FRAME_BYTES + 4) and small["intended_in_all_packets"] == 300
    assert small["sent_pps"] == pytest.approx(100) and small["sent_bps"] == pytest.approx(8 * 64 * 100)
    assert (large["received_packets"], large["missing_packets"], large["loss_ratio"]) == (195, 5, 5 / 200)
    assert large["latency_mean_ns"] == pytest.approx(5_000) and large["latency_max_ns"] == 40_000
    assert told["total"]["received_packets"] == 395 and told["total"]["latency_packets"] == 395
    nodes = {(node["node"], node["role"]): node for node in told["nodes"]}
    assert nodes["tx2", "transmit"]["sent_packets"] == 200 and nodes["tx2", "transmit"]["received_packets"] is None
    assert nodes["rx2", "receive"]["missing_packets"] == 5 and nodes["rx2", "receive"]["intended_packets"] is None
    assert nodes["rx1", "receive"]["interface"]["rx_pps"] == pytest.approx(100)
    assert json.loads(json.dumps(told)) == told


def at(made: Going, figures: Figures, host: str, at_s: float, **other: object) -> None:
    """Takes a sample of one node."""
    rank = next(rank for rank in made.ranks_now if rank.host.name == host)
    sample = {**made._told(rank, at_s), **other}
    event = as_event({"event": "sample", "rank": rank.number, "at_ns": made._at_ns(at_s), **sample})
    figures.take(made.ledger_now, event)


def test_the_loss_is_of_one_moment_and_the_same_of_a_stream_and_at_its_receiver() -> None:
    made = Going(legs=[leg(0, "small")], lost={0: 60})
    figures, ledger = made.up_to(1.6)
    at(made, figures, "tx1", 2.6)  # of the sender, a second later
    told = figures.document(ledger)
    ratios = {part["loss_ratio"] for part in [told["streams"][0], told["total"], told["nodes"][-1]]}
    (small,) = told["streams"]
    assert (small["sent_packets"], small["received_packets"], small["missing_packets"]) == (260, 150, 10)
    assert ratios == {10 / 160} and told["nodes"][0]["loss_ratio"] is None
    assert shown(told).count("6.25%") == 2


def test_duplicates_are_no_part_of_what_a_loss_refers_to() -> None:
    made = Going(legs=[leg(0, "small")])
    figures, ledger = made.up_to(1.0)
    received = [[0, 120, 60 * 120, 20, 20, 0, 0]]
    at(made, figures, "rx1", 1.2, received=received)
    assert figures.document(ledger)["streams"][0]["loss_ratio"] == 20 / 120


def test_a_loss_of_the_past_is_left_out_while_packets_are_sent_and_none_arrives() -> None:
    made = Going(legs=[leg(0, "small")], lost={0: 60})
    figures, ledger = made.up_to(1.6)
    stalled = [[0, 150, 60 * 150, 10, 0, 0, 0]]
    for at_s in (2.0, 2.7):
        at(made, figures, "tx1", at_s)
        at(made, figures, "rx1", at_s, received=stalled)
    told = figures.document(ledger)
    assert [part["loss_ratio"] for part in [told["streams"][0], told["total"], told["nodes"][-1]]] == [None] * 3
    for at_s in (3.0, 3.5, 4.1):  # nothing is sent any more: the count is final
        at(made, figures, "tx1", at_s, sent=[[0, 270, 60 * 270]])
        at(made, figures, "rx1", at_s, received=stalled)
    at(made, figures, "tx1", 4.2, sent=[[0, 270, 60 * 270]])
    assert figures.document(ledger)["streams"][0]["loss_ratio"] == 10 / 160


def test_a_latency_is_corrected_by_what_was_read_at_the_start() -> None:
    made = Going()
    figures, ledger = made.up_to(-1.0)
    rx1 = next(rank for rank in made.ranks() if rank.host.name == "rx1")
    before = ledger.nodes[rx1.number].clock["before"]
    # A closer reading at the start says that the receiver's clock is 1 us behind what it was taken for.
    later = replace(before, at_ns=990, offset_ns=before.offset_ns - 1_000, bound_ns=10)
    ledger.nodes[rx1.number].clock["start"] = later
    made.ranks_now = made.ranks()
    for second in (1, 2):
        told = made._told(rx1, float(second))
        figures.take(ledger, as_event({"event": "sample", "rank": rx1.number, "at_ns": made._at_ns(second), **told}))
    small = figures.document(ledger)["streams"][0]
    assert (small["latency_mean_ns"], small["latency_min_ns"], small["latency_max_ns"]) == (6_000, 4_000, 41_000)
    assert small["latency_sum_ns"] == 200 * 6_000 and small["latency_bound_ns"] == 9_000 + 10


def test_before_all_nodes_have_told_there_is_no_sum() -> None:
    made = Going()
    figures, ledger = made.up_to(0.0)
    rank = made.ranks_now[0]
    assert figures.document(ledger)["total"]["sent_packets"] == 0
    figures, ledger = Going().up_to(-1.0)
    event = as_event({"event": "sample", "rank": rank.number, "at_ns": 2_000, **made._told(rank, 1.0)})
    figures.take(ledger, event)
    told = figures.document(ledger)
    assert told["streams"][0]["sent_packets"] == 100 and told["total"]["sent_packets"] is None


@pytest.mark.parametrize(
    "settings",
    [
        {"rate_pps": 333.0, "duration_s": 3.0},
        {"rates": [[0, 100.0], [SECOND, 0.0], [1_500_000_000, 1000.0]], "duration_s": 3.0},
        {"rates": [[0, 300.0], [400_000_000, 50.0]], "rates_period_ns": 700_000_000, "duration_s": 3.0},
    ],
)
def test_what_is_due_is_what_the_schedule_says(settings: dict[str, Any]) -> None:
    made = _leg(**settings)
    times = due_times(made)
    for time_ns in range(0, 4 * SECOND, SECOND // 7):
        assert abs((ExpectedSent(made).at(time_ns) or 0) - int((times <= time_ns).sum())) <= 2


def _leg(**settings: Any) -> Any:
    made = replace(leg(0, "s"), **{"rate_pps": None, **settings})
    return replace(made, intended_packets=intended_packets(made))


def test_what_is_due_is_not_known_of_what_has_no_rate() -> None:
    assert ExpectedSent(replace(leg(0, "s"), rate_pps=None)).at(SECOND) is None
    assert ExpectedSent(replace(leg(0, "s"), kind="trace")).at(SECOND) is None
    assert ExpectedSent(leg(0, "s")).at(-5) == 0 and ExpectedSent(leg(0, "s")).at(9 * SECOND) == 300
    assert 0.9 < ExpectedSent(replace(leg(0, "s"), gap_table=exponential_gaps())).gap_variation < 1.1


# --- warnings --------------------------------------------------------------------------------------------------------


def warned(made: Going, *events: Rank0Event) -> list[str]:
    figures, ledger = made.up_to(1.0)
    for event in events:
        ledger.take(event)
        figures.take(ledger, event)
    return [one["text"] for one in figures.document(ledger)["warnings"]]


def test_a_run_that_goes_well_warns_of_nothing() -> None:
    assert warned(Going()) == []


def test_a_node_below_its_intended_rate_is_told() -> None:
    made = Going(legs=_fast())
    figures, ledger = made.up_to(0.0)
    told = figures.document(ledger)
    for second in (1, 2):
        for rank in made.ranks_now:
            sample = made._told(rank, float(second))
            if rank.host.name == "tx1":
                sample["sent"] = [[0, 90_000 * second, 60 * 90_000 * second]]
            event = as_event({"event": "sample", "rank": rank.number, "at_ns": made._at_ns(second), **sample})
            figures.take(ledger, event)
        told = figures.document(ledger)
    (warning,) = told["warnings"]
    assert warning["text"] == "tx1 (transmit): below its intended rate: 180,000 packets sent, 200,000 due"


def _fast() -> list[Any]:
    legs = [leg(0, "s"), leg(1, "t", "tx2", "rx2")]
    return [replace(one, rate_pps=100_000.0, intended_packets=300_000) for one in legs]


def test_a_link_that_went_down_is_told() -> None:
    made = Going()
    made.ranks_now = made.ranks()
    told = made._told(made.ranks_now[0], 1.0)
    told["interface"]["link_downs"] = 2
    sample = as_event({"event": "sample", "rank": 1, "at_ns": made._at_ns(1.0), **told})
    assert warned(Going(), sample) == ["tx1 (transmit): link of eth1 went down 2 times"]


def test_a_clock_that_drifts_is_told_and_one_that_cannot_be_read_well_is_not() -> None:
    drift = as_event(
        {"event": "drift", "rank": 2, "at_ns": 900 + 60 * SECOND, "offset_ns": 50 + 400_000, "bound_ns": 20_000}
    )
    assert warned(Going(), drift) == ["tx2 (transmit): clock drift +400 µs in 60 s against the master"]
    assert isinstance(drift, Drift)
    assert warned(Going(), replace(drift, bound_ns=350_000)) == []


def test_utc_that_is_set_is_told() -> None:
    made = Going()
    made.ranks_now = made.ranks()
    seen = [
        as_event(
            {
                **{"event": "sample", "rank": 1, "at_ns": made._at_ns(at_s), **made._told(made.ranks_now[0], at_s)},
                "utc": {"realtime_minus_monotonic_ns": utc_s * SECOND, "within_ns": 300},
            }
        )
        for at_s, utc_s in ((1.0, 900), (2.0, 898), (3.0, 898))
    ]
    words = "its UTC was set by -2.000000 s in all between 1.00 s and 2.00 s after the start"
    assert warned(Going(), *seen) == [f"tx1 (transmit): {words}"]


def test_a_lost_node_is_told_once() -> None:
    lost = as_event({"event": "lost", "rank": 3, "problem": "no message for 5 s", "silent_s": 5.0})
    assert warned(Going(), lost, lost) == ["rx1 (receive): no message for 5 s (last message before the start)"]


# --- on the terminal -------------------------------------------------------------------------------------------------


def test_the_screen_has_every_stream_and_node_and_fits() -> None:
    text = shown(document(2.0, lost={1: 5}))
    for words in ("small", "large", "tx1 transmit", "rx2 receive", "2.50%", "sending"):
        assert words in text, text
    many = [leg(n, f"stream-{n}") for n in range(40)]
    crowded = shown(document(1.0, legs=many), height=24)
    assert len(crowded.splitlines()) <= 24 and "stream-0 " in crowded and "more" in crowded


def test_a_terminal_of_80_columns_shows_whole_figures() -> None:
    text = shown(document(2.0, lost={1: 5}), width=80)
    assert "195" in text and "2.50%" in text and "…" not in text and "last minute" not in text


def test_a_stream_whose_engine_tells_nothing_has_dashes_and_its_node_the_interfaces_rate() -> None:
    made = Going()
    made.ranks_now = made.ranks()
    figures, ledger = Going().up_to(-1.0)
    for tick in range(3):
        for rank in made.ranks_now:
            sample = {**made._told(rank, float(tick)), "sent": [], "received": []}
            at_ns = made._at_ns(tick)
            figures.take(ledger, as_event({"event": "sample", "rank": rank.number, "at_ns": at_ns, **sample}))
    told = figures.document(ledger)
    assert told["total"]["sent_packets"] is None and told["nodes"][0]["interface"]["tx_pps"] == pytest.approx(100)
    row = next(line for line in shown(told).splitlines() if "tx1 transmit" in line)
    assert "–" in row and "100" in row


def test_a_sparkline_ends_with_the_newest_and_keeps_its_width() -> None:
    assert view.sparkline([0, 50, 100], 30) == "▁▅█"
    assert view.sparkline([None, 100], 30) == " █" and view.sparkline([], 30) == "" and view.sparkline([0.0], 3) == "▁"
    long = view.sparkline([*range(60)], 30)
    assert len(long) == 30 and long[0] == "▁" and long[-1] == "█"
    assert len(view.sparkline([*range(59)], 30)) == 30


def test_a_line_has_everything_together() -> None:
    words = view.line(document(2.0, lost={1: 5}))
    assert words.startswith("sending, ") and "400 intended, 400 sent, 395 received, 5 missing" in words
    assert "195 packets/s" in words and "latency 5.00 ±18.0 µs" in words


# --- from another terminal -------------------------------------------------------------------------------------------


def asked(*arguments: object) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, ["status", *map(str, arguments), "--json"])
    return done.exit_code, json.loads(done.stdout.splitlines()[-1])


def left_going(folder: Path, told: LiveDocument) -> None:
    (folder / "status.json").write_text(json.dumps(told))


def test_a_run_that_goes_on_is_told_from_one_that_died_and_one_that_has_finished(tmp_path: Path) -> None:
    finished = Made(name="whole").write(tmp_path)
    going = Made(name="going").write(tmp_path, over=False)
    left_going(going, document(2.0))
    with (going / "log.jsonl").open() as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        exit_status, told = asked(tmp_path)
        assert (exit_status, told["state"], told["results"]) == (0, "running", str(going))
        assert told["figures"]["total"]["sent_packets"] == 400
        assert asked(finished)[1]["state"] == "finished"
    exit_status, told = asked(going)
    assert (exit_status, told["state"], told["status"]) == (3, "died", None)
    assert told["figures"]["total"]["sent_packets"] == 400
    exit_status, told = asked(finished)
    assert (exit_status, told["state"], told["figures"]) == (0, "finished", None)
    assert told["totals"][-1]["sent_packets"] == 600


def test_a_folder_of_the_command_itself_is_locked_until_it_is_closed(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "held")
    folder.write_status(document(1.0))
    assert status.look(folder.path).state == "running"
    folder.close()
    assert status.look(folder.path).state == "died" and not (folder.path / "status.json").exists()


def test_on_a_terminal_a_state_is_a_line_and_what_was_counted(tmp_path: Path) -> None:
    finished = Made(lost={1: 5}, name="whole").write(tmp_path)
    done = CliRunner().invoke(app, ["status", str(finished)])
    assert done.exit_code == 1 and "finished, exit 1: " in done.stdout and "595 received, 5 lost" in done.stdout
    died = Made(name="half").write(tmp_path, over=False)
    done = CliRunner().invoke(app, ["status", str(died)])
    assert done.exit_code == 3 and "died" in done.stdout and "pktswarm report" in done.stdout


def test_a_search_has_its_runs_inside(tmp_path: Path) -> None:
    run = Made(name="trial").write(tmp_path / "20260101T000000Z-x-search" / "runs")
    assert status.find(tmp_path) == status.find(tmp_path / "20260101T000000Z-x-search") == run


@pytest.mark.parametrize(("name", "words"), [("nowhere", "there is no such folder"), ("", "no results of a run here")])
def test_where_there_is_no_run_that_is_bad_input(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        status.find(tmp_path / name)


# --- for Prometheus --------------------------------------------------------------------------------------------------


def scraped(told: LiveDocument) -> dict[str, dict[tuple[str, ...], float]]:
    """Name → labels' values → value, as Prometheus reads it."""
    served = Served(0)
    served.start(lambda: told)
    try:
        with urllib.request.urlopen(served.url, timeout=10) as answer:  # noqa: S310 - our own loopback address
            text = answer.read().decode()
    finally:
        served.close()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sample.labels[name] for name in LABELS if name in sample.labels)
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def test_the_metrics_are_the_live_views_figures() -> None:
    told = document(2.0, lost={1: 5})
    found = scraped(told)
    for one in told["streams"]:
        labels = (one["stream"], one["group"])
        counts: Mapping[str, object] = one
        for name in ("intended_packets", "sent_packets", "received_packets", "sent_bytes", "received_bytes"):
            assert found[f"pktswarm_stream_{name}_total"][labels] == counts[name]
        assert found["pktswarm_stream_missing_packets"][labels] == one["missing_packets"]
        assert found["pktswarm_stream_latency_seconds_count"][labels] == one["latency_packets"]
        assert one["latency_sum_ns"] is not None
        assert found["pktswarm_stream_latency_seconds_sum"][labels] == pytest.approx(one["latency_sum_ns"] / 1e9)
    assert found["pktswarm_node_tx_packets_total"]["tx1", "transmit"] == 200
    assert set(found["pktswarm_node_up"].values()) == {1.0} and found["pktswarm_run_sending"][()] == 1
    assert found["pktswarm_run_info"][("made",)] == 1


def test_what_was_not_measured_is_not_served() -> None:
    figures, ledger = Going().up_to(-1.0)
    found = scraped(figures.document(ledger))
    assert "pktswarm_stream_sent_packets_total" not in found and "pktswarm_run_expected_seconds" in found


def test_every_name_keeps_prometheus_rules() -> None:
    names = set(scraped(document(2.0, lost={1: 5})))
    assert len(names) > 20
    for name in names:
        assert re.fullmatch(r"pktswarm_(run|stream|node)_[a-z_]+", name) and "_ns" not in name and "_ms" not in name


def test_every_metric_of_the_dashboard_is_served() -> None:
    dashboard = json.loads(Path("docs/grafana/pktswarm.json").read_text())
    wanted = {
        name
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
        for name in re.findall(r"pktswarm_[a-z_]+", target["expr"])
    }
    assert len(wanted) > 10 and wanted <= set(scraped(document(2.0, lost={1: 5})))
    assert all(panel["title"] for panel in dashboard["panels"])


def test_a_port_that_cannot_be_had_is_bad_input() -> None:
    with pytest.raises(BadInput, match="--metrics = 70000: not a port"):
        Served(70000)
    held = Served(0)
    try:
        with pytest.raises(BadInput, match=r"--metrics = .*cannot be bound: Address already in use"):
            Served(int(held.url.split(":")[2].split("/")[0]))
    finally:
        held.close()
