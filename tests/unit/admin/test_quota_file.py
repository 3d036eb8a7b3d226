import json

import pytest

from kclient_quota.admin.plan import asked_after, make_plan
from kclient_quota.admin.quota_file import (
    QuotaFile,
    format_quota_file,
    parse_quota_file,
    quota_document,
    readable_json,
)
from kclient_quota.admin.unit_quotas import in_order
from kclient_quota.admin.units import QuotaUnit, to_write
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity

of = ClientQuotaEntity.of
P, C = QuotaUnit("producer_byte_rate", "broker_bps"), QuotaUnit("consumer_byte_rate", "broker_bps")
P_BPS, P_SHARES = P._replace(unit="bps"), P._replace(unit="shares")

GOOD = """
version: 1
capacity: {producer_byte_rate: 50_000_000}
quotas:
  - names: {user: alice, client-id: 123}
    set:
      producer_byte_rate: 1048576
      producer_byte_rate:bps: 1e7
      consumer_byte_rate:broker_bps: 2048
    remove: [request_percentage]
  - names: {client-id: "null"}
    defaults: [user]
    set: {producer_byte_rate:shares: 3}
  - defaults: [ip]
    set: {connection_creation_rate: 10}
"""


def test_a_file():
    file = parse_quota_file(GOOD, "quotas.yaml")
    alice, null, ip = file.entries
    assert alice.entity == of(user="alice", client_id="123")
    assert alice.wanted == {P: 1048576.0, P_BPS: 1e7, C: 2048.0}
    assert alice.unwanted == {QuotaUnit("request_percentage", "percent")}
    assert null.entity == of(user=DEFAULT, client_id="null")
    assert list(null.entity.entries) == ["user", "client-id"]
    assert ip.entity == of(ip=DEFAULT)
    assert file.capacity == {"producer_byte_rate": 5e7}


ONE = "version: 1\nquotas:\n- names: {user: u}\n  set:"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "f:1: the file is empty"),
        ("a: [", r"f:\d: this is no YAML"),
        ("version: 1\nquotas: [\n", "this is no YAML"),
        ("quotas: []", "f:1: version: write version: 1"),
        ("version: 2", "f:1: version: write version: 1"),
        ("version: 1\nquota: []", "f:2: the file has no field 'quota'; its fields are version, capacity, quotas"),
        ("[1]", "f:1: the file: fields with values are wanted"),
        ("version: 1\nquotas: 5", "f:2: quotas: a list is wanted"),
        ("version: 1\nquotas:\n- 5", "f:3: an entry of quotas: fields with values"),
        ("version: 1\nquotas:\n- names: {user: u}", "f:3: an entry needs set"),
        ("version: 1\nquotas:\n- set: {producer_byte_rate: 1}", "f:3: an entry needs names"),
        (
            "version: 1\nquotas:\n- names: {user: }\n  set: {producer_byte_rate: 1}",
            "f:3: names.user: a name is missing",
        ),
        (
            "version: 1\nquotas:\n- names: {user: [a]}\n  set: {producer_byte_rate: 1}",
            "f:3: names.user: a single value",
        ),
        (
            "version: 1\nquotas:\n- names: {user: u}\n  defaults: [user]\n  set: {producer_byte_rate: 1}",
            "f:4: defaults: user has a name already",
        ),
        (
            "version: 1\nquotas:\n- names: {user: u}\n  set:\n    producer_byte_rate: 1\n    producer_byte_rat: 2",
            "f:6: set.producer_byte_rat: Invalid configuration key producer_byte_rat",
        ),
        (
            "version: 1\nquotas:\n- names: {user: u}\n  set:\n    producer_byte_rate: lots",
            "f:5: set: producer_byte_rate:",
        ),
        (
            "version: 1\nquotas:\n- names: {user: u}\n  set:\n    producer_byte_rate:gbps: 1",
            "f:5: set: producer_byte_rate has no unit 'gbps'; its units are broker_bps, bps, shares",
        ),
        ("version: 1\nquotas:\n- names: {user: u}\n  set:\n    producer_byte_rate: 1.5", "f:5: .*fractional"),
        ("version: 1\nquotas:\n- names: {user: u}\n  set:\n    producer_byte_rate: -1", "f:5: .*greater than 0"),
        (
            "version: 1\nquotas:\n- names: {user: u}\n  set:\n  - a\n  remove: []",
            "f:5: set: fields with values are wanted here",
        ),
        (
            f"{ONE}\n    producer_byte_rate: 1\n    producer_byte_rate:broker_bps: 2",
            "f:6: set: producer_byte_rate:broker_bps stands in it twice",
        ),
        (
            "version: 1\nquotas:\n- names: {user: u}\n  set: {producer_byte_rate: 1}\n  remove: [producer_byte_rate]",
            "f:5: remove: producer_byte_rate:broker_bps is set as well",
        ),
        (
            f"{ONE} {{producer_byte_rate: 1}}\n- names: {{user: u}}\n  set: {{consumer_byte_rate: 1}}",
            "f:5: {user=u} stands in line 3 already",
        ),
        ("version: 1\nquotas:\n- names: {user: u, ip: 1.2.3.4}\n  set: {producer_byte_rate: 1}", "f:3: .*combination"),
        (
            "version: 1\nquotas:\n- names: {user: u}\n  set: {producer_byte_rate:shares: 1}",
            "f:3: .*shares need a capacity",
        ),
        ("version: 1\ncapacity: {controller_mutation_rate: 1}", "f:2: capacity: .*cannot be shared out"),
        (
            "version: 1\nquotas:\n- names:\n    client_id: a\n  set: {producer_byte_rate: 1}",
            "f:4: client_id: Kafka has no such type of entity; write client-id",
        ),
        (
            "version: 1\nquotas:\n- names: {user: u}\n  defaults: [clientid]\n  set: {producer_byte_rate: 1}",
            "f:4: clientid: Kafka has no such type of entity; write client-id",
        ),
        (
            "version: 1\nquotas:\n- names: {group: g}\n  set: {bytes_per_hour: 5}",
            "f:3: group: Kafka has no such type of entity; its types are user, client-id, ip",
        ),
        (
            f"version: 1\nquotas:\n- names:\n    user: {'u' * 40_000}\n  set: {{producer_byte_rate: 1}}",
            "f:4: names: user u{20}...: the name has 40000 bytes, and Kafka's protocol takes 32767 at most; shorten it",
        ),
        (
            "version: 1\nquotas:\n- names: {user: u}\n  remove: [producer_byte_rat]",
            "f:4: remove: Invalid configuration key producer_byte_rat",
        ),
        (
            "version: 1\nquotas:\n- defaults: [ip]\n  remove: [producer_byte_rate]",
            "f:4: remove: Invalid configuration key producer_byte_rate",
        ),
        ("version: 1\nversion: 1", "f:2: the file: version stands in it twice"),
        (
            "version: 1\nquotas:\n- names: {user: !!binary aGVsbG8=}\n  set: {producer_byte_rate: 1}",
            "f:3: names.user: the tag !!binary has no meaning here; leave it out",
        ),
        (
            "version: 1\nquotas:\n- names: {user: u}\n  set: !Sub {producer_byte_rate: 1}",
            "f:4: set: the tag !Sub has no meaning here",
        ),
        (
            "version: 1\nquotas: !Ref\n- names: {user: u}\n  set: {producer_byte_rate: 1}",
            "f:2: quotas: the tag !Ref has no meaning here",
        ),
        (
            "version: 1\nquotas:\n- names: {ip: 10.0.0.0/8}\n  set: {connection_creation_rate: 1}",
            "f:3: 10.0.0.0/8 is not a valid IP or resolvable host",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text, words):
    with pytest.raises(ConfigError, match=words):
        parse_quota_file(text, "f")


