"""Frameworks that inject or check look annotations up; confluent_kafka's classes have none, so nothing fails there."""

import typing

import pytest

import kclient_quota

CLIENTS = [
    made
    for name in kclient_quota.__all__
    if isinstance(made := getattr(kclient_quota, name), type) and name.endswith(("Producer", "Consumer", "Admin"))
]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_annotations_of_a_subclass_can_be_resolved(client: type) -> None:
    class Mine(client):  # type: ignore[misc, valid-type] # given at run time
        retries: int

    assert typing.get_type_hints(Mine)["retries"] is int
    typing.get_type_hints(Mine.__init__)
