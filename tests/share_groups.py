"""A topic for a share group, filled, with a quota for who reads it."""

from kclient_quota.certify.filling import fill
from kclient_quota.certify.scenes.preparing import configure_group
from kclient_quota.testing.apache import ApacheKafka


def prepared(cluster: ApacheKafka, name: str, records: int, per_batch: int, **quota: float) -> dict[str, str]:
    """Records of 1 kB in batches; returns the configuration of a consumer, all under this name."""
    cluster.create_topic(name, 1)
    fill(cluster.bootstrap_servers, name, records, 1_000, per_batch)
    if quota:
        cluster.set_quota(client_id=name, **quota)
    configure_group(cluster.bootstrap_servers, name, {"share.auto.offset.reset": "earliest"})
    return {"bootstrap.servers": cluster.bootstrap_servers, "group.id": name, "client.id": name}
