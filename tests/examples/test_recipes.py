"""Small applications with the frameworks that people use, under a quota: they run as their pages say."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(page: str, needs: str | None = None) -> str:
    if needs:
        pytest.importorskip(needs)
    done = subprocess.run([sys.executable, page], cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_fastapi_answers_429_and_when_to_come_back() -> None:
    text = run("examples/fastapi_orders.py", "fastapi")
    said = re.search(r"\(202\): (\d+), .*\(429\): (\d+), after (\d+) s at most\nall answered within ([\d.]+) s", text)
    assert said is not None
    accepted, refused, later_s = map(int, said.groups()[:3])
    assert float(said[4]) < 15, "all of them would take twenty-five seconds: nobody waits for the others' quota"
    assert accepted + refused == 100
    assert accepted > 0
    assert refused > 0
    assert 1 <= later_s <= 30


def test_faststream_consumes_with_ours_and_waits_without_blocking() -> None:
    assert "60 invoices\n" in run("examples/faststream_orders.py", "faststream.confluent")


def test_celery_s_forked_workers_send_everything() -> None:
    assert "40 of 40 orders sent by two workers\n" in run("examples/celery_orders.py", "celery")


def test_an_outbox_delays_the_worker_and_never_the_request() -> None:
    began = time.monotonic()
    said = re.search(r"placed in ([\d.]+) s\n75 sent in ([\d.]+) s", run("examples/outbox.py"))
    assert said is not None
    assert float(said[2]) - float(said[1]) > 1, "of the two that sending takes by its quota"
    assert 1.5 < float(said[2]) < time.monotonic() - began


def test_a_bytewax_sink_is_its_own_back_pressure() -> None:
    said = re.search(r"100 invoices in ([\d.]+) s", run("examples/stream_sink.py", "bytewax"))
    assert said is not None
    assert float(said[1]) > 2.5, "100 kB at 20 kB/s, of which a part may go at once"
