"""An HTTPS server of generated files: https_server.py ADDRESS PORT CERTIFICATE KEY. /N answers with N bytes."""

from __future__ import annotations

import random
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        size_bytes = int(self.path.strip("/"))
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(size_bytes))
        self.end_headers()
        self.wfile.write(random.Random(size_bytes).randbytes(size_bytes))  # noqa: S311 (content, no secret)

    def log_message(self, format: str, *arguments: object) -> None:
        return None


def serve(address: str, port: int, certificate: str, key: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ThreadingHTTPServer((address, port), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        print("ready", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
