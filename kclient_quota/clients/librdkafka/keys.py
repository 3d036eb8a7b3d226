"""Names of librdkafka's and confluent_kafka's configuration keys, for one purpose: to name the one that was meant."""

from confluent_kafka import KafkaError, KafkaException

from kclient_quota.clients.calls import cause_of
from kclient_quota.config import QUOTA_KEYS, nearest_key

_UNKNOWN = "No such configuration property"

_LIBRDKAFKA = """
acks allow.auto.create.topics api.version.fallback.ms api.version.request
api.version.request.timeout.ms auto.commit.enable auto.commit.interval.ms auto.offset.reset
batch.num.messages batch.size bootstrap.servers broker.address.family broker.address.ttl
broker.version.fallback check.crcs client.dns.lookup client.id client.rack client.software.name
client.software.version compression.codec compression.level compression.type connections.max.idle.ms
consume.callback.max.messages coordinator.query.interval.ms debug default.topic.config
delivery.report.only.error delivery.timeout.ms enable.auto.commit enable.auto.offset.store
enable.gapless.guarantee enable.idempotence enable.metrics.push enable.partition.eof
enable.random.seed enable.sasl.oauthbearer.unsecure.jwt enable.sparse.connections
enable.ssl.certificate.verification error_cb fetch.error.backoff.ms fetch.max.bytes
fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms
group.id group.instance.id group.protocol group.protocol.type group.remote.assignor
heartbeat.interval.ms https.ca.location https.ca.pem isolation.level key.deserializer key.serializer
linger.ms log.connection.close log.thread.name log_level logger max.in.flight
max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms
max.poll.records message.copy.max.bytes message.max.bytes message.send.max.retries
message.timeout.ms metadata.broker.list metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms
metadata.recovery.strategy metadata.request.timeout.ms oauth_cb offset.store.method
offset.store.path offset.store.sync.interval.ms on_commit on_delivery partition.assignment.strategy
partitioner plugin.library.paths produce.offset.report queue.buffering.backpressure.threshold
queue.buffering.max.kbytes queue.buffering.max.messages queue.buffering.max.ms
queued.max.messages.kbytes queued.min.messages queuing.strategy receive.message.max.bytes
reconnect.backoff.jitter.ms reconnect.backoff.max.ms reconnect.backoff.ms request.required.acks
request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab
sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.principal
sasl.kerberos.service.name sasl.mechanism sasl.mechanisms sasl.oauthbearer.assertion.algorithm
sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.jti.include
sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id
sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method
sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
sasl.password sasl.username security.protocol session.timeout.ms share.acknowledgement.mode
socket.blocking.max.ms socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails
socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem
ssl.cipher.suites ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm
ssl.engine.id ssl.engine.location ssl.key.location ssl.key.password ssl.key.pem
ssl.keystore.location ssl.keystore.password ssl.providers ssl.sigalgs.list statistics.interval.ms
stats_cb sticky.partitioning.linger.ms test.mock.broker.rtt test.mock.num.brokers throttle_cb
topic.blacklist topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt
topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
topic.metadata.refresh.sparse transaction.timeout.ms transactional.id value.deserializer
value.serializer
"""

KNOWN_KEYS: tuple[str, ...] = (*QUOTA_KEYS, *_LIBRDKAFKA.split())


def explained(error: KafkaException) -> KafkaException:
    """The same refusal of a configuration, naming the key that was probably meant where one is unknown."""
    cause = cause_of(error)
    if cause is None or not cause.str().startswith(_UNKNOWN):
        return error
    key = cause.str().partition('"')[2].rstrip('"')
    nearest = nearest_key(key, KNOWN_KEYS)
    if nearest in {None, key}:  # the other way round it would be known
        return error
    return KafkaException(KafkaError(cause.code(), f"{cause.str()} (did you mean {nearest!r}?)"))
