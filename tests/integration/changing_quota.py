"""A quota for fetches that a test sets, changes and takes away, by the callback of a client's configuration."""

from collections.abc import Mapping

from kclient_quota.quota.callback import ClientQuotaCallback, ClientQuotaType


class Changing(ClientQuotaCallback):
    """A limit that the test changes."""

    def __init__(self) -> None:
        self.limit: float | None = None

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: str, client_id: str) -> Mapping[str, str]:
        return {"client-id": client_id}

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        return self.limit if quota_type is ClientQuotaType.FETCH else None

    def quota_reset_required(self, quota_type: ClientQuotaType) -> bool:
        return True
