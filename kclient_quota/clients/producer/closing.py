"""How a producer ends: what it has is delivered, or reported as purged; then librdkafka's threads go."""

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaException

from kclient_quota.clients.calls import CallApart
from kclient_quota.clients.producer.taking import TakingProducer
from kclient_quota.clients.producer.waiting import PURGE_MS
from kclient_quota.clients.telemetry_methods import TelemetryMethods

logger = logging.getLogger("kclient_quota")

END_S: Final = 5
"""How long librdkafka's end may take, once everything has been reported."""


class ClosingProducer(TakingProducer, TelemetryMethods):
    """`close()`."""

    _closing: threading.RLock
    _abandoned: bool
    _stop_watch: Callable[[], Any]

    def close(self, *_args: Any, **_kwargs: Any) -> bool:
        """Deliver what there is and close; takes little more than `max.block.ms`.

        What cannot be delivered by then is purged: at once where the broker's throttle lasts longer. Every message
        gets its delivery report. What a callback raises is raised when all is done.

        Returns:
            True; False if a transaction is open and its coordinator does not answer in time. The broker aborts it then,
            after `transaction.timeout.ms`, and this client's last threads end with the object. False in a child process
            that was forked from the producer's, too: there is nothing to close. And in a callback: it is closed by
            another thread then, once that has returned.
        """
        if self._outbox.is_forked:
            self._closed = self._abandoned = True  # librdkafka's threads, and the telemetry's, are the parent's to end
            return False
        if self._outbox.is_inside():  # in a callback: its message is not delivered before it returns
            CallApart("kclient-quota close", ClosingProducer.close, self)
            return False
        with self._closing:  # by one thread; a signal's handler may do it while it is being done
            try:
                return self._close()
            except RuntimeError:
                if not self._closed:
                    raise
                return not self._abandoned

    def _close(self) -> bool:
        if not self._closed:
            clock = self._clock
            deadline_ms = clock.now_ms() + self._max_block_ms

            def is_in_vain() -> bool:
                return self._throttled_for_ms(min) > deadline_ms - clock.now_ms()

            self._drain(deadline_ms, is_in_vain)
            self._outbox.close()  # whatever other threads have got in by now is reported, too
            left = self._drain(deadline_ms, is_in_vain)
            if left:
                logger.warning("Producer closes with %d messages that its broker did not take: they are purged", left)
                for _ in range(2):  # a callback may send again what it is told was purged
                    self.purge()
                    if not self._drain(clock.now_ms() + PURGE_MS):
                        break
            self._stop_sender()
            self._closed = True
            self._stop_telemetry()
            self._stop_watch()
            self._chain.close()
            if not self._leave_transaction(max(PURGE_MS, deadline_ms - clock.now_ms()) / 1000):
                logger.warning("Producer closes with a transaction open that its coordinator did not abort in time")
                self._abandoned = True
        if self._abandoned:
            return False
        try:
            is_closed = self._close_apart()
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
            logger.error("Producer closes after a fatal error: %s", error)  # noqa: TRY400 - nobody's stack is of use
            is_closed = super().close()
        self._outbox.serve_all()  # events of the last moment
        self._outbox.raise_kept()
        return is_closed

    def _close_apart(self) -> bool:
        """Have librdkafka end.

        It waits for calls that are under way. Where a signal's handler has interrupted a `poll(0)`, which nobody can
        tell, that is one which waits for this.
        """
        if self._outbox.is_ending:  # no thread can be started any more, and no handler runs
            return bool(self._inside(super().close))
        ending = CallApart("kclient-quota close", self._inside, super().close)
        return ending.wait(END_S) and bool(ending.result())
