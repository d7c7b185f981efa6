"""The mirror of a lab with bare nodes: the proxy through which nodes fetch packages, as from a master with one.

An HTTP proxy. It listens on the master's control address, in the lab, and connects from where the machine is; it is a
process of the lab, and ends with it. Only ports 80 and 443: it is there for packages.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from typing import NoReturn
from urllib.parse import urlsplit

from pktswarm.lab import namespaces

PORT = 3142
"""Where package proxies usually listen."""
PORTS = (80, 443)
MOST_HEAD_BYTES = 16384
IDLE_S = 120.0


def start(close: list[int]) -> socket.socket:
    """Forks the mirror; returns the channel for its listening socket (see listen()). `close`: files that it closes."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        for descriptor in close:
            os.close(descriptor)
        _be_mirror(theirs)
    theirs.close()
    return ours


def listen(address: str, mirror: socket.socket) -> None:
    """Opens the mirror's port in the network namespace of this process, and passes it to the mirror."""
    with socket.create_server((address, PORT), backlog=64) as listener:
        socket.send_fds(mirror, [b"l"], [listener.fileno()])


def _be_mirror(orders: socket.socket) -> NoReturn:
    namespaces.set_process_name("lab-mirror")
    _, descriptors, _, _ = socket.recv_fds(orders, 1, 1)
    if descriptors:
        with socket.socket(fileno=descriptors[0]) as listener:
            while True:
                client, _ = listener.accept()
                threading.Thread(target=_serve, args=(client,), daemon=True).start()
    os._exit(0)


def _serve(client: socket.socket) -> None:
    with client, contextlib.suppress(OSError):
        client.settimeout(IDLE_S)
        head = _read_head(client)
        try:
            host, port, first = request(head)
            server = socket.create_connection((host, port), timeout=IDLE_S)
        except (ValueError, OSError) as error:
            client.sendall(f"HTTP/1.1 502 {error}\r\nConnection: close\r\n\r\n".replace("\n\r", " ").encode())
            return
        with server:
            if first:
                server.sendall(first)
            else:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            _join(client, server)


def _read_head(client: socket.socket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head and len(head) < MOST_HEAD_BYTES and (data := client.recv(4096)):
        head += data
    return head


def request(head: bytes) -> tuple[str, int, bytes]:
    """Host and port that `head` requests, and the data to send there: b"" for a tunnel (CONNECT). ValueError if none.

    Only the first request of a connection is served: a forwarded GET or HEAD has `Connection: close`, and data that
    the client sends ahead is dropped.
    """
    lines = head.split(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    method, _, rest = lines[0].partition(" ")
    url = urlsplit(f"//{rest.split(' ')[0]}" if method == "CONNECT" else rest.split(" ")[0])
    host, port = url.hostname, url.port or 80
    if not host or port not in PORTS or method not in ("CONNECT", "GET", "HEAD"):
        raise ValueError(f"not for packages: {lines[0][:80]}")
    if method == "CONNECT":
        return host, port, b""
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    kept = [line for line in lines[1:] if not line.lower().startswith(("connection:", "proxy-"))]
    return host, port, "\r\n".join([f"{method} {path} HTTP/1.1", *kept, "Connection: close", "", ""]).encode("latin-1")


def _join(one: socket.socket, other: socket.socket) -> None:
    """Carries bytes both ways until one side has ended, or nothing has arrived for IDLE_S."""
    far = {one: other, other: one}
    while ready := select.select(list(far), [], [], IDLE_S)[0]:
        for end in ready:
            data = end.recv(1 << 16)
            if not data:
                return
            far[end].sendall(data)
