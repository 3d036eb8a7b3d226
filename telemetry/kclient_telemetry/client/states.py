"""The states of a telemetry reporter, as Kafka's ClientTelemetryState has them."""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class State(Enum):
    """What the reporter needs or waits for."""

    SUBSCRIPTION_NEEDED = "subscription needed"
    SUBSCRIPTION_IN_PROGRESS = "subscription in progress"
    PUSH_NEEDED = "push needed"
    PUSH_IN_PROGRESS = "push in progress"
    TERMINATING_PUSH_NEEDED = "terminating push needed"
    TERMINATING_PUSH_IN_PROGRESS = "terminating push in progress"
    TERMINATED = "terminated"


VALID_NEXT_STATES: Mapping[State, frozenset[State]] = MappingProxyType(
    {
        State.SUBSCRIPTION_NEEDED: frozenset({State.SUBSCRIPTION_IN_PROGRESS, State.TERMINATED}),
        State.SUBSCRIPTION_IN_PROGRESS: frozenset(
            {State.PUSH_NEEDED, State.SUBSCRIPTION_NEEDED, State.TERMINATING_PUSH_NEEDED, State.TERMINATED}
        ),
        State.PUSH_NEEDED: frozenset(
            {State.PUSH_IN_PROGRESS, State.SUBSCRIPTION_NEEDED, State.TERMINATING_PUSH_NEEDED, State.TERMINATED}
        ),
        State.PUSH_IN_PROGRESS: frozenset(
            {State.PUSH_NEEDED, State.SUBSCRIPTION_NEEDED, State.TERMINATING_PUSH_NEEDED, State.TERMINATED}
        ),
        State.TERMINATING_PUSH_NEEDED: frozenset({State.TERMINATING_PUSH_IN_PROGRESS, State.TERMINATED}),
        State.TERMINATING_PUSH_IN_PROGRESS: frozenset({State.TERMINATING_PUSH_NEEDED, State.TERMINATED}),
        State.TERMINATED: frozenset(),
    }
)

TERMINATING = frozenset({State.TERMINATING_PUSH_NEEDED, State.TERMINATING_PUSH_IN_PROGRESS, State.TERMINATED})


def diagram() -> str:
    """`VALID_NEXT_STATES` as a Mermaid state diagram."""
    arrows = [
        f"    {state.name} --> {following.name}"
        for state, all_following in VALID_NEXT_STATES.items()
        for following in State
        if following in all_following
    ]
    first, last = f"    [*] --> {State.SUBSCRIPTION_NEEDED.name}", f"    {State.TERMINATED.name} --> [*]"
    return "\n".join(("stateDiagram-v2", first, *arrows, last))
