"""What a client's driver is told and what it tells: environment in, JSON lines out. Pure.

A driver is a command in any language. It is started once for each scene with these variables:

| variable                  | meaning                                                                              |
| ------------------------- | ------------------------------------------------------------------------------------ |
| CERTIFY_ROLE              | `produce`, `consume`, `share-consume`, `transact` or `create-topics`                 |
| CERTIFY_BOOTSTRAP_SERVERS | where the cluster is                                                                 |
| CERTIFY_CLIENT_ID         | the client.id to use: quotas go by it                                                |
| CERTIFY_TOPIC             | the topic; the prefix of names when topics are created                               |
| CERTIFY_GROUP             | the consumer group; the transactional.id of `transact`                               |
| CERTIFY_MESSAGES          | how many messages, transactions' messages or topics; ids run from 0                  |
| CERTIFY_VALUE_BYTES       | length of a value: the id in ten digits, then dots                                   |
| CERTIFY_KEYS              | 0 for no key, else the key is the decimal number id modulo this                      |
| CERTIFY_PAUSE_MS          | how long to wait after each message; 0 for as fast as the client takes them          |
| CERTIFY_CONFIG            | a JSON object of further settings by Kafka's own keys; take those your client has    |

and writes one JSON object a line to standard output, as soon as it happens:

| line                                             | when                                                          |
| ------------------------------------------------ | ------------------------------------------------------------- |
| `{"event": "sent", "id": 7}`                     | the client took the message: its send call returned           |
| `{"event": "acknowledged", "id": 7}`             | it reported success; for `create-topics`: the topic was made  |
| `{"event": "failed", "id": 7, "error": "…"}`     | it reported failure, or refused the message for good          |
| `{"event": "received", "id": 7, "partition": 0}` | the application has the message; `"delivery"`: its count      |
| `{"event": "said", "error": "…"}`                | the client told its application of a problem                  |
| `{"event": "closed"}`                            | the client's close call returned                              |

`produce` sends all messages, waits for every report, closes and ends. `consume` reads from the earliest offset until it
has seen CERTIFY_MESSAGES different ids, commits, closes and ends. `share-consume` does so as a member of the share
group CERTIFY_GROUP (KIP-932), and accepts what it has received. `transact` writes ten messages a transaction;
`acknowledged` comes with the commit. SIGTERM and SIGINT (Ctrl-C) mean: close the client now, as an application does
that is told to stop, then end. Exit status 3 says that the client cannot do what is asked at all, with the reason on
standard error.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

PREFIX: Final = "CERTIFY_"
PRODUCE, CONSUME, TRANSACT, CREATE_TOPICS = "produce", "consume", "transact", "create-topics"
SHARE_CONSUME: Final = "share-consume"
SENT, ACKNOWLEDGED, FAILED, RECEIVED, SAID, CLOSED = "sent", "acknowledged", "failed", "received", "said", "closed"
PER_TRANSACTION: Final = 10
CANNOT: Final = 3
"""Exit status of a driver whose client does not have what is asked about."""
EVENTS: Final = (SENT, ACKNOWLEDGED, FAILED, RECEIVED, SAID, CLOSED)
_ID_DIGITS: Final = 10
_WITH_ID: Final = (SENT, ACKNOWLEDGED, FAILED, RECEIVED)


def id_prefix(message_id: int) -> bytes:
    """What the value of a message begins with."""
    return str(message_id).zfill(_ID_DIGITS).encode()


def value_of(message_id: int, size: int) -> bytes:
    """A value that begins with its id."""
    return id_prefix(message_id).ljust(size, b".")


def id_of(value: bytes) -> int:
    """The id that a value begins with."""
    return int(value[:_ID_DIGITS])


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a driver is to do.

    Attributes:
        role: as above.
        messages: how many.
        value_bytes: length of a value.
        keys: how many keys; 0 for none.
        pause_ms: after each message.
        config: by Kafka's keys.
    """

    role: str
    messages: int
    value_bytes: int = 1_000
    keys: int = 0
    pause_ms: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)

    def environment(self, bootstrap_servers: str, name: str) -> dict[str, str]:
        """The variables; `name` is the scene's, of which topic, group and client-id are made."""
        return {
            PREFIX + key: value
            for key, value in {
                "ROLE": self.role,
                "BOOTSTRAP_SERVERS": bootstrap_servers,
                "CLIENT_ID": name,
                "TOPIC": name,
                "GROUP": name,
                "MESSAGES": str(self.messages),
                "VALUE_BYTES": str(self.value_bytes),
                "KEYS": str(self.keys),
                "PAUSE_MS": str(self.pause_ms),
                "CONFIG": json.dumps(dict(self.config)),
            }.items()
        }


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a driver.

    Attributes:
        at_ms: when it came, on the clock of the scene.
        kind: one of EVENTS.
        id: of the message or topic; -1 where there is none.
        text: what a failure said.
        partition: of a received message; -1 otherwise.
        delivery: of a message that a share consumer received, how often it was delivered; 0 where that is not told.
    """

    at_ms: int
    kind: str
    id: int = -1
    text: str = ""
    partition: int = -1
    delivery: int = 0


def parse(line: str, at_ms: int) -> Event | str:
    """A line of a driver's output: the event, or what is wrong with the line."""
    try:
        told = json.loads(line)
    except ValueError:
        return f"not a JSON object: {line[:80]!r}"
    if not isinstance(told, dict) or told.get("event") not in EVENTS:
        return f"no known event: {line[:80]!r}"
    kind, number = told["event"], told.get("id", -1)
    if kind in _WITH_ID and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
        return f"{kind} needs an id: {line[:80]!r}"
    partition, delivery = told.get("partition", -1), told.get("delivery", 0)
    return Event(
        at_ms,
        kind,
        number,
        str(told.get("error", "")),
        partition if isinstance(partition, int) else -1,
        delivery if isinstance(delivery, int) else 0,
    )
