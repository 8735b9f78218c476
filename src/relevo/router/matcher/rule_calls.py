"""Rules that are answered elsewhere: functions and webhooks.

No transaction is open meanwhile, and what has come back may be outdated: who asked compares the
versions. Rules come with their secrets opened; these go into headers and forms and nowhere else,
and errors name the host alone.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, assert_never
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.errors import OutboundFailed, RuleFailed
from relevo.kernel import cpu
from relevo.router.core.rules import RuleAnswer, RuleCall, number
from relevo.router.wire.policies import (
    FunctionCredential,
    FunctionRule,
    WebhookCredential,
    WebhookRule,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from relevo.kernel.outbound import client as outbound
    from relevo.kernel.outbound.lazy_client import OutboundCalls

_TOKEN_SECONDS: Final = 300.0
"""How long a token is used whose server does not say for how long it may be."""
_MARGIN_SECONDS: Final = 60.0
"""How long before its end a token is no longer used; a tenth of its life if that is less."""
_JSON: Final = {"content-type": "application/json", "accept": "application/json"}
_FORM: Final = {
    "content-type": "application/x-www-form-urlencoded",
    "accept": "application/json",
}


class RuleCaller:
    """Makes the calls of external rules; one per process, since it keeps tokens."""

    def __init__(
        self, client: OutboundCalls, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._tokens = _Tokens(client, monotonic)

    async def answers(
        self, calls: Iterable[RuleCall], *, seconds: float = limits.ROUTER_CALLS_SECONDS_MAX
    ) -> dict[str, RuleAnswer]:
        """Make calls, several at a time, and return what came of each, by its place.

        Raises nothing: a call that fails, or for which no time was left, has an answer that says
        so.
        """
        made = tuple(calls)
        found = {one.place: RuleAnswer(failure="there was no time left to call it") for one in made}
        waiting = iter(made)
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for _ in range(min(len(made), limits.ROUTER_CALLS_AT_ONCE_MAX)):
                    group.create_task(self._work(waiting, found))
        except TimeoutError:
            pass
        return found

    async def _work(self, waiting: Iterator[RuleCall], found: dict[str, RuleAnswer]) -> None:
        for call in waiting:
            try:
                found[call.place] = RuleAnswer(await self.value(call))
            except RuleFailed as error:
                found[call.place] = RuleAnswer(failure=error.message)

    async def value(self, call: RuleCall) -> Any:
        """Return the JSON value that a rule's host answers; raises `RuleFailed` without one."""
        try:
            body = msgspec.json.encode(call.payload)
        except (TypeError, ValueError):
            raise RuleFailed("the input of the rule cannot be written as JSON") from None
        try:
            match call.rule:
                case FunctionRule():
                    url, keys = call.rule.function_uri, _keys(call.rule)
                    answer = await self._client.post(url, body, _JSON | keys, secret=bool(keys))
                case WebhookRule():
                    url = call.rule.webhook_uri or ""
                    answer = await self._post_to_webhook(call.rule, url, body)
                case _:
                    assert_never(call.rule)
        except OutboundFailed as error:
            raise RuleFailed(error.message) from None
        return await cpu.decoded(len(answer.body), _json_of, answer, url)

    async def _post_to_webhook(
        self, rule: WebhookRule, url: str, body: bytes
    ) -> outbound.OutboundAnswer:
        access = _access(rule)
        if access is None:
            return await self._client.post(url, body, _JSON)
        token = await self._tokens.current(access)
        answer = await self._client.post(url, body, _JSON | _bearer(token), secret=True)
        if answer.status != 401:
            return answer
        token = await self._tokens.current(access, instead_of=token)
        return await self._client.post(url, body, _JSON | _bearer(token), secret=True)


class _Access(Struct, frozen=True):
    """The server of a token, and its client."""

    server: str
    client_id: str
    client_secret: str

    def __repr__(self) -> str:
        return "_Access(…)"


class _Slot:
    """The token of one access; its lock lets one fetch it while the others wait."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.token: str | None = None
        self.until = 0.0


class _Tokens:
    """Tokens by access, kept until shortly before they end."""

    def __init__(self, client: OutboundCalls, monotonic: Callable[[], float]) -> None:
        self._client = client
        self._monotonic = monotonic
        self._slots: dict[_Access, _Slot] = {}

    async def current(self, access: _Access, *, instead_of: str | None = None) -> str:
        """Return a token that is valid as far as is known, and another one than `instead_of`."""
        slot = self._slots.pop(access, None) or _Slot()
        self._slots[access] = slot  # at the end: the one used longest ago is forgotten first
        if len(self._slots) > limits.OUTBOUND_TOKENS_MAX:
            del self._slots[next(iter(self._slots))]
        async with slot.lock:
            usable = slot.token not in (None, instead_of) and self._monotonic() < slot.until
            if not usable:
                slot.token = None
                asked_at = self._monotonic()
                slot.token, life = await self._fetch(access)
                slot.until = asked_at + life - min(_MARGIN_SECONDS, life / 10)
            assert slot.token is not None
            return slot.token

    async def _fetch(self, access: _Access) -> tuple[str, float]:
        """Ask the authorization server; return the token and for how many seconds it is valid."""
        form = {
            "grant_type": "client_credentials",
            "client_id": access.client_id,
            "client_secret": access.client_secret,
        }
        answer = await self._client.post(
            access.server, urlencode(form).encode(), _FORM, secret=True
        )
        given = _json_of(answer, access.server)
        token = given.get("access_token") if isinstance(given, dict) else None
        if not isinstance(token, str) or not token:
            raise RuleFailed(f"{_origin(access.server)} answered without an access_token")
        try:
            life = float(number(given.get("expires_in", _TOKEN_SECONDS)))
        except (RuleFailed, OverflowError):
            life = _TOKEN_SECONDS
        return token, life


def _keys(rule: FunctionRule) -> dict[str, str]:
    credential = rule.credential or FunctionCredential()
    if credential.function_key is not None:
        return {"x-functions-key": credential.function_key}
    named = {"x-functions-key": credential.app_key, "x-functions-clientid": credential.client_id}
    return {name: value for name, value in named.items() if value is not None}


def _access(rule: WebhookRule) -> _Access | None:
    if not rule.authorization_server_uri:
        return None
    credential = rule.client_credential or WebhookCredential()
    return _Access(
        rule.authorization_server_uri, credential.client_id or "", credential.client_secret or ""
    )


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def _json_of(answer: outbound.OutboundAnswer, url: str) -> Any:
    if answer.status != 200:
        raise RuleFailed(f"{_origin(url)} answered {answer.status} instead of 200")
    try:
        return msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, RecursionError):
        raise RuleFailed(f"{_origin(url)} answered with something that is not JSON") from None


def _origin(url: str) -> str:
    from relevo.kernel.outbound.client import origin  # it was called, so it is there

    return origin(url)
