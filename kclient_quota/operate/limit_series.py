"""What the cluster's quotas allow, as series beside what clients push; those of clients that push now, no others."""

import threading
from collections.abc import Callable, Iterable
from typing import Final

from kclient_telemetry import logger_of
from kclient_telemetry.receiver.exposition import Family, Sample
from kclient_telemetry.receiver.prometheus import OWN_PREFIX

from kclient_quota.admin.effective import EffectiveQuota, EffectiveQuotas
from kclient_quota.admin.output import entity_text
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.quota.entity import ClientQuotaEntity

log = logger_of(__name__)

NAME: Final = f"{OWN_PREFIX}quota_limit"
EVERY_S: Final = 30.0


def limit_family(families: Iterable[Family], quotas: EffectiveQuotas) -> Family:
    """One series for each client that has any in `families`, and each kind of quota that limits it.

    Labels: `principal` and `client_id` as those of the client's own series, `quota` such as "producer_byte_rate",
    `entity` whose entry decides, `shared_by` who shares what it allows: all clients of a user, say.
    """
    clients = {
        (labels.get("principal", ""), labels.get("client_id", ""))
        for family in families
        for _, labels, _ in family.samples
        if "client_instance_id" in labels
    }
    found: list[Sample] = []
    for principal, client_id in sorted(clients):
        user = principal.removeprefix("User:")
        for quota in _of(quotas, user, client_id):
            decided_by = quota.decided_by.entity
            shared = ClientQuotaEntity.of(
                user=None if decided_by.user is None else user,
                client_id=None if decided_by.client_id is None else client_id,
            )
            labels = {"principal": principal, "client_id": client_id, "quota": quota.key}
            labels |= {"entity": entity_text(decided_by), "shared_by": entity_text(shared)}
            found.append(("", {key: text for key, text in labels.items() if text}, quota.value))
    return Family(NAME, "gauge", found, "what a quota allows on each broker, in the unit of its kind")


def _of(quotas: EffectiveQuotas, user: str, client_id: str) -> list[EffectiveQuota]:
    try:
        return quotas.describe(ClientQuotaEntity.of(user=user or None, client_id=client_id or None))
    except ConfigError:  # a name that no entry can be for: nothing limits it
        return []


class LimitSeries:
    """Asks for the quotas every half a minute, in a thread; while they are not known there are no series.

    Args:
        ask: gives the quotas, or raises ClusterError.
        every_s: how often.
        leave: called when nothing is asked any more, in that thread; nobody waits for a cluster that has fallen silent.
    """

    def __init__(
        self, ask: Callable[[], EffectiveQuotas], every_s: float = EVERY_S, *, leave: Callable[[], None] = lambda: None
    ) -> None:
        self._ask = ask
        self._leave = leave
        self._every_s = every_s
        self._quotas: EffectiveQuotas | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="quota-limits", daemon=True)
        self._thread.start()

    def __call__(self, families: list[Family]) -> list[Family]:
        """The series for a page that has `families`."""
        quotas = self._quotas
        return [] if quotas is None else [limit_family(families, quotas)]

    def close(self, timeout_ms: int) -> None:
        """Ask no more."""
        self._closed.set()
        self._thread.join(timeout_ms / 1000)

    def _run(self) -> None:
        is_told = False
        while not self._closed.is_set():
            try:
                self._quotas, is_told = self._ask(), False
            except ClusterError as error:
                if not is_told:
                    log.warning("limits of quotas are not on the page: %s", error)
                self._quotas, is_told = None, True
            self._closed.wait(self._every_s)
        self._leave()
