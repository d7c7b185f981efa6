"""The rules of a group's sessions beside PDR and FAR: QER, URR and BAR, as a scenario has them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from pktswarm.master.scenario.fields import Strict

LARGEST_KBPS = 2**40 - 1


def _whole_kbps(bps: float) -> float:
    if bps % 1000 or bps / 1000 > LARGEST_KBPS:
        raise ValueError(f"rates must be a multiple of 1000 bit/s (PFCP has kbit/s), at most {LARGEST_KBPS * 1000}")
    return bps


Rate = Annotated[float, Field(gt=0), AfterValidator(_whole_kbps)]
Gate = Literal["open", "closed"]


class Qos(Strict):
    """One QER for both directions of a session."""

    qfi: int | None = Field(None, ge=1, le=63)
    mbr_up_bps: Rate | None = Field(None, description="maximum bit rate; goes with mbr_down_bps")
    mbr_down_bps: Rate | None = None
    gbr_up_bps: Rate | None = Field(None, description="guaranteed bit rate; goes with gbr_down_bps")
    gbr_down_bps: Rate | None = None
    gate_up: Gate = "open"
    gate_down: Gate = "open"

    @model_validator(mode="after")
    def _both_directions(self) -> Qos:
        for name in ("mbr", "gbr"):
            if (getattr(self, f"{name}_up_bps") is None) != (getattr(self, f"{name}_down_bps") is None):
                raise ValueError(f"{name}_up_bps and {name}_down_bps go together: they are one field in PFCP")
        return self


class Usage(Strict):
    """One URR for both directions. Reports at the end of a session are always read."""

    volume_threshold_bytes: int = Field(
        2**40, ge=1, lt=2**63, description="volume threshold: a report each time this volume has passed"
    )
    period_s: int | None = Field(
        None, ge=1, lt=2**31, description="time threshold: a report each time this duration has passed"
    )


class Buffer(Strict):
    """One BAR, for downlink packets while a session buffers."""

    notification_delay_ms: int | None = Field(None, ge=0, le=12750, multiple_of=50)
    suggested_packets: int | None = Field(None, ge=0, le=255, description="needs the UPF's feature UDBC")
