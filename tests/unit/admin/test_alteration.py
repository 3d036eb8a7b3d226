"""Batches, repeats and partial failure, against a broker made of answers."""

import pytest

from kclient_quota.admin.alteration import BATCH_OPS, Alterer
from kclient_quota.admin.model import ClientQuotaAlteration, ClientQuotaAlterationOp
from kclient_quota.admin.results import AlterationUnknownError, AlterClientQuotasResult, PartialAlterationError
from kclient_quota.errors import ClusterError
from kclient_quota.quota.entity import ClientQuotaEntity
from kclient_quota.testing.clock import ManualClock
from kclient_quota.wire.messages import AlterClientQuotasResponse

of = ClientQuotaEntity.of
A, B = of(user="a"), of(user="b")


def alteration(entity, **values):
    ops = tuple(ClientQuotaAlterationOp(key, value) for key, value in (values or {"producer_byte_rate": 1.0}).items())
    return ClientQuotaAlteration(entity, ops)


def response(codes, throttle_time_ms=0, said="no"):
    return AlterClientQuotasResponse(
        throttle_time_ms=throttle_time_ms,
        entries=[
            AlterClientQuotasResponse.EntryData(
                error_code=code,
                error_message=said if code else None,
                entity=[
                    AlterClientQuotasResponse.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity.wire_entries()
                ],
            )
            for entity, code in codes.items()
        ],
    )


class Broker:
    """Gives one prepared answer per request: codes by entity with a throttle time, or an error to raise."""

    def __init__(self, clock, *answers):
        self.clock = clock
        self.answers = list(answers)
        self.asked = []

    def ask(self, request, *, timeout_ms):
        entities = [
            ClientQuotaEntity({e.entity_type: e.entity_name for e in entry.entity}) for entry in request.entries
        ]
        self.asked.append((self.clock.now_ms(), entities))
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, Exception):
            raise answer
        codes, throttle_time_ms = answer if isinstance(answer, tuple) else (answer, 0)
        return response({entity: codes.get(entity, 0) for entity in entities}, throttle_time_ms)


def run(alterations, *answers, timeout_ms=30_000):
    clock = ManualClock()
    broker = Broker(clock, *answers)
    results = {}

    def settle(entity, error):
        assert entity not in results, "told twice"
        results[entity] = error

    Alterer(broker, clock, settle, timeout_ms=timeout_ms).alter(alterations)
    assert set(results) == {each.entity for each in alterations}
    return results, broker


def test_a_mutation_quota_is_waited_out_as_long_as_it_says():
    results, broker = run([alteration(A), alteration(B)], ({A: 89}, 1500), ({A: 89}, 2500))
    assert results == {A: None, B: None}
    assert broker.asked == [(0, [A, B]), (1500, [A]), (4000, [A])]


def test_a_wait_that_is_too_long_is_told_at_once():
    results, broker = run([alteration(A), alteration(B)], ({A: 89}, 40_000))
    assert results[B] is None
    assert results[A].error_code == 89
    assert "asks to wait 40000 ms, longer than request_timeout=30 s allows" in str(results[A])
    assert len(broker.asked) == 1


def test_a_controller_that_moves_is_asked_again():
    results, broker = run([alteration(A)], {A: 41}, {A: 41})
    assert results == {A: None}
    assert [at for at, _ in broker.asked] == [0, 100, 200]


def test_a_lost_connection_is_tried_again_and_then_not_known():
    lost = ClusterError("the connection was lost")
    results, _ = run([alteration(A)], lost, lost)
    assert results == {A: None}
    results, broker = run([alteration(A)], *[lost] * 9)
    assert isinstance(results[A], AlterationUnknownError)
    assert [at for at, _ in broker.asked] == [0, 100, 300, 700, 1500]


def test_a_broker_without_the_api_refuses_everything_once():
    results, broker = run([alteration(A), alteration(B)], ClusterError("speaks no AlterClientQuotas", error_code=35))
    assert {entity: error.error_code for entity, error in results.items()} == {A: 35, B: 35}
    assert not isinstance(results[A], AlterationUnknownError)
    assert len(broker.asked) == 1


