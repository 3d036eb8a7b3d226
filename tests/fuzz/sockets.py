"""Broken frames on live sockets of a broker, while somebody else asks it something again and again."""

import contextlib
import json
import os
import socket
import subprocess
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import confluent_kafka

from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.wire.codec import encode
from kclient_quota.wire.connection import Connection, ConnectionSettings
from kclient_quota.wire.frame import RequestHeader, encode_request_header
from kclient_quota.wire.messages import API, ApiVersionsRequest
from tests.fuzz.targets import broken
from tests.soak.brokers import Brokers, size_of
from tests.unit.wire.random_message import random_struct

FRAMES_A_CONNECTION = 30
ANSWER_S = 0.2
"""A request that is answered is answered sooner, and one that is refused ends the connection."""


def on_live_sockets(frames: int, seed: int) -> dict[str, Any]:
    """Send `frames` to an embedded broker; how long its other client waited at most."""
    brokers = Brokers(says=subprocess.DEVNULL)  # a line for each frame that it refuses
    try:
        host, _, port = brokers.servers.split(",")[0].rpartition(":")
        before = size_of(brokers.process.pid)
        waits: list[tuple[float, float]] = []
        stops = threading.Event()
        bystander = threading.Thread(
            target=_ask_again_and_again, args=(host, int(port), stops, waits, brokers.process.pid)
        )
        bystander.start()
        connections = _send((host, int(port)), frames, Random(seed))
        stops.set()
        bystander.join(60)
        works = _works(brokers)
        return {
            "frames": frames,
            "connections": connections,
            "others_asked": len(waits),
            "longest_wait_of_others_s": round(max(wait for wait, _ in waits), 3),
            "most_work_while_others_waited_s": round(max(work for _, work in waits), 3),
            "still_works": works,
            "before": before,
            "after": size_of(brokers.process.pid),
        }
    finally:
        brokers.close()


def _ask_again_and_again(
    host: str, port: int, stops: threading.Event, waits: list[tuple[float, float]], pid: int
) -> None:
    """How long each answer took, and how long the broker worked meanwhile: a busy machine makes everybody wait."""
    with Connection(ConnectionSettings(host, port), SYSTEM_CLOCK) as connection:
        while not stops.wait(0.02):
            begin, work = time.monotonic(), _worked_s(pid)
            connection.send(ApiVersionsRequest(client_software_name="other", client_software_version="1"))
            waits.append((time.monotonic() - begin, _worked_s(pid) - work))


def _worked_s(pid: int) -> float:
    """Seconds of CPU of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _send(address: tuple[str, int], frames: int, random: Random) -> int:
    left, connections = frames, 0
    while left:
        connections += 1
        with socket.create_connection(address, timeout=ANSWER_S) as one, contextlib.suppress(ConnectionError):
            for _ in range(min(left, FRAMES_A_CONNECTION)):
                left -= 1
                one.sendall(_frame(random))
                try:
                    if not one.recv(1 << 16):
                        break
                except TimeoutError:  # nothing is said to this, or not yet
                    continue
    return connections


def _frame(random: Random) -> bytes:
    cls = API[random.choice(list(API))].request
    version = random.choice(list(cls.__schema__.valid_versions))
    message = random_struct(random, cls, version)
    body = encode(message, version)
    head = encode_request_header(RequestHeader(message.__schema__.api_key, version, 1, "fuzz"))
    in_header = random.random() < 0.3
    frame = broken(random, head + body) if in_header else head + broken(random, body)
    return len(frame).to_bytes(4) + frame


def _works(brokers: Brokers) -> bool:
    name = "after-all-that"
    brokers.ask("topic", name=name, partitions=1)
    producer = confluent_kafka.Producer({"bootstrap.servers": brokers.servers})
    producer.produce(name, json.dumps(name))
    return producer.flush(30) == 0
