"""The client of the UPF's socket for orders."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pktswarm.traffic.errors import BadInput


def ask(orders: Path, order: Mapping[str, object]) -> dict[str, Any]:
    """Sends an order; returns the answer. Raises OSError without a UPF at the socket, BadInput for a wrong order."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.connect(str(orders))
        channel.sendall(json.dumps(order).encode() + b"\n")
        data = b""
        while more := channel.recv(1 << 20):
            data += more
    answer: dict[str, Any] = json.loads(data)
    if "error" in answer:
        raise BadInput("lab upf", answer["error"].removeprefix("lab upf: "))
    return answer
