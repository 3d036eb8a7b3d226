"""Whether a producer's callers hand their messages to librdkafka themselves, put so that a call sees it at a glance."""

import threading


class Gate:
    """What decides which way a message goes.

    Attributes:
        goes_straight: it is open and not watched. To look at more than this would be a good part of a call.
        may_hand_over: some of the quota is to spare, and it is not watched.
        polls_straight: whether nobody stands before librdkafka's own `poll()`.
        spare: bytes that callers may hand over; several of them may each take from it what was left for the others.
        lock: whoever changes more than one of these holds it.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._is_open = self._is_spare = False
        self._is_watched = True
        self.goes_straight = self.may_hand_over = self.polls_straight = False
        self.spare = 0.0

    @property
    def is_open(self) -> bool:
        """Whether nothing limits the producer: its callers go straight to librdkafka."""
        return self._is_open

    @is_open.setter
    def is_open(self, is_open: bool) -> None:
        with self.lock:
            self._is_open = is_open
            self._look()

    @property
    def is_spare(self) -> bool:
        """Whether most of a large quota is not used: callers go straight, too, as long as `spare` is above 0."""
        return self._is_spare

    @is_spare.setter
    def is_spare(self, is_spare: bool) -> None:
        with self.lock:
            self._is_spare = is_spare
            self._look()

    @property
    def is_watched(self) -> bool:
        """Whether anybody else is to see each message: interceptors, an agent, who waits for the first one's topic.

        None goes straight then.
        """
        return self._is_watched

    @is_watched.setter
    def is_watched(self, is_watched: bool) -> None:
        with self.lock:
            self._is_watched = is_watched
            self._look()

    @property
    def has_spare(self) -> bool:
        """Whether callers may hand messages over themselves."""
        return self._is_spare and self.spare > 0

    def _look(self) -> None:
        self.goes_straight = self._is_open and not self._is_watched
        self.may_hand_over = self._is_spare and not self._is_watched