def test_batches_hold_so_many_operations():
    many = [alteration(of(user=str(n)), producer_byte_rate=1.0, consumer_byte_rate=None) for n in range(2_500)]
    results, broker = run(many)
    assert set(results.values()) == {None}
    assert [len(entities) for _, entities in broker.asked] == [BATCH_OPS // 2, BATCH_OPS // 2, 500]
    assert [entity for _, entities in broker.asked for entity in entities] == [each.entity for each in many]


def test_later_batches_are_still_altered_when_one_is_refused_and_not_sent_when_time_is_up():
    many = [alteration(of(user=str(n))) for n in range(BATCH_OPS + 1)]
    results, _ = run(many, ClusterError("no", error_code=31))
    assert results[many[0].entity].error_code == 31
    assert results[many[-1].entity] is None
    clock = ManualClock()
    told = {}
    Alterer(_Slow(clock), clock, told.__setitem__, timeout_ms=5_000).alter(many)
    assert told[many[0].entity] is None
    assert "not sent within request_timeout=5 s" in str(told[many[-1].entity])


class _Slow(Broker):
    def ask(self, request, *, timeout_ms):
        self.clock.sleep_ms(timeout_ms)
        return super().ask(request, timeout_ms=timeout_ms)


def test_a_result_that_is_missing_is_an_error():
    clock = ManualClock()

    class Forgetful:
        def ask(self, request, *, timeout_ms):
            return response({})

    told = {}
    Alterer(Forgetful(), clock, told.__setitem__, timeout_ms=1).alter([alteration(A)])
    assert "gave no result" in str(told[A])


@pytest.mark.parametrize(
    ("values", "code", "words"),
    [
        ({"request_rate": 5.0}, 42, "only the embedded broker and the gateway"),
        ({"producer_byte_rate": 5.0}, 31, "ALTER_CONFIGS on the cluster is needed"),
        ({"producer_byte_rate": 5.0}, 42, "INVALID_REQUEST (42): no"),
    ],
)
def test_refusals_name_the_remedy(values, code, words):
    results, _ = run([alteration(A, **values)], {A: code})
    assert words in str(results[A])


@pytest.mark.parametrize(("said", "words"), [(None, ""), ("", ""), ("Not allowed.", ": Not allowed")])
def test_who_may_not_alter_is_told_so_whatever_the_broker_says(said, words):
    """Kafka says nothing beside a code where its words would be those of the code."""

    class Refuses:
        def ask(self, _request, *, timeout_ms):
            assert timeout_ms
            return response({A: 31}, said=said)

    results = {}
    Alterer(Refuses(), ManualClock(), results.__setitem__, timeout_ms=1_000).alter([alteration(A)])
    refused = f"quotas of {A} were not altered: CLUSTER_AUTHORIZATION_FAILED (31)"
    assert str(results[A]) == f"{refused}{words}; ALTER_CONFIGS on the cluster is needed"


def test_a_type_that_there_is_not_is_refused_with_those_that_there_are():
    misspelt = ClientQuotaEntity({"client_id": "a"})
    results, _ = run([alteration(misspelt)], {misspelt: 42})
    assert str(results[misspelt]).endswith("INVALID_REQUEST (42): no; Apache Kafka's types are client-id, ip, user")


def result(**outcomes):
    made = AlterClientQuotasResult()
    from concurrent.futures import Future

    for user, outcome in outcomes.items():
        made[of(user=user)] = future = Future()
        if outcome is None:
            future.set_result(None)
        else:
            future.set_exception(outcome)
    return made


def test_all_says_which_half():
    assert AlterClientQuotasResult().all().result(0) is None
    assert result(a=None).all().result(0) is None
    same = [ClusterError("too small", error_code=42) for _ in range(2)]
    error = result(a=None, b=same[0], c=same[1], d=AlterationUnknownError("no answer")).all().exception(0)
    assert isinstance(error, PartialAlterationError)
    assert error.altered == (A,)
    assert list(error.failed) == [B, of(user="c")]
    assert list(error.unknown) == [of(user="d")]
    assert str(error) == (
        "1 of 4 entities were altered ({user=a}); 2 were not: {user=b}, {user=c}: too small; "
        "of 1 it is not known: no answer"
    )
    assert error.error_code is None
    assert result(b=same[0]).all().exception(0).error_code == 42


def test_a_check_has_altered_nothing():
    checked = result(a=None, b=ClusterError("too small"))
    checked.validate_only = True
    error = checked.all().exception(0)
    assert (error.altered, list(error.failed), error.unknown) == ((), [B], {})
    assert str(error) == "nothing was altered: 1 of 2 entities did not pass the check: too small"
    clock = ManualClock()
    told = {}
    broker = Broker(clock, *[ClusterError("the connection was lost")] * 9)
    Alterer(broker, clock, told.__setitem__, validate_only=True, timeout_ms=30_000).alter([alteration(A)])
    assert not isinstance(told[A], AlterationUnknownError)
    assert "the cluster gave no answer" in str(told[A])


def test_all_waits_for_the_last():
    pending = result(a=None)
    from concurrent.futures import Future

    pending[B] = Future()
    whole = pending.all()
    assert not whole.done()
    pending[B].set_result(None)
    assert whole.done()


def test_a_reason_that_many_met_is_said_once():
    """Each names its entity, and so ten of a thousand were told, and "990 other reasons"."""
    entities = [ClientQuotaEntity.of(client_id=f"c{number}") for number in range(1_000)]
    late = {entity: ClusterError(f"quotas of {entity} were not altered: too late") for entity in entities}
    names = ", ".join(map(str, entities[:10]))
    told = str(PartialAlterationError((), late, {}))
    said = f"quotas of {names} and 990 more were not altered: too late"
    assert told == f"0 of 1000 entities were altered; 1000 were not: {said}"
