"""Section `receive`: how receivers count and capture."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pktswarm.master.scenario.fields import Strict

TimedEvery = Literal["auto", 1, 4, 8, 16, 32, 64, 128, 256, 512, 1024]


class Receive(Strict):
    mode: Literal["capture", "count"] = "capture"
    engine: Literal["auto", "netsniff-ng", "xdp"] = Field(
        "auto", description="auto: xdp where the host supports it and it can distinguish all streams, else netsniff-ng"
    )
    filter: str = Field("", max_length=2000, description="pcap syntax; applied to frames addressed to the node")
    capture_filter: str = Field(
        "", max_length=2000, description="pcap syntax: selects which of the counted frames are captured (receiver xdp)"
    )
    capture_every: int = Field(
        1,
        ge=1,
        le=1_000_000,
        description="mode capture, receiver xdp: the first of every N frames of each stream is captured",
    )
    timed_every: TimedEvery = Field(
        "auto",
        description="receiver xdp: of every N frames in a row two are timed (latency, jitter), and all are counted. "
        "auto: 16 where more than 1,000,000 packets/s can come and no users are counted, else 1: each frame",
    )
    ring_mib: int = Field(16, ge=1, le=4096)
    drain_s: float = Field(0.3, ge=0, le=60, description="wait for frames in flight after the last was sent")
