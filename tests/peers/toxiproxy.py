"""Shopify's toxiproxy before five brokers, where sarama's tests expect them."""

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.peers.brokers import free_ports

_MODULE = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"


@contextmanager
def proxies(folder: Path, routes: list[tuple[int, int]]) -> Iterator[str]:
    """Proxies kafka1 to kafka5, each from its port to that of a broker; the address that controls them."""
    server = folder / "server"
    if not server.exists():
        subprocess.run(["go", "install", _MODULE], env={**os.environ, "GOBIN": str(folder)}, check=True)
    (port,) = free_ports(1)
    control = f"http://127.0.0.1:{port}"
    process = subprocess.Popen([server, "-port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for number, (listens, leads) in enumerate(routes, 1):
            _make(control, f"kafka{number}", f"127.0.0.1:{listens}", f"127.0.0.1:{leads}")
        yield control
    finally:
        process.kill()
        process.wait()


def _make(control: str, name: str, listen: str, upstream: str) -> None:
    body = json.dumps({"name": name, "listen": listen, "upstream": upstream, "enabled": True}).encode()
    until = time.monotonic() + 30
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(f"{control}/proxies", body), timeout=10).close()
        except urllib.error.URLError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return
