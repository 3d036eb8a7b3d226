"""Answers on the wire, to the byte and the millisecond, of the embedded broker and of Apache Kafka."""

import math
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from kclient_quota.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    ProduceRequest,
    ProduceResponse,
)
from kclient_quota.wire.records import Record, build_batch
from tests.contract.wire_client import Wire, connected, create_topic

Unique = Callable[[str], str]
EXACT, DEFAULT, ANY = 0, 1, 2
INVALID_REQUEST, UNSUPPORTED_VERSION = 42, 35


def _produce(topic: str, size: int) -> ProduceRequest:
    batch = build_batch([Record(value=b"x" * size, timestamp_ms=time.time_ns() // 1_000_000)])
    partition = ProduceRequest.PartitionProduceData(index=0, records=bytes(batch))
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])
    return ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data])


def _throttle_ms(recorded: int, quota: float) -> int:
    """KIP-13's formula for a sensor that is new: ten whole windows of a second."""
    return math.floor((recorded / 10 - quota) / quota * 10_000 + 0.5)


@pytest.mark.parametrize("version", [3, 7, 9, 12])
def test_a_produce_request_is_throttled_to_the_millisecond(cluster: Any, unique: Unique, version: int) -> None:
    topic, client_id, quota = unique("t"), unique("app"), 40_000
    create_topic(cluster, topic)
    cluster.set_quota(client_id=client_id, producer_byte_rate=quota)
    with connected(cluster, client_id) as wire:
        size = wire.send(_produce(topic, 401_000), version)
        response = wire.receive(ProduceResponse, version)
    assert response.responses[0].partition_responses[0].error_code == 0
    assert response.throttle_time_ms == _throttle_ms(size, quota)


def test_the_connection_is_muted_for_as_long_as_was_said(cluster: Any, unique: Unique) -> None:
    topic, client_id, quota = unique("t"), unique("app"), 30_000
    create_topic(cluster, topic)
    cluster.set_quota(client_id=client_id, producer_byte_rate=quota)
    with connected(cluster, client_id) as wire, connected(cluster, client_id) as other:
        sent = time.monotonic()
        wire.send(_produce(topic, 520_000), 9)
        throttle_ms = wire.receive(ProduceResponse, 9).throttle_time_ms
        begin = time.monotonic()
        # another connection of the same client is not muted, though its bytes are counted with the first one's
        other.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
        assert time.monotonic() - begin < throttle_ms / 1000 - 0.5
        wire.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
        assert time.monotonic() - sent >= (throttle_ms - 20) / 1000


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(cluster: Any) -> None:
    with connected(cluster) as wire:
        wire.send_bytes(struct.pack(">ihhih", 11, 18, 99, 7, -1) + b"\x00")
        response = wire.receive(ApiVersionsResponse, 0)
    assert response.error_code == UNSUPPORTED_VERSION
    assert 18 in {api.api_key for api in response.api_keys}


def _alteration(entity: dict[str, str | None], values: dict[str, float | None]) -> AlterClientQuotasRequest.EntryData:
    return AlterClientQuotasRequest.EntryData(
        entity=[
            AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
        ],
        ops=[
            AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        ],
    )


def _alter(wire: Wire, entity: dict[str, str | None], values: dict[str, float | None], **options: Any) -> int:
    request = AlterClientQuotasRequest(entries=[_alteration(entity, values)], **options)
    (entry,) = wire.ask(request, AlterClientQuotasResponse, 1).entries
    assert {part.entity_type: part.entity_name for part in entry.entity} == entity
    return entry.error_code


