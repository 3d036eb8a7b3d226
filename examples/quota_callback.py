"""A `ClientQuotaCallback` of one's own: limits from wherever you keep them, and changed without a restart.

Here a tenant, named by the client.id, has a tier. The broker's own quota is higher: it is the callback that paces.
python examples/quota_callback.py
"""

import time
from collections.abc import Mapping

from kclient_quota import ClientQuotaCallback, ClientQuotaType, Producer
from kclient_quota.broker import EmbeddedBroker

LIMITS = {"free": 40_000.0, "paid": 120_000.0}


class Tiers(ClientQuotaCallback):
    """Bytes per second by tier."""

    def __init__(self) -> None:
        self.tiers = {"acme": "free"}
        self.changed = False

    def move(self, tenant: str, tier: str) -> None:  # noqa: D102 - your control plane would call this
        self.tiers[tenant] = tier
        self.changed = True

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: str, client_id: str) -> Mapping[str, str]:
        """Who is measured together."""
        return {"tenant": client_id.partition("-")[0]}

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """How much they may."""
        return LIMITS[self.tiers[metric_tags["tenant"]]] if quota_type is ClientQuotaType.PRODUCE else None

    def quota_reset_required(self, quota_type: ClientQuotaType) -> bool:
        """Whether to ask again."""
        changed, self.changed = self.changed, False
        return changed


def measure(producer: Producer, tier: str, seconds: float) -> None:
    """Produce as fast as it goes and print how fast that was."""
    begin, sent = time.monotonic(), 0
    while time.monotonic() - begin < seconds:
        producer.produce("orders", b"x" * 1_000)
        sent += 1_000
    (limit,) = {state.limit for state in producer.quota_state().values()}
    print(f"{tier}: {limit:,.0f} B/s: {sent:,} bytes in {seconds:g} s, of {limit * (seconds + 1):,.0f} at most")


if __name__ == "__main__":
    tiers = Tiers()
    with EmbeddedBroker(topics={"orders": 1}) as cluster:
        cluster.set_quota(client_id="acme-orders", producer_byte_rate=600_000)
        conf = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "acme-orders"}
        with Producer({**conf, "client.quota.callback.class": tiers}) as producer:
            measure(producer, "free", 2)
            tiers.move("acme", "paid")
            time.sleep(1.5)  # a callback is asked every second whether something has changed
            measure(producer, "paid", 2)
