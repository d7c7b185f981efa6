"""Section `connections`: real TCP and UDP connections."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from pktswarm.master.scenario.fields import Name, Strict
from pktswarm.master.scenario.section import Group, Seed
from pktswarm.traffic.connections.blocks import UDP_HEADER

LEAST_UDP_BLOCK_BYTES = UDP_HEADER.size


class Connection(Strict):
    """Real TCP or UDP connections that carry blocks of bytes."""

    model_config = ConfigDict(extra="forbid", populate_by_name=False)

    name: Name
    origin: Group = Field("transmit", alias="from", description="nodes that connect")
    target: Group = Field("receive", alias="to", description="nodes that listen")
    protocol: Literal["tcp", "udp"] = "tcp"
    connections: int = Field(1, ge=1, le=4096, description="at once, from each transmitter")
    direction: Literal["up", "down", "both"] = Field("up", description="up: blocks go from `from` to `to`")
    block_bytes: int | None = Field(None, ge=1, le=64 * 2**20, description="of the application")
    period_s: float | None = Field(
        None, ge=1e-5, le=3600, description="from one block to the next; left out: as fast as it goes"
    )
    blocks: int | None = Field(None, ge=1, description="of each connection")
    duration_s: float | None = Field(None, gt=0, le=7 * 86400, description="no block begins later")
    source: str | dict[str, object] | None = Field(
        None, description="an application source, in place of block_bytes, period_s; see docs/sources.md"
    )
    users: int | None = Field(None, ge=1, description="of the source, dealt to the connections of a pair in turn")
    mean_bps: float | None = Field(None, gt=0, description="of a pair's users together, bits of frames with FCS")
    profile: dict[str, object] | None = Field(None, description="how often the source's sessions begin, over time")
    seed: Seed | None = Field(None, description="of what the source draws; left out: the scenario's")
    pace_bps: float | None = Field(
        None, ge=8000, description="of each connection; TCP by the kernel, UDP by the sender"
    )
    congestion: str | None = Field(None, pattern=r"^[a-z0-9_-]{1,15}$", description="cubic, reno, bbr: what nodes have")
    nodelay: bool = False
    send_buffer_bytes: int | None = Field(None, ge=4096, le=2**30)
    background: bool = Field(False, description="reported apart from the targets in the results")

    @model_validator(mode="after")
    def _one_kind_and_an_end(self) -> Connection:
        if (self.block_bytes is None) == (self.source is None):
            raise ValueError("block_bytes or source is needed, and not both")
        if self.source is not None and (self.period_s is not None or self.blocks is not None):
            raise ValueError("a source sets times and sizes itself: period_s and blocks need block_bytes")
        given = [name for name in ("users", "mean_bps", "profile", "seed") if getattr(self, name) is not None]
        if self.source is None and given:
            raise ValueError(f"{given[0]} goes with a source")
        if self.blocks is None and self.duration_s is None:
            raise ValueError("blocks or duration_s is needed: a connection must end")
        if self.protocol == "udp":
            self._udp()
        return self

    def _udp(self) -> None:
        if self.congestion is not None or self.nodelay:
            raise ValueError("congestion and nodelay need protocol: tcp")
        if self.block_bytes is not None and self.block_bytes < LEAST_UDP_BLOCK_BYTES:
            raise ValueError(
                f"block_bytes of UDP must be {LEAST_UDP_BLOCK_BYTES} or more: each block carries its number and time"
            )
        if self.block_bytes is not None and self.period_s is None and self.pace_bps is None:
            raise ValueError("period_s or pace_bps is needed with UDP: nothing else limits its rate")
