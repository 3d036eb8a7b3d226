"""In place of aiokafka's own conftest, which starts a container: a broker that runs already."""

import asyncio
import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest

HOST, _, PORT = os.environ.get("AIOKAFKA_BROKER", "127.0.0.1:9092").rpartition(":")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--docker-image")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ssl: needs certificates")


@pytest.fixture(scope="class")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    if not made.is_closed():
        made.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class_serverless(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> None:
    cls: Any = request.cls
    cls.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> None:
    cls: Any = request.cls
    cls.loop = loop
    cls.kafka_host, cls.kafka_port = HOST, int(PORT)
    cls.hosts = [f"{HOST}:{PORT}"]
    cls.kafka_version = os.environ["KAFKA_VERSION"]


@pytest.fixture(scope="session")
def ssl_folder() -> None:
    pytest.skip("no certificates")