@pytest.mark.parametrize("user", ["5", "!!str 5", "0x10", "1.5", "yes", "2020-01-01", "=", "<<"])
def test_what_yaml_takes_for_something_else_is_a_name(user):
    file = parse_quota_file(f"version: 1\nquotas:\n- names: {{user: {user}}}\n  set: {{producer_byte_rate: 1}}", "f")
    assert [entry.entity for entry in file.entries] == [of(user=user.removeprefix("!!str "))]


@pytest.mark.parametrize("ip", ["10.0.0.1", "::1", "fe80::1%eth0", "db-1.example.com", "host_of_docker"])
def test_an_address_may_be_of_a_host(ip):
    text = f"version: 1\nquotas:\n- names: {{ip: '{ip}'}}\n  set: {{connection_creation_rate: 1}}"
    assert [entry.entity for entry in parse_quota_file(text, "f").entries] == [of(ip=ip)]


def test_everything_that_is_wrong_is_named_at_once():
    entries = "".join(f"- names: {{user: u{n}}}\n" for n in range(25))
    with pytest.raises(ConfigError) as caught:
        parse_quota_file(f"version: 1\nquotas:\n{entries}", "f")
    lines = str(caught.value).splitlines()
    assert [line.split(":")[1] for line in lines[:20]] == [str(n) for n in range(3, 23)]
    assert lines[20] == "f: and 5 more"


def test_what_is_exported_reads_back():
    asked = {
        of(user="ünïcode: {}", client_id=DEFAULT): {P: 5.0, QuotaUnit("request_percentage", "percent"): 12.5},
        of(user="<default>"): {P_BPS: 7.0, C: 1.0},
        of(ip="::1"): {QuotaUnit("connection_creation_rate", "connections"): 3.0},
        of(client_id="yes"): {P_SHARES: 2.0},
        of(user=DEFAULT): {P: 2.0**60},
    }
    text = format_quota_file(asked, {"producer_byte_rate": 1000.0}, in_order)
    file = parse_quota_file(text, "exported")
    assert asked_after({}, file) == asked
    assert file.capacity == {"producer_byte_rate": 1000.0}


