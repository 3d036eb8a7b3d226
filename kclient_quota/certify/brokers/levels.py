"""Rows for whose quota it is (KIP-55, KIP-257) and for how quotas are asked for and set (KIP-546)."""

from collections.abc import Callable, Mapping
from typing import Final

from kclient_quota.certify.brokers.probe import Probe
from kclient_quota.certify.brokers.row import Row
from kclient_quota.certify.verdict import Verdict, failed, passed
from kclient_quota.cluster.quotas import alter_client_quotas, describe_request, read_description
from kclient_quota.errors import ClusterError
from kclient_quota.quota.entity import CLIENT_ID, DEFAULT, USER, ClientQuotaEntity, Name
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import AlterClientQuotasRequest, DescribeClientQuotasRequest

_TIGHT, _WIDE = 2_000.0, 1e9
_BYTES: Final = 60_000
_EXACT, _DEFAULT, _ANY = 0, 1, 2
Level = Callable[[Probe], Mapping[str, Name]]


def _user(probe: Probe) -> Mapping[str, Name]:
    return {USER: probe.user}


def _client(probe: Probe) -> Mapping[str, Name]:
    return {CLIENT_ID: probe.name}


def _user_client(probe: Probe) -> Mapping[str, Name]:
    return {USER: probe.user, CLIENT_ID: probe.name}


def _user_any_client(probe: Probe) -> Mapping[str, Name]:
    return {USER: probe.user, CLIENT_ID: DEFAULT}


def _any_user(_probe: Probe) -> Mapping[str, Name]:
    return {USER: DEFAULT}


def _any_user_client(probe: Probe) -> Mapping[str, Name]:
    return {USER: DEFAULT, CLIENT_ID: probe.name}


def _any_client(_probe: Probe) -> Mapping[str, Name]:
    return {CLIENT_ID: DEFAULT}


def _beats(winner: Level, loser: Level) -> Callable[[Probe], Verdict]:
    """The winner's quota counts: a wide one lets pass what the loser's would throttle, a tight one throttles."""

    def judge(probe: Probe) -> Verdict:
        topic = probe.topic()
        told = []
        for of_winner, of_loser in ((_WIDE, _TIGHT), (_TIGHT, _WIDE)):
            probe.set_quota(loser(probe), topic, producer_byte_rate=of_loser)
            probe.set_quota(winner(probe), topic, producer_byte_rate=of_winner)
            told.append(probe.talker(topic=topic).produce(topic, _BYTES).throttle_ms)
        why = f"{told[0]} ms where it is wide and the other tight, {told[1]} ms the other way round"
        return passed(why) if not told[0] and told[1] else failed(why)

    return judge


def _each_of_a_default(probe: Probe) -> Verdict:
    topic = probe.topic()
    probe.set_quota(_any_client(probe), topic, producer_byte_rate=_TIGHT)
    first = probe.talker(f"{probe.name}-a", topic).produce(topic, _BYTES).throttle_ms
    second = probe.talker(f"{probe.name}-b", topic).produce(topic, 1).throttle_ms
    why = f"{first} ms for the one who sent much, {second} ms for the one who sent a byte"
    return passed(why) if first and not second else failed(why)


def _described(probe: Probe) -> Verdict:
    probe.set_quota(_client(probe), producer_byte_rate=1_234.0)
    probe.set_quota(_user_client(probe), consumer_byte_rate=77.0)
    component = DescribeClientQuotasRequest.ComponentData(entity_type=CLIENT_ID, match_type=_EXACT, match=probe.name)
    asked = [
        probe.client.ask(DescribeClientQuotasRequest(components=[component], strict=strict)) for strict in (False, True)
    ]
    wide, strict = (dict(read_description(answer)) for answer in asked)
    wanted = {
        ClientQuotaEntity(_client(probe)): {"producer_byte_rate": 1_234.0},
        ClientQuotaEntity(_user_client(probe)): {"consumer_byte_rate": 77.0},
    }
    if wide != wanted:
        return failed(f"asked for a client-id it told {wide}")
    only = {ClientQuotaEntity(_client(probe)): {"producer_byte_rate": 1_234.0}}
    return passed("both, and one when asked strictly") if strict == only else failed(f"asked strictly it told {strict}")


