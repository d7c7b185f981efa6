"""Profile of a UPF: the features and values that `pktswarm upf probe` found, used by later scenarios.

`hosts/NAME.upf.yml` beside inventory `hosts/NAME.yml`, or the file that `pktswarm_upf: {profile: FILE}` or the
scenario's `upf: {profile: FILE}` names. A key of the scenario has precedence over the profile.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field, ValidationError

from pktswarm.master.cluster.inventory import Inventory, load_yaml
from pktswarm.master.scenario.fields import Strict, Yaml
from pktswarm.master.scenario.problems import refuse
from pktswarm.traffic.errors import BadInput

FORMAT_VERSION = 1
HEAD = """\
# What pktswarm found out about this UPF. Scenarios take it from here; a key of a scenario has precedence.
# Made again by: pktswarm upf probe
"""
Numbered = Literal["teids", "teids_ipv6", "ue_addresses"]
"""`teids_ipv6`: TEIDs of tunnels over IPv6 only."""


class Profile(Strict):
    """Profile of a UPF. `numbered`: values the SMF numbers although the UPF announces that it chooses them; `found`:
    text of every probe's result."""

    format_version: int = FORMAT_VERSION
    made: str = Field("", description="UTC")
    n4: str = ""
    node_id: str = ""
    features: list[str] = Field(default_factory=list)
    release: Literal[15, 16, 17, 18] = 16
    interface_types: bool = True
    instances_as: Literal["labels", "text"] = "labels"
    numbered: list[Numbered] = Field(default_factory=list)
    association_release: bool = True
    end_markers: bool = True
    groups: dict[Literal["access_instance", "core_instance", "dnn"], str] = Field(
        default_factory=dict, description="keys that every group needs"
    )
    found: dict[str, str] = Field(default_factory=dict)

    def keys(self) -> dict[str, object]:
        """The profile as keys of the section upf."""
        names = ("release", "interface_types", "instances_as", "numbered", "association_release")
        return {name: getattr(self, name) for name in names}

    def describe(self) -> str:
        """Note on the differences from a UPF with all features."""
        found = [f"release {self.release}"]
        found += ["no 3GPP interface types"] if not self.interface_types else []
        found += [f"{one} numbered by the SMF" for one in self.numbered]
        found += [f"{name} {value}" for name, value in self.groups.items()]
        found += ["no association release"] if not self.association_release else []
        found += ["no end markers"] if not self.end_markers else []
        return ", ".join(found)

    def of_another(self, node_id: str, features: list[str]) -> str:
        """Reason why the connected UPF does not fit this profile; empty: it may fit."""
        if self.node_id and self.node_id != node_id:
            return f"of a UPF with Node ID {self.node_id}, but this one has {node_id}"
        if self.features != features:
            return f"of a UPF with the features {' '.join(self.features) or 'none'}, not {' '.join(features) or 'none'}"
        return ""


def beside(inventory: Path) -> Path:
    """The profile's file of an inventory: hosts/NAME.upf.yml of hosts/NAME.yml."""
    return inventory.with_suffix(".upf.yml")


def find(path: Path, named: str | None, inventory: Inventory | None) -> tuple[Path, Profile] | None:
    """The profile that scenario `path` names (`named`), else its inventory, else the one beside the inventory."""
    if named:
        return _read(path.parent / named)
    if inventory is None:
        return None
    variables = inventory.variables.get("pktswarm_upf") or {}
    if variables.get("profile"):
        return _read(inventory.path.parent / variables["profile"])
    file = beside(inventory.path)
    return _read(file) if file.exists() else None


def _read(path: Path) -> tuple[Path, Profile]:
    return path, load(path)


def load(path: Path) -> Profile:
    """Read a profile. Raises BadInput for a file that is no profile, or has a newer format."""
    data = load_yaml(path, Yaml)
    if not isinstance(data, dict):
        raise BadInput(path, "is not the profile of a UPF", allowed="what pktswarm upf probe writes")
    if isinstance(version := data.get("format_version"), int) and version > FORMAT_VERSION:
        raise BadInput(
            path, "was written by a newer pktswarm", key="format_version", value=version, allowed=f"{FORMAT_VERSION}"
        )
    try:
        return Profile.model_validate(data)
    except ValidationError as error:
        raise refuse(path, error, Profile, data) from None


def text(profile: Profile) -> str:
    return HEAD + yaml.safe_dump(profile.model_dump(), sort_keys=False, allow_unicode=True, width=110)
