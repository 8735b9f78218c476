"""Batches of messages that are filled one by one, up to what may be sent at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relevo import limits
from relevo.errors import TooLarge
from relevo.messaging.core import content

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relevo.messaging.core.entities import EntityProperties
    from relevo.messaging.model import Message


class MessageBatch:
    """Messages to send together; made by `create_batch` of a queue or topic.

    >>> batch = await orders.create_batch()
    >>> batch.add(Message(b"first"))
    >>> await orders.send_many(batch)
    """

    def __init__(self, properties: EntityProperties) -> None:
        self._properties = properties
        self._messages: list[Message] = []
        self.size = 0
        """Bytes of the messages, with their properties and texts."""

    def add(self, message: Message) -> None:
        """Add a message; `TooLarge` if it does not fit any more, and the batch is as it was."""
        properties = self._properties
        body = content.check_message(
            message, requires_session=properties.requires_session,
            max_bytes=properties.max_message_bytes,
        )  # fmt: skip
        size = self.size + content.header_bytes(message) + len(body.data)
        if self._messages and size > limits.MESSAGE_BATCH_BYTES_MAX:
            raise TooLarge(
                f"the batch would have {size} bytes; at most {limits.MESSAGE_BATCH_BYTES_MAX} are"
                " taken, so send it and begin another one"
            )
        self._messages.append(message)
        self.size = size

    def __iter__(self) -> Iterator[Message]:
        """Yield the messages in the order in which they were added."""
        return iter(self._messages)

    def __len__(self) -> int:
        """Return how many messages there are."""
        return len(self._messages)