def _only_checked(probe: Probe) -> Verdict:
    entity = ClientQuotaEntity(_client(probe))
    (result,) = alter_client_quotas(probe.client, [(entity, {"producer_byte_rate": 1.0})], validate_only=True)
    found = dict(read_description(probe.client.ask(describe_request([])))).get(entity)
    if result.error_code or found:
        return failed(f"error {result.error_code}, afterwards {found}")
    return passed("nothing was set")


def _refuses(entity: Level, key: str, value: float) -> Callable[[Probe], Verdict]:
    def judge(probe: Probe) -> Verdict:
        parts = [
            AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=None if name is DEFAULT else str(name))
            for kind, name in entity(probe).items()
        ]
        op = AlterClientQuotasRequest.OpData(key=key, value=value, remove=False)
        entry = AlterClientQuotasRequest.EntryData(entity=parts, ops=[op])
        try:
            (answer,) = probe.client.ask_controller(AlterClientQuotasRequest(entries=[entry])).entries
        except ClusterError as error:
            return failed(f"no answer: {error}")
        why = f"answered {answer.error_code} ({answer.error_message})"
        return passed("INVALID_REQUEST") if answer.error_code == ErrorCode.INVALID_REQUEST else failed(why)

    return judge


_KIP_257 = "KIP-257 and KIP-55: order of precedence"
_KIP_546 = "KIP-546"
_ORDER = (
    ("user-and-client-before-user", "<user, client-id> before <user>", _user_client, _user),
    ("user-and-any-client-before-user", "<user, default client-id> before <user>", _user_any_client, _user),
    ("user-before-any-user-and-client", "<user> before <default user, client-id>", _user, _any_user_client),
    (
        "any-user-and-client-before-any-user",
        "<default user, client-id> before <default user>",
        _any_user_client,
        _any_user,
    ),
    ("any-user-before-client", "<default user> before <client-id>", _any_user, _client),
    ("client-before-any-client", "<client-id> before <default client-id>", _client, _any_client),
)

ROWS = (
    *(
        Row(name, f"Of two quotas the more specific one counts: {what}.", _KIP_257, _beats(winner, loser), alone=True)
        for name, what, winner, loser in _ORDER
    ),
    Row(
        "any-client-each",
        "A quota of the default client-id is each one's own.",
        "KIP-13: default quotas",
        _each_of_a_default,
        alone=True,
    ),
    Row(
        "quotas-described",
        "Quotas are described by component, strictly or not.",
        f"{_KIP_546}, match and strict",
        _described,
    ),
    Row("quotas-only-checked", "validate_only sets nothing.", f"{_KIP_546}, AlterClientQuotas", _only_checked),
    Row(
        "unknown-key-refused",
        "A quota that does not exist is refused with INVALID_REQUEST.",
        f"{_KIP_546}, AlterClientQuotas: InvalidRequestException",
        _refuses(_client, "no_such_rate", 1.0),
    ),
    Row(
        "nothing-refused",
        "A quota of nothing or less is refused.",
        "Kafka, QuotaConfig: values are at least 1 (byte rates)",
        _refuses(_client, "producer_byte_rate", -1.0),
    ),
    Row(
        "user-and-address-refused",
        "Addresses have no quotas together with users.",
        "KIP-612: ip entities stand alone",
        _refuses(lambda probe: {USER: probe.user, "ip": "127.0.0.1"}, "connection_creation_rate", 5.0),
    ),
    Row(
        "address-refused",
        "A quota of an address that is none is refused.",
        "KIP-612: valid hosts or addresses only",
        _refuses(lambda _probe: {"ip": "no address"}, "connection_creation_rate", 5.0),
    ),
)
