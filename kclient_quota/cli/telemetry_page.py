"""What clients push, from a page for Prometheus."""

from typing import TYPE_CHECKING, Any

from kclient_quota.clock import SYSTEM_CLOCK, unix_ms
from kclient_quota.errors import ClusterError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kclient_quota.operate.top import Sample

_URL_TIMEOUT_S = 10
_SLICE_MS = 100


def page_source(
    url: str,
    take: "Callable[[Sample], None]",
    stopped: "Callable[[], bool]",
    trouble: "Callable[[str], None] | None" = None,
) -> "tuple[Callable[[float], None], Callable[[], None]]":
    """What looks at a page for so many seconds, and what closes it.

    Args:
        url: of the page.
        take: given every sample.
        stopped: whether looking shall end early.
        trouble: as of `telemetry_sources.opened`.

    Raises:
        ConfigError: it is no URL, or what reads such pages is missing.
    """
    import http.client  # noqa: PLC0415 - as below
    import urllib.parse  # noqa: PLC0415 - as below
    import urllib.request  # noqa: PLC0415 - loads TLS, slow for --help

    try:
        from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ConfigError("--prometheus needs prometheus_client: pip install 'kclient-quota[prometheus]'") from error
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--prometheus {url}: write http://HOST:PORT/metrics")
    try:
        _ = urllib.parse.urlsplit(url).port
    except ValueError as error:
        raise ConfigError(f"--prometheus {url}: {error}; write http://HOST:PORT/metrics") from error
    is_first, was_read = True, False

    def look(interval_s: float) -> None:
        nonlocal is_first, was_read
        end_ms = SYSTEM_CLOCK.now_ms() + (0 if is_first else round(interval_s * 1000))
        is_first = False
        while not stopped() and (left_ms := end_ms - SYSTEM_CLOCK.now_ms()) > 0:
            SYSTEM_CLOCK.sleep_ms(min(_SLICE_MS, left_ms))
        try:
            with urllib.request.urlopen(url, timeout=_URL_TIMEOUT_S) as page:  # noqa: S310 - http and https only
                families = list(text_string_to_metric_families(page.read().decode()))
        except (OSError, ValueError, http.client.HTTPException) as error:  # URLError is an OSError
            if trouble is None or not was_read:  # a URL that never was a page is said at once
                raise ClusterError(f"--prometheus {url}: {error}") from error
            trouble(f"--prometheus {url}: {error}; trying again")
            return
        was_read = True
        if trouble is not None:
            trouble("")
        _take_page((sample for family in families for sample in family.samples), take)

    return look, lambda: None


def _take_page(samples: "Iterable[Any]", take: "Callable[[Sample], None]") -> None:
    from kclient_quota.operate.top import Sample  # noqa: PLC0415 - as above

    now_ms = unix_ms()
    for sample in samples:
        labels = sample.labels
        user = labels.get("principal", "").removeprefix("User:")
        instance, client_id = labels.get("client_instance_id", ""), labels.get("client_id", "")
        take(Sample(instance, client_id, user, sample.name, labels, sample.value, now_ms))
