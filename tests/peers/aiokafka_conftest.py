"""In place of aiokafka's own conftest, which starts a container: a broker that runs already."""

import asyncio
import gc
import os

import pytest

HOST, _, PORT = os.environ.get("AIOKAFKA_BROKER", "127.0.0.1:9092").rpartition(":")


def pytest_addoption(parser):
    parser.addoption("--docker-image")


def pytest_configure(config):
    config.addinivalue_line("markers", "ssl: needs certificates")


@pytest.fixture(scope="class")
def loop():
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    if not made.is_closed():
        made.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class_serverless(request, loop):
    request.cls.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(request, loop):
    cls = request.cls
    cls.loop = loop
    cls.kafka_host, cls.kafka_port = HOST, int(PORT)
    cls.hosts = [f"{HOST}:{PORT}"]
    cls.kafka_version = os.environ["KAFKA_VERSION"]


@pytest.fixture(scope="session")
def ssl_folder():
    pytest.skip("no certificates")
