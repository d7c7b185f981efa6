"""A recorded trace with stamps: its legs with their file, and its frames as the sender's program makes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pktswarm.traffic.capture.trace import Packet, write_pcap
from pktswarm.traffic.leg import Leg, Shift, Timing
from pktswarm.traffic.replay import files, stamps
from pktswarm.traffic.replay.prepare import Nodes, Settings, frames_of, prepare
from pktswarm.traffic.schedule import sequence
from pktswarm.traffic.schedule.assemble import compile_schedule
from recordings import NODES
from xdp_ends import WAYS, loaded, made_by

STAMPED = {"stamp": True}
GAP_NS = 100_000


def legs_of(
    folder: Path, recorded: list[bytes], settings: Settings, nodes: Nodes = NODES, repeat: int = 1, **more: Any
) -> list[Leg]:
    """A leg for each instance, with their file."""
    path = folder / "recorded.pcap"
    path.write_bytes(write_pcap([Packet(n * GAP_NS, frame) for n, frame in enumerate(recorded)]))
    found = prepare(path, replace(settings, where="s.yaml"))
    frames = frames_of(found, np.arange(len(found.due.order)), nodes)
    stamps.put(frames, 0)
    (folder / "leg-0.pcap").write_bytes(files.pcap_bytes(frames))
    (folder / "leg-0.rows.npy").write_bytes(files.row_bytes(frames))
    count = len(frames) * repeat
    timing = Timing(mode="original", value=1.0, lead_ns=0, period_ns=found.due.period_ns)
    instances = settings.instances.count
    return [
        Leg(
            number,
            "t",
            "a",
            "b",
            "trace",
            "xdp",
            trace_file="leg-0.pcap",
            timing=timing,
            count_packets=count,
            intended_packets=count,
            repeat=repeat,
            options=STAMPED,
            stamped_packets=int(np.count_nonzero(frames.stamp_at)) * repeat * instances,
            shift=Shift(user=number),
            merged_into=0 if number else None,
            **more,
        )
        for number in range(instances)
    ]


def no_sequence(leg: Leg) -> sequence.Records:
    raise AssertionError(f"{leg.stream} has no sequence")


def made_by_the_program(legs: list[Leg], folder: Path, number: int) -> list[bytes]:
    """In the order of sending, each into a page full of something else."""
    compiled = compile_schedule(
        legs,
        lambda leg: files.mapped_frames(files.trace_path(leg, folder)),
        no_sequence,
    )
    with loaded(compiled, way=WAYS[legs[0].engine]) as program:
        made = made_by(program, number)
        assert [sum(program.users(n) or []) for n in range(len(legs))] == [number // len(legs)] * len(legs)
        assert sum((program.users(n) or [])[1] for n in range(len(legs))) == legs[0].stamped_packets
        return made


def macs() -> tuple[str, str]:
    return NODES.user_mac.hex(), NODES.server_mac.hex()
