"""The daemon of a cluster that stays up, without ranks: which inventory it goes by."""

from __future__ import annotations

from pathlib import Path

import pytest

from pktswarm.master.cluster import inventory as inventories
from pktswarm.master.run.cluster_daemon import Daemon
from pktswarm.master.run.cluster_socket import digest
from pktswarm.traffic.errors import PktswarmError
from pktswarm.traffic.protocol.cluster_orders import Take

TEXT = """all:
  children:
    master: {hosts: {m0: {ansible_host: 10.9.0.1}}}
    transmit: {hosts: {tx1: {ansible_host: 10.9.0.11, traffic_interface: eth1}}}
    receive: {hosts: {rx1: {ansible_host: 10.9.0.21, traffic_interface: eth1}}}
"""


def take_of(path: Path) -> Take:
    return Take("me", "run", digest(inventories.load(path)), waits=False)


def test_it_goes_by_the_inventory_of_the_command_line_or_by_none(tmp_path: Path) -> None:
    path, other = tmp_path / "hosts.yml", tmp_path / "other.yml"
    path.write_text(TEXT)
    other.write_text(TEXT.replace("10.9.0.21", "10.9.0.22"))
    daemon = Daemon(path, 60.0, 1.0)
    try:
        assert daemon._follow_inventory(take_of(path)) == []
        with pytest.raises(PktswarmError, match="has changed since it was read"):
            daemon._follow_inventory(take_of(other))
        path.write_text(other.read_text())
        assert daemon._follow_inventory(take_of(path)) == []
        assert daemon.inventory.host("rx1").address == "10.9.0.22"
    finally:
        daemon.listener.close()


def test_an_inventory_has_one_daemon(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text(TEXT)
    first = Daemon(path, 60.0, 1.0)
    try:
        with pytest.raises(OSError, match="in use"):
            Daemon(path, 60.0, 1.0)
    finally:
        first.listener.close()