def _describe(wire: Wire, components: list[tuple[str, int, str | None]], *, strict: bool) -> Any:
    request = DescribeClientQuotasRequest(
        components=[
            DescribeClientQuotasRequest.ComponentData(entity_type=kind, match_type=how, match=name)
            for kind, how, name in components
        ],
        strict=strict,
    )
    response = wire.ask(request, DescribeClientQuotasResponse, 1)
    assert response.error_code == 0, response.error_message
    return {
        frozenset((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries or []
    }


def _eventually(read: Callable[[], Any], wanted: Any) -> None:
    """A change is answered before every broker has it in its image."""
    deadline = time.monotonic() + 60
    while (found := read()) != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    assert found == wanted


def test_quotas_are_found_by_exact_default_and_any_match(cluster: Any, unique: Unique) -> None:
    user, client = unique("user"), unique("client")
    pair = {"user": user, "client-id": client}
    with connected(cluster) as wire:
        assert _alter(wire, pair, {"producer_byte_rate": 1000.0, "request_percentage": 12.5}) == 0
        assert _alter(wire, {"user": user}, {"consumer_byte_rate": 2000.0}) == 0
        assert _alter(wire, {"user": user, "client-id": None}, {"producer_byte_rate": 3000.0}) == 0
        both = frozenset(pair.items())
        only = frozenset({("user", user)})
        default = frozenset({("user", user), ("client-id", None)})
        _eventually(
            lambda: _describe(wire, [("user", EXACT, user)], strict=False),
            {
                both: {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
                only: {"consumer_byte_rate": 2000.0},
                default: {"producer_byte_rate": 3000.0},
            },
        )
        assert set(_describe(wire, [("user", EXACT, user)], strict=True)) == {only}
        exactly = [("user", EXACT, user), ("client-id", EXACT, client)]
        assert set(_describe(wire, exactly, strict=True)) == {both}
        by_default = [("user", EXACT, user), ("client-id", DEFAULT, None)]
        assert set(_describe(wire, by_default, strict=True)) == {default}
        by_any = [("user", EXACT, user), ("client-id", ANY, None)]
        assert set(_describe(wire, by_any, strict=True)) == {both, default}


def test_a_removed_quota_is_no_longer_described(cluster: Any, unique: Unique) -> None:
    client = unique("client")
    entity = frozenset({("client-id", client)})
    with connected(cluster) as wire:

        def read() -> Any:
            return _describe(wire, [("client-id", EXACT, client)], strict=True)

        assert _alter(wire, {"client-id": client}, {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0}) == 0
        _eventually(read, {entity: {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0}})
        assert _alter(wire, {"client-id": client}, {"producer_byte_rate": None}) == 0
        _eventually(read, {entity: {"consumer_byte_rate": 2000.0}})
        assert _alter(wire, {"client-id": client}, {"consumer_byte_rate": None}) == 0
        _eventually(read, {})


def test_validate_only_changes_nothing(cluster: Any, unique: Unique) -> None:
    client = unique("client")
    with connected(cluster) as wire:
        assert _alter(wire, {"client-id": client}, {"producer_byte_rate": 1000.0}, validate_only=True) == 0
        assert _alter(wire, {"client-id": client}, {"consumer_byte_rate": 5.0}) == 0
        _eventually(
            lambda: _describe(wire, [("client-id", EXACT, client)], strict=True),
            {frozenset({("client-id", client)}): {"consumer_byte_rate": 5.0}},
        )


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        ({"client-id": "a"}, {"producer_byte_rte": 1.0}),
        ({"client-id": "a"}, {"producer_byte_rate": -1.0}),
        ({"client-id": "a"}, {"producer_byte_rate": 0.0}),
        ({"client-id": "a"}, {"producer_byte_rate": 1.5}),
        ({"client-id": "a"}, {"connection_creation_rate": 1.0}),
        ({"planet": "a"}, {"producer_byte_rate": 1.0}),
        ({"ip": "127.0.0.1"}, {"producer_byte_rate": 1.0}),
        ({"client-id": "a", "ip": "127.0.0.1"}, {"producer_byte_rate": 1.0}),
        ({"client-id": ""}, {"producer_byte_rate": 1.0}),
    ],
)
def test_a_senseless_alteration_is_an_invalid_request(
    cluster: Any, entity: dict[str, str | None], values: dict[str, float | None]
) -> None:
    with connected(cluster) as wire:
        assert _alter(wire, entity, values) == INVALID_REQUEST