def test_what_is_exported_in_ascii_reads_back():
    asked = {of(client_id=f"a{name}b"): {P: 5.0} for name in ("é", "日本", "😀", "\x85", "\u2028", "\\xe9")}
    text = format_quota_file(asked, {}, in_order, is_ascii=True)
    assert text.isascii()
    assert asked_after({}, parse_quota_file(text, "exported")) == asked


def test_half_of_a_character_is_no_name():
    with pytest.raises(ConfigError, match="f:1: this is no YAML"):
        parse_quota_file('{"version": 1, "quotas": [{"names": {"user": "\\ud83d\\udezz"}}]}', "f")


@pytest.mark.parametrize("text", ["[" * 50_000, "{a: " * 50_000, "- " * 50_000])
def test_a_file_that_nests_without_end_is_refused_in_words(text):
    # the latter by newer versions of PyYAML, of some
    with pytest.raises(ConfigError, match=r"f:1: (lists and maps within each other|.* exceeded maximum nesting depth)"):
        parse_quota_file(text, "f")


@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_what_is_exported_as_json_reads_back_whatever_the_names(ensure_ascii):
    odd = '\x00 \t \n \r \x1b \x7f \x80 \x85 \x9f \xa0 é \u2028 \u2029 \ufeff \uffff \\ " \\u0041'
    names = [*odd.split(" "), "日本", "😀", "\U000e0001", "\\ud83d\\ude00", "\\\\ud83d\\ude00"]
    asked = {of(client_id=f"a{name}b"): {P: 5.0} for name in names}
    text = json.dumps(quota_document(asked, {}, in_order), ensure_ascii=ensure_ascii, indent=2)
    assert json.loads(readable_json(text)) == json.loads(text)
    assert asked_after({}, parse_quota_file(readable_json(text), "exported")) == asked


BEFORE = {of(user="u"): {P: 1.0, C: 2.0}, of(user=DEFAULT): {P: 9.0}, of(user="other"): {C: 4.0}}


def planned(text, *, prune=False):
    file = parse_quota_file("version: 1\nquotas:\n" + text, "f") if text else QuotaFile()
    after = asked_after(BEFORE, file, prune=prune)
    return make_plan(file, BEFORE, after, to_write(BEFORE, {}, 1), to_write(after, {}, 1))


def test_a_plan_leaves_alone_what_the_file_does_not_speak_of():
    plan = planned(
        "- names: {user: u}\n  set: {producer_byte_rate: 3}\n  remove: [consumer_byte_rate, request_percentage]\n"
        "- names: {user: v}\n  set: {producer_byte_rate: 5}\n"
        "- defaults: [user]\n  set: {producer_byte_rate: 9}\n"
    )
    assert str(plan).splitlines() == [
        "- {user=u} consumer_byte_rate:broker_bps=2",
        "~ {user=u} producer_byte_rate:broker_bps=1 -> 3",
        "+ {user=v} producer_byte_rate:broker_bps=5",
        "",
        "effective, per broker:",
        "  {user=u} consumer_byte_rate: 2 -> no limit",
        "  {user=u} producer_byte_rate: 1 -> 3",
        "  {user=v} producer_byte_rate: 9 of {user=<default>} -> 5",
        "",
        "1 to add, 1 to change, 1 to remove; 1 that the file does not manage stay as they are",
    ]
    assert [change["action"] for change in plan.rows()["changes"]] == ["remove", "change", "add"]


def test_a_default_that_changes_reaches_those_who_have_nothing_of_their_own():
    plan = planned("- defaults: [user]\n  set: {producer_byte_rate: 8, consumer_byte_rate: 3}")
    assert sorted(str(each) for each in plan.effective) == [
        "  {user=<default>} consumer_byte_rate: no limit -> 3",
        "  {user=<default>} producer_byte_rate: 9 -> 8",
        "  {user=other} producer_byte_rate: 9 of {user=<default>} -> 8 of {user=<default>}",
    ]


def test_pruning_removes_what_the_file_does_not_set():
    plan = planned("- names: {user: u}\n  set: {producer_byte_rate: 1}", prune=True)
    assert sorted(str(change) for change in plan.changes) == [
        "- {user=<default>} producer_byte_rate:broker_bps=9",
        "- {user=other} consumer_byte_rate:broker_bps=4",
        "- {user=u} consumer_byte_rate:broker_bps=2",
    ]
    assert plan.unmanaged == 0
    assert str(planned("")) == "0 to add, 0 to change, 0 to remove; 4 that the file does not manage stay as they are"


def test_an_address_is_not_concerned_by_what_others_gain_or_lose():
    ip, user = of(ip="10.0.0.1"), of(user="alice")
    rate = QuotaUnit("connection_creation_rate", "connections")
    for before, after in (({}, {ip: {rate: 5.0}}), ({ip: {rate: 5.0}}, {})):
        had, has = before | {user: {P: 2.0}}, after | {user: {P: 1.0}}
        plan = make_plan(QuotaFile(()), had, has, to_write(had, {}, 1), to_write(has, {}, 1))
        assert {(each.entity, each.key) for each in plan.effective} == {
            (ip, "connection_creation_rate"),
            (user, "producer_byte_rate"),
        }
