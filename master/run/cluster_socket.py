"""The socket of a cluster that stays up, and the inventory that it stands for."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from pktswarm.master.cluster.inventory import Inventory


def name_of(path: Path) -> str:
    """The abstract Unix socket of this user's daemon for an inventory. Others can have taken the name: each end checks
    whose process the other one is."""
    place = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    return f"pktswarm-cluster-{os.geteuid()}-{place}"


def digest(inventory: Inventory) -> str:
    """A digest of the keys that a launch uses: inventories with the same one have the same ranks."""
    ways = [inventory.variables.get(key) for key in ("pktswarm_ssh_config", "pktswarm_login")]
    return hashlib.sha256(repr((inventory.master, inventory.hosts, ways)).encode()).hexdigest()
