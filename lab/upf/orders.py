"""The other end of the UPF's socket for orders."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from pktswarm.traffic.errors import BadInput


def ask(orders: Path, order: dict[str, Any]) -> dict[str, Any]:
    """What the UPF whose socket this is answers. Raises OSError when there is none, BadInput for a wrong order."""
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
