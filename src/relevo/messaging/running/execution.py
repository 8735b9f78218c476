"""One run of a handler of consumers: the call, and what its end means for the messages."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from relevo.errors import MessageLockLost
from relevo.kernel import error_text
from relevo.kernel.running.runs import Run
from relevo.kernel.running.verdicts import Fail, Interruption, RetryLater, Suspend, verdict_in
from relevo.kernel.telemetry.logs import get_logger
from relevo.kernel.telemetry.tracing import TRACEPARENT, TracedWork
from relevo.limits import MESSAGE_REASON_LENGTH_MAX
from relevo.messaging.running.calls import BlockingReceived
from relevo.messaging.running.claims import MessageClaim, MessageSettlement
from relevo.messaging.running.context import Preempted

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from relevo.messaging.registry import ConsumersDefinition
    from relevo.messaging.running.calls import ConsumerCall

log = get_logger(__name__)


class MessageRun(Run[MessageClaim, MessageSettlement]):
    """A handler at work on one message, or on a batch; each is settled alike at its end.

    Returning completes the messages that the handler has not settled itself. An error abandons
    them, with the back-off of their entity; `RetryLater(delay)` abandons them with that delay.
    `Fail` dead-letters them. So does `Suspend`: a message waits for people in the dead-letter
    queue, where they see the reason, and redriving it resumes it.
    """

    part = "messages"
    ctx: ConsumerCall
    handler: ConsumersDefinition

    def traced(self) -> TracedWork:
        """As `Run.traced`."""
        messages = self.ctx.messages
        parents = (one.properties.get(TRACEPARENT) for one in messages)
        return TracedWork(
            destination=messages[0].source, id=messages[0].message_id, count=len(messages),
            parents=tuple(one for one in parents if isinstance(one, str)),
            first=messages[0].delivery_count == 0,
            attributes={
                "relevo.consumers": self.claim.lane,
                "relevo.attempt": messages[0].delivery_count + 1,
            },
        )  # fmt: skip

    def done(self, value: Any) -> MessageSettlement:
        """Complete the messages."""
        del value
        return self._settled("done")

    def returned(self) -> MessageSettlement:
        """As `Run.returned`: the delivery does not count."""
        return self._settled("release")

    def failed(self, error: BaseException) -> MessageSettlement:
        """Settle by what the handler raised, or why it was cut off."""
        if isinstance(error, Preempted):
            return self._settled("suspend")
        verdict = verdict_in(error)
        if isinstance(verdict, Fail | Suspend):
            settlement = self._settled(
                "dead_letter",
                reason=type(verdict).__name__,
                description=error_text.fit(str(verdict), MESSAGE_REASON_LENGTH_MAX),
            )
        else:
            delay = verdict.delay if isinstance(verdict, RetryLater) else None
            settlement = self._settled("abandon", delay=delay)
        if not isinstance(error, Interruption | MessageLockLost):
            log.warning(
                "messages.handler_failed", consumers=self.claim.lane, outcome=settlement.event,
                messages=[one.sequence for one in settlement.deliveries][:10],
                error=error_text.shown(error),
            )  # fmt: skip
        return settlement

    def _settled(self, event: str, **options: Any) -> MessageSettlement:
        messages, deliveries = self.ctx.messages, self.claim.deliveries
        in_doubt = messages[0].in_doubt
        if len(messages) > 1:  # the handler may have settled some of them
            messages = self.ctx.left
            deliveries = tuple([message.delivery for message in messages])
            in_doubt = any(message.in_doubt for message in messages)
        return MessageSettlement(
            claim=self.claim, event=event, deliveries=deliveries, in_doubt=in_doubt,
            seconds=time.monotonic() - self.began, **options,
        )  # fmt: skip


def call(consumers: ConsumersDefinition, ctx: ConsumerCall) -> Awaitable[Any]:
    """Call a handler: a coroutine in the loop, a plain function in a thread."""
    if consumers.kind == "async":
        given: Any = ctx.messages if consumers.batch > 1 else ctx.messages[0]
        running: Awaitable[Any] = consumers.handler(given)
        return running
    blocking = [BlockingReceived(message, ctx.loop) for message in ctx.messages]
    given = blocking if consumers.batch > 1 else blocking[0]
    return ctx.threads.call(partial(consumers.handler, given))
