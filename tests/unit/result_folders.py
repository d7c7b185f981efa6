"""Results folders made as a run makes them: the nodes' events go through the ledger, its outcome into a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from pktswarm.master.cluster.inventory import Host
from pktswarm.master.cluster.ranks import Rank
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.results import samples
from pktswarm.master.results.document import HostEntry, LegEntry, RunInputs
from pktswarm.master.results.folder import Folder, Outcome
from pktswarm.master.results.ledger import Ledger
from pktswarm.master.scenario.expectations import Expect
from pktswarm.master.scenario.scenario import Scenario
from pktswarm.traffic.counting import users
from pktswarm.traffic.counting.tally import Jitter, Latency, Tally
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.codec import to_fields
from pktswarm.traffic.protocol.rank0_events import Rank0Event
from pktswarm.traffic.protocol.rank_events import Sample
from pktswarm.traffic.protocol.task import ReceiveCount, Role, SendCount
from run_events import as_event, packed

FRAME_BYTES = 60
CLOCK = {"offset_ns": 50, "bound_ns": 9_000, "round_trip_ns": 18_000, "realtime_minus_monotonic_ns": 10_000}
REPORT = {"kernel": "6.18.0", "machine": "x86_64", "cpus": 2, "python": "3.11.7", "pktswarm": "0.1.0"}
INTERFACE = {"name": "eth1", "driver": "veth", "speed_mbps": 1000}
NO_LOSS = Expect.model_validate({"loss": 0, "sent": "intended"})


def leg(number: int, stream: str, source: str = "tx1", target: str = "rx1", **settings: Any) -> Leg:
    return Leg(number, stream, source, target, "stream", engine="xdp", intended_packets=300, rate_pps=100.0, **settings)


@dataclass
class Made:
    """A run of `seconds` in which each leg sends at its rate; of leg n `lost[n]` packets are lost in its middle."""

    legs: Sequence[Leg] = field(default_factory=lambda: [leg(0, "small"), leg(1, "large", "tx2", "rx2")])
    lost: dict[int, int] = field(default_factory=dict)
    sent_less: int = 0
    """Of each leg: packets that did not leave."""
    seconds: float = 3.0
    samples_per_s: float = 10.0
    lost_users: int = 0
    """Of each leg with users: the first so many lost a packet."""
    expect: Expect = field(default_factory=lambda: NO_LOSS)
    name: str = "made"
    delays: dict[int, list[list[int]]] = field(default_factory=dict)
    """Leg → [latency in ns, frames] of its histogram."""

    def ranks(self) -> list[Rank]:
        places: list[tuple[str, Role]] = [(leg.source, "transmit") for leg in self.legs]
        places += [(leg.target, "receive") for leg in self.legs]
        return [Rank(n + 1, _host(*place), place[1]) for n, place in enumerate(dict.fromkeys(places))]

    def write(self, results: Path, events: Sequence[Rank0Event] = (), over: bool = True) -> Path:
        """`events`: besides what all tell. Not `over`: as a crash leaves it."""
        self.ranks_now = self.ranks()
        ledger, folder = Ledger(self.ranks_now), Folder(results, self.name)
        ledger.resolved = Resolved(list(self.legs))
        told = [*self._begin(), *events, *(self._end() if over else ())]
        for event in told:
            folder.log(to_fields(event))
            ledger.take(event)
        self._write_samples(folder)
        if over:
            folder.write(self._outcome(ledger))
        folder.close()
        return folder.path

    def _outcome(self, ledger: Ledger) -> Outcome:
        streams = [{"name": one, "count_packets": 300, "rate_pps": 100} for one in {leg.stream for leg in self.legs}]
        scenario = {"name": "made", "samples_per_s": self.samples_per_s, "streams": streams}
        inputs: RunInputs = {
            "name": self.name,
            "scenario_file": "made.yaml",
            "hosts_file": "hosts/made.yml",
            "scenario": json.loads(json.dumps(scenario)),
            "inventory": cast("list[HostEntry]", [asdict(rank.host) for rank in self.ranks_now]),
            "legs": cast("list[LegEntry]", [leg.to_json() for leg in self.legs]),
            "written": "2026-01-01T00:00:00Z",
        }
        return ledger.outcome(self.expect, inputs)

    # --- what the nodes tell ------------------------------------------------------------------------------------

    def _begin(self) -> list[Rank0Event]:
        told: list[Rank0Event] = [as_event({"event": "phase", "name": "hello", "at_ns": 1})]
        for rank in self.ranks_now:
            who = {"rank": rank.number, "host": rank.host.name, "role": rank.role}
            told.append(as_event({"event": "hello", **who, "report": {**REPORT, "interface": INTERFACE}}))
            told += [
                as_event({"event": "clock", "rank": rank.number, "when": w, "at_ns": 900, **CLOCK})
                for w in ("before", "start")
            ]
            left = {"event": "left", "name": "start", "at_ns": 950 + rank.number, "offset_ns": 50}
            told.append(as_event({**left, "rank": rank.number}))
        told.append(as_event({"event": "phase", "name": "send", "at_ns": 900}))
        return [*told, as_event({"event": "start", "at_ns": 1_000, "utc_ns": 1_800_000_000_000_000_000})]

    def _end(self) -> list[Rank0Event]:
        told: list[Rank0Event] = [
            as_event({"event": "phase", "name": "drain", "at_ns": 1_000 + int(self.seconds * 1e9)})
        ]
        for rank in self.ranks_now:
            counts = [self._count(leg, rank.role) for leg in self._of(rank)]
            key = "sent_packets" if rank.role == "transmit" else "received_packets"
            packets = sum(count[key] for count in counts)
            interface = _interface(rank.role, packets)
            told.append(as_event({"event": "counts", "rank": rank.number, "counts": counts, "interface": interface}))
        return [*told, as_event({"event": "phase", "name": "over", "at_ns": 2_000 + int(self.seconds * 1e9)})]

    def _of(self, rank: Rank) -> list[Leg]:
        return [one for one in self.legs if rank.host.name in (one.source, one.target)]

    def sent(self, leg: Leg) -> int:
        return (leg.intended_packets or 0) - self.sent_less

    def _count(self, leg: Leg, role: str) -> dict[str, Any]:
        sent = self.sent(leg)
        each = self._users(leg)
        if role == "transmit":
            size = sent * FRAME_BYTES
            return asdict(SendCount(leg.id, "xdp", sent, size, late_packets=2, seconds=self.seconds, users=each))
        came = sent - self.lost.get(leg.id, 0)
        latency = Latency(came, 3_000, 5_000.0, 4_500, 6_000, 9_000, 20_000, 40_000 + leg.id)
        tally = Tally(came, came * FRAME_BYTES, 11_050, int(self.seconds * 1e9), came, 0, 0, 0, 0, 0, {}, sent - 1)
        tally = replace(tally, latency=latency, jitter=Jitter(came - 1, 700.0, 300.0))
        first_ns, last_ns = 11_050, 11_050 + int(self.seconds * 1e9)
        taken = ReceiveCount(leg.id, "xdp", came, came * FRAME_BYTES, first_ns, last_ns, tally=tally.to_json())
        taken.delays = self.delays.get(leg.id)
        return asdict(replace(taken, users=None if each is None else self._users_received(each)))

    def _users(self, leg: Leg) -> list[int] | None:
        if not leg.users:
            return None
        count = leg.users.count
        return [self.sent(leg) // count + (n < self.sent(leg) % count) for n in range(count)]

    def _users_received(self, sent: list[int]) -> dict[str, str]:
        came = [packets - (n < self.lost_users) for n, packets in enumerate(sent)]
        columns = {"packets": came, "bytes": [FRAME_BYTES * n for n in came], "distinct": came, "latencies": came}
        columns |= {
            f"latency_{name}_ns": [5_000 * (n if name == "sum" else 1) for n in came] for name in ("sum", "min", "max")
        }
        return {name: users.pack([*column, 0]) for name, column in columns.items()}

    # --- samples ------------------------------------------------------------------------------------------------

    def _write_samples(self, folder: Folder) -> None:
        """Each node has times of its own."""
        legs = {leg.id: leg for leg in self.legs}
        of_rank = {rank.number: self._of(rank) for rank in self.ranks_now}
        for tick in range(int(self.seconds * self.samples_per_s) + 2):
            for rank in self.ranks_now:
                at_s = tick / self.samples_per_s + rank.number * 0.0013 - 0.02
                figures = self._sample(rank, of_rank[rank.number], at_s)
                event = as_event({"event": "sample", "rank": rank.number, "at_ns": 0, **figures})
                assert isinstance(event, Sample)
                folder.sample(samples.rows(event, rank.host.name, rank.role, int(at_s * 1e9), legs))

    def _sample(self, rank: Rank, legs: list[Leg], at_s: float) -> dict[str, Any]:
        packets = 0
        told: dict[int, dict[str, int | None]] = {}
        for leg in legs:
            sent = int(self.sent(leg) * min(1.0, max(0.0, at_s / self.seconds)))
            lost = min(self.lost.get(leg.id, 0), max(0, sent - self.sent(leg) // 2))
            if rank.role == "transmit":
                told[leg.id] = {"sent_packets": sent, "sent_bytes": sent * FRAME_BYTES}
            else:
                sent -= lost
                told[leg.id] = {"packets": sent, "bytes": sent * FRAME_BYTES, "missing": lost, **_stamped(sent)}
            packets += sent
        return {"interface": _interface(rank.role, packets), **packed(told)}


def _stamped(packets: int) -> dict[str, int | None]:
    told: dict[str, int | None] = {"duplicated": 0, "reordered": 0, "altered": 0}
    if packets:
        told |= {"latency_packets": packets, "latency_sum_ns": 5_000 * packets}
        told |= {"latency_min_ns": 3_000, "latency_max_ns": 40_000}
    return told


def _host(name: str, role: Role) -> Host:
    return Host(name, "10.0.0.1", (role,), traffic_interface="eth1", side="a" if role == "transmit" else "b")


def _interface(role: str, packets: int) -> dict[str, int]:
    way = "tx" if role == "transmit" else "rx"
    nothing = dict.fromkeys(("tx_packets", "tx_bytes", "tx_dropped", "rx_packets", "rx_bytes", "rx_dropped"), 0)
    nothing |= {"link_downs": 0, "cpu_busy_ms": 0}
    return {**nothing, f"{way}_packets": packets, f"{way}_bytes": packets * FRAME_BYTES}


def of_scenario(text: str) -> dict[str, Any]:
    """As run.json has it."""
    made: dict[str, Any] = json.loads(Scenario.model_validate_json(text).model_dump_json(by_alias=True))
    return made


def changed(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The same folder, its run.json as `change` leaves it."""
    document = json.loads((folder / "run.json").read_text())
    change(document)
    (folder / "run.json").write_text(json.dumps(document))
    return folder
