"""Cause and remedy of every message, by its beginning; whoever adds a warning adds its line here."""

_APPLICATION = "an exception in code of yours; its traceback follows"
_SLOW_SINK = "the sink takes less than clients push"

CAUSES: dict[str, tuple[str, str]] = {
    "%s.%s has been replaced by %r, which cannot stand before ours": (
        "a tracing agent (SkyWalking's, for one), or a mock, has put something else in the place of confluent_kafka's class",
        "nothing, if you can do without; for traces an agent that subclasses, or `kclient_quota.instrument()`",
    ),
    "No thread can be started for a producer's sender": (
        "the process, or its container, has no memory for one, or as many as it may have; calls of `produce()`, `poll()` "
        "and `flush()` do its work meanwhile",
        "raise the limit (`pids.max`, `ulimit -u`, `ulimit -v`), or poll often",
    ),
    "No thread can be started to %s": (
        "the same; the client works, but its quota is not asked for again, its telemetry is not pushed, or a consumer that "
        "polls too seldom is not warned",
        "raise the limit (`pids.max`, `ulimit -u`, `ulimit -v`), and make the client anew",
    ),
    "share group %s was at offset %s of %s-%s": (
        "the end of the log was lost (a power cut with `fsync` other than `always`), or an administrator had set the "
        "group ahead of the log",
        "nothing: no new record is passed over; `fsync: always` keeps logs through power cuts",
    ),
    "what share groups have given back could not be kept": (
        "the disk of `data_dir` is full or failing; after a restart it is given back all the same",
        "make room on the disk of `data_dir`",
    ),
    "%s could not be written: %s. Until it can be": (
        "the disk of `data_dir` is full or failing; said once, until it takes something again",
        "make room on the disk of `data_dir`",
    ),
    "%s can be written again": ("the disk of `data_dir` takes what is to be kept", "nothing"),
    "that there is a group %s, or none any more, could not be kept": (
        "the disk of `data_dir` is full or failing; the group goes on. After a restart its members may be told "
        "GROUP_ID_NOT_FOUND, which ends them",
        "make room on the disk of `data_dir`; it is kept with the group's next change",
    ),
    "what was compacted up to offset %s could not be written": (
        "the disk of `data_dir` is full or failing; its files hold more than is needed, and nothing less",
        "make room; it is tried again at the next compaction",
    ),
    "that positions of group %s are gone is not told": (
        "`__consumer_offsets` does not take the records, as when the disk is full; the positions are gone all the same",
        "make room on the disk of `data_dir`",
    ),
    "who is in group %s is not told": (
        "`__consumer_offsets` does not take the record, as when the disk is full; the group itself goes on",
        "make room on the disk of `data_dir`",
    ),
    "what share group %s has of a partition is not told": (
        "`__share_group_state` does not take the record, as when the disk is full; the group itself goes on",
        "make room on the disk of `data_dir`",
    ),
    "Share consumer %r asks for nothing": (
        "a batch is larger than the quota lets through at once, and a broker archives the records of one that it has "
        "refused five times",
        "raise consumer_byte_rate, or let producers make smaller batches (batch.size)",
    ),
    "Share consumer %r is muted by its broker": (
        "it was closed in mid-throttle; librdkafka waits for its last ShareFetch, which the broker does not read",
        "nothing: a thread closes it; a smaller `socket.timeout.ms` ends it sooner",
    ),
    "%d pushes of client telemetry were not delivered": (
        "it was stopped while the collector did not take them",
        "none for `receive`, which reads them again; else stop it when the collector answers",
    ),
    "%s, line %s is damaged": (
        "the disk changed what was written to the broker's journal; every line is there twice, so that nothing is lost "
        "with one of them",
        "nothing, but look after the disk",
    ),
    "%s: a batch at offset %s lies behind and is passed over": (
        "a file of records holds what an earlier one has already",
        "report it with the file",
    ),
    "%s: an unfinished write of %s bytes": (
        "the process ended in the midst of a write, which nobody was told to be done",
        "nothing: nothing acknowledged is in it",
    ),
    "%s: what was written last, from offset %s on": (
        "a power cut, with `fsync=always`: the disk had not got all that was written before this",
        "nothing: nothing acknowledged is in it",
    ),
    "%s: could not be given its name": (
        "the disk of `data_dir` is full or failing; the file is read as well under the name that it has",
        "make room on the disk of `data_dir`",
    ),
    "What serializes could not be closed": (
        "a serializer's `close()` raised while a client that could not be made was taken apart; why is raised in your call",
        "see what your call raised; the traceback is of the serializer",
    ),
    "%s: could not be made smaller": (
        "the disk of `data_dir` is full or failing; the journal holds more lines than are needed, and goes on",
        "make room on the disk of `data_dir`",
    ),
    "%s: offsets %s to %s are not on the disk": (
        "a file of records is gone, or a power cut took what `fsync` other than `always` had not synced; readers are "
        "told CORRUPT_MESSAGE there",
        "bring the file back from a copy, or delete the records",
    ),
    "%s: an unfinished last line of %s bytes is cut off": (
        "the machine, or the copy of a backup, ended while `metadata.jsonl` was written",
        "nothing after a crash: nobody was told that it was kept; where a copy was cut off, copy it again",
    ),
    "%s: records of a topic that the journal does not name": (
        "`metadata.jsonl` is damaged, cut off or older than `logs/` (a backup, a disk that was mended): the topic may "
        "have been lost from it",
        "put a whole `metadata.jsonl` back; remove the directory once you know that the topic was deleted",
    ),
    "%s: the batch of offsets %s to %s is damaged": (
        "the disk changed what was written; readers are told CORRUPT_MESSAGE there",
        "bring the file back from a copy, or delete the records; look after the disk",
    ),
    "a timer's call failed": (
        "an error of the embedded broker; its traceback follows",
        "report it with the traceback; other timers go on",
    ),
    "a transaction that takes too long could not be ended": (
        "the disk of `data_dir` is full or failing",
        "make room; it is tried again",
    ),
    "transaction %.100s takes too long and could not be ended": (
        "an error of the embedded broker; its traceback follows",
        "report it with the traceback; other transactions go on",
    ),
    "transactional ids that have expired could not be forgotten": (
        "the disk of `data_dir` is full or failing",
        "make room; it is tried again",
    ),
    "transaction %.100s could not be ended": (
        "an error of the embedded broker; its traceback follows",
        "report it with the traceback; it is tried again, and other transactions go on",
    ),
    "the end of a transaction could not be kept": (
        "the disk of `data_dir` is full or failing; it is decided, and is ended once more after a restart",
        "make room on the disk of `data_dir`",
    ),
    "the positions of a transaction could not be kept": (
        "the disk of `data_dir` is full or failing",
        "make room; it is tried again",
    ),
    "positions of a transaction that is unknown could not be forgotten": (
        "the disk of `data_dir` is full or failing; nobody reads them",
        "make room on the disk of `data_dir`",
    ),
    "the marker of a transaction could not be written": (
        "the partition's log refused it, as when the disk of `data_dir` is full",
        "make room; it is tried again",
    ),
    "what has become of transaction %.100s is not told": (
        "`__transaction_state` does not take the record, as when the disk is full; the transaction itself goes on",
        "make room on the disk of `data_dir`",
    ),
    "the start of a log, offset %s, could not be kept": (
        "the disk of `data_dir` is full or failing; after a restart, records that were deleted may be there again",
        "make room; it is tried again with the next deletion",
    ),
    "what was written could not be synced": (
        "the disk of `data_dir` is failing (`fsync: always`); who waited for it is answered with an error, and readers "
        "do not see it",
        "look after the disk; it is written and synced once more, with the next change or after a second",
    ),
    "data could not be synced": (
        "the disk of `data_dir` is failing; a power cut may cost what was acknowledged since",
        "look after the disk; it is tried again",
    ),
    "broker %s: more of what %s does wrong": (
        "that address has sent ten bad requests within a minute (a fuzzer, a port scanner, a client of another protocol)",
        "look at the ten lines before it",
    ),
    "broker %s: API %s is not to be had": (
        "a client asked for what this broker does not serve, or before it had logged in; its connection is closed",
        "look at the client's settings (`security.protocol`); [what is served](broker-apis.md)",
    ),
    "broker %s: API %s v%s is not spoken": (
        "a client uses a version that this broker never offered; its connection is closed",
        "report it to whoever makes that client",
    ),
    "broker %s: after the end of a connection": (
        "an error of the embedded broker; its traceback follows",
        "report it with the traceback; others are not affected",
    ),
    "broker %s: new connections wait: max.connections is": (
        "as many connections are open as `max.connections` allows; whoever comes waits until one of them ends",
        "close some, or raise it (`kafka-configs`; the broker need not be started again)",
    ),
    "broker %s: closed a connection: max.connections.per.ip is": (
        "as many connections from one address are open as `max.connections.per.ip` allows",
        "close some, or raise it",
    ),
    "broker %s: %s sent %s": (
        "what came is no request of Kafka's; its connection is closed",
        "look who connects from that address: a client of another protocol, or one that speaks TLS to PLAINTEXT",
    ),
    "broker %s: the disk is in the way of": (
        "the disk of `data_dir` is full or failing; the clients are told KAFKA_STORAGE_ERROR, or NOT_COORDINATOR, and ask "
        "again. Said once a minute for each kind of error, with how many there were",
        "make room on the disk of `data_dir`, or look after it; then nothing else is to be done",
    ),
    "broker %s: %s v%s failed": (
        "an error of the embedded broker; its traceback follows, and the client is told UNKNOWN_SERVER_ERROR",
        "report it with the traceback; other requests go on",
    ),
    "the embedded broker accepts no connection for a second": (
        "the process has no file descriptor left",
        "raise `ulimit -n`, or close connections; those that wait are accepted when there is one",
    ),
    "a scrape from %s failed": (
        "the page for Prometheus could not be made; its traceback follows",
        "report it with the traceback; other scrapes go on",
    ),
    "%d pushes of client telemetry are lost": (
        "the collector refused them for good, or did not answer in any try; at most a line a minute for each of these",
        "look at the status in the message; check the exporter's address, credentials and TLS files",
    ),
    "%d points are lost, of exports that were taken": (
        "the collector does not want them, for the reason in the message if it gives one: points that are too old, too "
        "many series; at most a line a minute, which counts what was lost since the last one",
        "look at the collector's limits; subscribe to fewer metrics",
    ),
    "the collector takes client telemetry, and says": (
        "the collector warns of something that it does not refuse yet; at most a line a minute",
        "what the message says",
    ),
    "the collector does not take client telemetry": (
        "two exports in a row could not be made, for the reason in the message, or it has asked to be left alone for more "
        "than 30 s",
        "look at the collector, and at the exporter's address, proxy and TLS files; pushes wait, and are tried again",
    ),
    "%s answers again": ("an export was answered after some that were not", "nothing"),
    "%d pushes of client telemetry were not written": (
        "the broker closed before its sink was done",
        "close it later, or a faster sink",
    ),
    "%s failed with client telemetry": ("an exporter raised; its traceback follows; others go on", "mend the exporter"),
    "%s[%d]@%d is no client telemetry": (
        "something else stands in the topic that the receiver reads",
        "give telemetry a topic of its own; the record is left out",
    ),
    "%s[%d]@%d was written at least": (
        "the clock that stamps the topic's records, of brokers with our writer, or of a collector, is behind this machine's; "
        "or who writes them is minutes late, held up by a quota, or a mirror. A line in ten minutes",
        "set clocks right (NTP), or look at the writer: the page and `top` leave clients out that look silent",
    ),
    "limits of quotas are not on the page": (
        "the cluster did not say which quotas it has; it is asked again every half a minute",
        "allow the receiver's user DescribeConfigs on the cluster",
    ),
    "offsets of client telemetry were not committed": (
        "the group was lost in between, or the brokers did not answer",
        "nothing: what was received since is received again",
    ),
    "points of client telemetry from": (
        "a point that breaks OTLP; the others of its push are kept",
        "mend that client",
    ),
    "reading ends: nothing has come": (
        "the group gave this receiver no partitions for two minutes, or brokers no records for one, with `--idle-exit`",
        "look at the group and the brokers, and run it again: it goes on where it ended",
    ),
    "reading ends: what was read has not been taken": (
        "more than 32 MB wait for a collector, or a disk, that has taken none of it for a minute, with `--idle-exit`",
        "look at the collector and the disk, and run it again: what was not handed on is read again",
    ),
    "the group has not given out its partitions yet": (
        "a member that did not take leave: the group waits until its `session.timeout.ms` is over (45 s unless set)",
        "nothing; with `group.instance.id` in `--command-config` who comes next takes its place at once",
    ),
    "receiving client telemetry": (
        "an error of the topic's consumer; it goes on by itself",
        "check the brokers if it stays",
    ),
    "%s partition %d: offsets": (
        "retention deleted what a Spark stream had not read",
        "longer retention, or `failOnDataLoss=true` to stop instead",
    ),
    "%s was answered with %s": (
        "a broker that answers another request than it was asked",
        "report it to whoever makes that broker",
    ),
    "Client %r waits for its quota, which could carry more": (
        "messages wait for the quota, and a sample of them takes far fewer bytes with the setting that is named; said once",
        "the setting, if its processor time or its wait suits you: [getting more out of a quota](../how-to/more-out-of-a-quota.md)",
    ),
    "Client %r: broker %d is %.0f ms away, and with enable.idempotence=true": (
        "an idempotent producer of librdkafka has one request on its way for each partition, and its thread goes round and "
        "round while more waits behind it; said once",
        "[the `linger.ms` in the message](../how-to/produce-is-slow.md), a little more than a round trip: messages come a few "
        "milliseconds later where there are many, a round trip where there are few",
    ),
    "A producer's sender goes on": (
        "an exception of our own in the thread that sends; its traceback follows",
        "report it; messages that wait are sent all the same",
    ),
    "The producer of client %r was made before": (
        "no Kafka client survives a fork, confluent_kafka's neither",
        "make the producer in the child: [Celery, gunicorn and other forks](../how-to/forks.md)",
    ),
    "produce() of client %r waits for the quota inside": (
        "the synchronous `Producer` is called in an `async def`",
        "`AIOProducer`, whose waits are awaited, or `quota.backoff=raise`: [FastAPI](../how-to/fastapi.md), [FastStream](../how-to/faststream.md)",
    ),
    "The quota could not be asked for": (
        "a ClientQuotaCallback of yours has raised, or has returned what is no limit; said once, until it answers again",
        "see the traceback; the client goes on with the limit that it knew, and asks again",
    ),
    "An event of librdkafka's": (
        "an exception of our own while reading statistics; its traceback follows",
        "report it; messages are not affected",
    ),
    "Batch %s: %d rows written": (
        "a Spark sink was throttled by its quota",
        "nothing, unless batches take too long: then have the quota raised, or write less at once",
    ),
    "group %s has become one of": (
        "a first member of the consumer protocol (`group.protocol=consumer`) has joined, or the last one of it has left",
        "nothing: members of both read on meanwhile (`group.consumer.migration.policy`)",
    ),
    "Broker %s throttles client": (
        "the broker has answered with a throttle time: the quota in the message is used up, by this client or by others on it. The milliseconds "
        "are those of the first throttle, often short; what follows is one stretch of throttling, told once",
        "nothing: the client waits. A quota that has only just been set is asked for now, and told of. If waits grow too long: [which quota do I need](../how-to/which-quota.md)",
    ),
    "Client %s fetches nothing yet": (
        "the group's own requests are throttled by a request quota",
        "have `request_percentage` raised for this client or user",
    ),
    "Client %s has not polled": (
        "the application does too much between two polls",
        "do less between polls, raise `max.poll.interval.ms`, or [keep the group alive](../how-to/rebalances.md)",
    ),
    "Could not do what is due for a consumer": (
        "an unexpected error while offsets were to be committed, or a silence to be warned of, between two polls",
        "report it with the traceback; other consumers are looked after, and polls commit as always",
    ),
    "Client %r cannot fetch as its quota wants it": (
        "a quota has come or changed, for which a consumer makes another client of librdkafka's, and what that needs is not "
        "there any more: certificates that were taken away when the consumer was made, a key that may no longer be read, "
        "a token that cannot be had. It reads on, less evenly, and tries again",
        "leave those files where they are, or give certificates as text (`ssl.ca.pem`, `ssl.certificate.pem`, `ssl.key.pem`)",
    ),
    "Client %s queues or fetches in sizes": (
        "`queued.max.messages.kbytes` or `fetch.*` were set by hand and are too large for this quota",
        "leave them out, or make the client anew now that the quota is known",
    ),
    "Client %s, broker %s: messages come again": (
        "a stall has ended: the quota was raised, or the large batch is over",
        "nothing",
    ),
    "Client %s, broker %s: %s": (
        "the next batch is larger than the quota of a whole window; Kafka will never deliver it",
        "raise the quota to what the message says, or have producers write smaller batches (`batch.size`)",
    ),
    "Error executing interceptor": (_APPLICATION, "mend the interceptor; the message went on without it"),
    "Failed to close interceptor": (_APPLICATION, "mend its `close()`"),
    "Producer closes after a fatal error": (
        "librdkafka has given up this producer, for instance because it was fenced",
        "make a new producer; messages without a report were not delivered",
    ),
    "Producer closes with %d messages": (
        "`close()` waited `max.block.ms` and the quota did not let them all through; each is reported to its callback as purged",
        "`flush()` for longer before closing, or raise `max.block.ms`",
    ),
    "Producer closes with a transaction open": (
        "the transaction coordinator did not answer in time",
        "nothing: the coordinator aborts it after `transaction.timeout.ms`",
    ),
    "The consumer quota of client": ("the quota was found, or changed", "nothing"),
    "The producer quota of client": ("the quota was found, or changed", "nothing"),
    "The open transaction is about to outlive": (
        "waiting for the quota, or for brokers that are away, takes longer than `transaction.timeout.ms`",
        "nothing while brokers are away; otherwise smaller transactions, a longer time-out, or `quota.transaction.timeout=abort`: [transactions](../how-to/transactions.md)",
    ),
    "The quota of this client is learnt": (
        "the cluster did not tell the quota; the message says why",
        "grant DESCRIBE_CONFIGS on the cluster, or give the limit by hand (`producer_byte_rate`, `consumer_byte_rate`)",
    ),
    "The quota of this client could not be asked for again": (
        "brokers are away, or the right to ask has been taken; the message says why",
        "nothing while brokers are away; otherwise grant DESCRIBE_CONFIGS on the cluster",
    ),
    "Client %r has to learn its quota": (
        "a throttle has come, and nobody has told the quota: asking was refused or switched off",
        "grant the client's principal DESCRIBE_CONFIGS on the cluster and leave `quota.limit.source` at `auto`, or give the limit by hand: "
        "[how uneven shares are otherwise](../explanation/pacing.md)",
    ),
    "This librdkafka waits out throttles itself": ("a librdkafka with KIP-219", "nothing"),
    "Throttling of client %r has ended": ("no throttled answer for a while", "nothing"),
    "a push may have %d bytes": (
        "more metrics than the broker's `telemetry.max.bytes` allows in one push",
        "subscribe to fewer metrics, or raise `telemetry.max.bytes`; what waits comes with the next push",
    ),
    "a push of client instance": (
        "a client sent what is no OTLP, or an exporter failed",
        "look at the reason in the message",
    ),
    "%s could not be removed from the cluster": (
        "`certify broker` has set or made it, and the cluster refused, or did not answer, when it was to be removed",
        "remove it by hand: `kafka-quotas`, `kafka-client-metrics`, `kafka-topics.sh`",
    ),
    "the cluster does not answer: quotas and topics": (
        "`certify broker` was interrupted, and the cluster did not take within 3 s that what was set is removed",
        "remove what has that name by hand",
    ),
    "client telemetry could not be delivered": (
        "the collector did not answer until the broker closed",
        "check the collector",
    ),
    "client telemetry could not be written": (
        "the sink raised; said once per cause, then every thousandth time; a traceback follows where it is no matter of files",
        "check disk and rights",
    ),
    "client telemetry is dropped: %d bytes": (
        "the collector takes less than clients push",
        "a longer push interval, fewer metrics, or a larger queue",
    ),
    "client telemetry is dropped: %d pushes": (_SLOW_SINK, "a longer push interval, fewer metrics, or a faster disk"),
    "client telemetry was not delivered to": ("the topic's broker refused it", "look at the reason in the message"),
    "client.id is librdkafka's default": (
        "no `client.id` is set, and everybody who set none shares one quota",
        "set `client.id`",
    ),
    "metric %s is an exponential histogram": ("KIP-714 has no place for those", "give the instrument explicit buckets"),
    "telemetry cannot be compressed with": (
        "a codec failed or its extra is missing",
        "nothing: the next codec is taken",
    ),
    "metric %r cannot be encoded and is left out": (
        "its name, a tag or its value is nothing that OTLP can hold, such as half a surrogate pair; the others are pushed",
        "mend that metric",
    ),
    "telemetry could not be encoded": (
        "a label of the client is nothing that OTLP can hold; the traceback follows",
        "mend that label",
    ),
    "telemetry met an error it does not know": (
        "an error of our own; its traceback follows",
        "report it; messages are not affected",
    ),
    "topics %s were made anew": ("a topic was deleted and created again under a running stream", "nothing"),
    "the broker answered a telemetry subscription": (
        "a broker that breaks KIP-714",
        "report it to whoever makes that broker",
    ),
    "the broker found %d bytes of telemetry too large": (
        "the broker's bound is below what it told",
        "nothing: pushes are halved",
    ),
    "the broker refused telemetry with": (
        "look at the error's name; often a receiver plug-in failed",
        "nothing: it is asked again",
    ),
    "librdkafka's statistics are switched off": (
        "its statistics have the client's name in them, which confluent_kafka cannot decode where it is cut within a "
        "character, and no room for a `client.id` of more than 16 kB",
        "a shorter `client.id`, or one of ASCII; until then metrics go without what statistics tell",
    ),
}
