"""What a node has of budgets over time, by what it was told last. Nothing is asked here.

The one gate in front of calls and chats of those who have budgets over time.

A node spends what it was granted before, and asks for more when that is used up. Nothing passes beyond it:
where budgets are set and nobody can be asked, a call is refused unless something granted is left.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from toolgate.errors import BudgetExceeded, ServerBusy, ServerUnavailable, ToolgateError
from toolgate.model.quotas import (
    MAX_LEASE_REQUESTS,
    HolderQuotas,
    LeaseGrant,
    LeaseRequest,
    QuotaHolder,
    QuotaName,
)
from toolgate.policy.admission import list_limits
from toolgate.registry.quotas.contract import QuotaSource
from toolgate.telemetry import Metrics

CACHED_S: Final = 1.0
"""How long it holds that a budget is used up, and how many tokens are left: others use and return them."""
_TOKENS: Final = "tokens_per_day"
_BUDGET_TEXTS: Final[Mapping[QuotaName, str]] = {
    "calls_per_minute": "{} calls per minute",
    "calls_per_day": "{} calls per day",
    "tokens_per_day": "{} tokens per day",
}


class ExceededQuota(NamedTuple):
    """A budget that is used up."""

    holder: QuotaHolder
    budget: QuotaName
    limit: int
    retry_after_s: int

    @property
    def rule(self) -> str:
        """As it is written in the record of its holder."""
        field = "budgets" if self.holder.kind == "key" else "mcp.budgets"
        return f"{field}: {self.budget} = {self.limit}"

    def error(self) -> ToolgateError:
        """What the caller is told: a minute is waited for, a day is not."""
        kind = ServerBusy if self.budget == "calls_per_minute" else BudgetExceeded
        return kind(
            f"{self.holder} has used up its {_BUDGET_TEXTS[self.budget].format(self.limit)}: try again in "
            f"{self.retry_after_s} s",
            hint=f"try again after {self.retry_after_s} s, or ask an operator for a larger budget",
            data={
                "budget": self.budget,
                "limit": self.limit,
                "holder": {"kind": self.holder.kind, "id": self.holder.id},
                "retry_after_s": self.retry_after_s,
            },
        )


class QuotaLease:
    """What is left of one budget. All times are of the node's own clock, which never goes back."""

    __slots__ = ("ends_s", "left", "limit", "open_until_s", "shut_until_s", "window_ms")

    def __init__(self) -> None:
        self.left = 0
        self.limit = 0
        self.window_ms = -1
        self.ends_s = 0.0
        self.open_until_s = 0.0
        self.shut_until_s = 0.0

    def fill(self, wanted: LeaseRequest, drawn: LeaseGrant, *, asked_s: float, heard_s: float) -> None:
        """Take what was given."""
        # From when it was asked for: the window never ends later than that.
        self.ends_s = asked_s + drawn.left_ms / 1e3
        remembered_s = min(self.ends_s, heard_s + CACHED_S)
        if wanted.budget == _TOKENS:
            self.left, self.open_until_s = drawn.amount, remembered_s
        else:
            # Some may have been given back meanwhile. What is left of a larger budget is worth nothing.
            is_same = drawn.window_ms == self.window_ms and wanted.limit >= self.limit
            self.left = drawn.amount + (self.left if is_same else 0)
            self.open_until_s = self.ends_s
        self.shut_until_s = remembered_s if drawn.amount <= 0 else 0.0
        self.window_ms, self.limit = drawn.window_ms, wanted.limit

    def is_open(self, limit: int, now_s: float) -> bool:
        """Whether something may be taken: it was granted of this limit, or of a smaller one."""
        return self.left > 0 and now_s < self.open_until_s and limit >= self.limit

    def is_shut(self, limit: int, now_s: float) -> bool:
        """Whether nothing can be had, as was said a moment ago of the same limit."""
        return now_s < self.shut_until_s and limit == self.limit


class QuotaReservation:
    """One call that was taken out of each budget it comes under."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: list[tuple[QuotaLease, int]] = []

    def add(self, purse: QuotaLease) -> None:
        """Take one out of it."""
        purse.left -= 1
        self._taken.append((purse, purse.window_ms))

    def give_back(self) -> None:
        """The call is not made. In a window that has begun since, it is worth nothing."""
        for purse, window_ms in self._taken:
            if purse.window_ms == window_ms:
                purse.left += 1
        self._taken.clear()


class QuotaAccount:
    """The purses of one holder."""

    __slots__ = ("holder", "leases", "lock", "token_limit", "unreported")

    def __init__(self, holder: QuotaHolder) -> None:
        self.holder = holder
        self.leases: dict[QuotaName, QuotaLease] = {}
        self.lock = asyncio.Lock()
        """Held by whoever asks for more: of those who come at once, one does."""
        self.unreported = 0
        """Tokens that were used, and that nobody was told of."""
        self.token_limit = 0

    def find_empty(self, limits: Mapping[QuotaName, int], now_s: float) -> Mapping[QuotaName, int]:
        """The budgets of which there is nothing left here."""
        return {
            budget: limit
            for budget, limit in limits.items()
            if (purse := self.leases.get(budget)) is None or not purse.is_open(limit, now_s)
        }

    def find_exceeded(self, limits: Mapping[QuotaName, int], now_s: float) -> ExceededQuota | None:
        """Of the budgets that are known to be used up, the one that opens last."""
        found = [
            ExceededQuota(self.holder, budget, limit, max(1, math.ceil(purse.ends_s - now_s)))
            for budget, limit in limits.items()
            if (purse := self.leases.get(budget)) is not None and purse.is_shut(limit, now_s)
        ]
        return max(found, key=lambda one: one.retry_after_s, default=None)

    def take(self, limits: Iterable[QuotaName], ticket: QuotaReservation) -> None:
        """Take one call out of each of them; none of them is lacking."""
        for budget in limits:
            if budget != _TOKENS:
                ticket.add(self.leases[budget])

    def lease_requests(self, limits: Mapping[QuotaName, int]) -> list[LeaseRequest]:
        """What to ask for. Tokens that were used are said along, and taken for said."""
        spent, self.unreported = (self.unreported, 0) if _TOKENS in limits else (0, self.unreported)
        return [
            LeaseRequest(self.holder, budget, limit, spent=spent if budget == _TOKENS else 0)
            for budget, limit in limits.items()
        ]

    def fill(self, wanted: LeaseRequest, drawn: LeaseGrant, *, asked_s: float, heard_s: float) -> None:
        """Take what was given."""
        purse = self.leases.setdefault(wanted.budget, QuotaLease())
        purse.fill(wanted, drawn, asked_s=asked_s, heard_s=heard_s)
        if wanted.budget == _TOKENS:
            purse.left -= self.unreported

    def record_tokens(self, tokens: int, limit: int) -> None:
        """Tokens were used."""
        self.unreported += tokens
        self.token_limit = limit
        if (purse := self.leases.get(_TOKENS)) is not None:
            purse.left -= tokens

    def returned(self, now_s: float) -> list[LeaseRequest]:
        """All calls that are left, to be handed back."""
        return [
            LeaseRequest(self.holder, budget, purse.limit, returned=purse.left, window_ms=purse.window_ms)
            for budget, purse in self.leases.items()
            if budget != _TOKENS and purse.is_open(purse.limit, now_s)
        ]

    def is_idle(self, now_s: float) -> bool:
        """Whether nothing is lost with it."""
        is_over = all(now_s >= max(one.open_until_s, one.shut_until_s) for one in self.leases.values())
        return is_over and not self.unreported and not self.lock.locked()


REPORT_EVERY_S: Final = 1.0
"""How long the bank may not know of tokens that were used."""
CLOSE_WITHIN_S: Final = 2.0
_MAX_LEASE_ATTEMPTS: Final = 3
"""A window may end while it is asked for."""
_MAX_ACCOUNTS: Final = 4_096

_log = logging.getLogger(__name__)


class QuotaLeases:
    """Takes calls and tokens out of budgets. `bank` None: nobody can be asked here."""

    def __init__(
        self,
        bank: QuotaSource | None = None,
        *,
        metrics: Metrics,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bank = bank
        self._metrics = metrics
        self._clock_s = clock_s
        self._accounts: dict[QuotaHolder, QuotaAccount] = {}
        self._many = _MAX_ACCOUNTS
        self._failed_until_s = 0.0
        self._used = asyncio.Event()
        """There are tokens to tell the bank of."""

    async def admit(self, allowances: Sequence[HolderQuotas]) -> QuotaReservation | ExceededQuota:
        """Take one call out of all of them, or of none where one is used up.

        Raises ServerUnavailable where nobody can be asked.
        """
        ticket = QuotaReservation()
        try:
            for allowance in allowances:
                limits = list_limits(allowance.budgets)
                overdraft = await self._take(self._account(allowance.holder), limits, ticket)
                if overdraft is not None:
                    ticket.give_back()
                    return overdraft
        except (ToolgateError, asyncio.CancelledError):
            ticket.give_back()
            raise
        return ticket

    async def check_tokens(self, allowances: Sequence[HolderQuotas]) -> None:
        """Raises BudgetExceeded where the tokens of one are used up, and as `admit`."""
        for allowance in allowances:
            limit = allowance.budgets.tokens_per_day
            if limit is not None:
                account = self._account(allowance.holder)
                overdraft = await self._take(account, {_TOKENS: limit}, QuotaReservation())
                if overdraft is not None:
                    raise overdraft.error()

    def spent(self, allowances: Sequence[HolderQuotas], tokens: int) -> None:
        """Tokens were used by a call or a chat that has ended."""
        for allowance in allowances:
            limit = allowance.budgets.tokens_per_day
            if limit is not None and tokens > 0:
                self._account(allowance.holder).record_tokens(tokens, limit)
                self._used.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Tell the bank of tokens while the block runs, and hand back in the end what was not used."""
        reporting = asyncio.create_task(self._keep_reporting())
        try:
            yield
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)
            await self._close()

    async def report(self) -> None:
        """Tell the bank of the tokens that were used since it last heard. What it does not hear is kept."""
        self._used.clear()
        draws = [
            draw
            for account in list(self._accounts.values())
            if account.unreported
            for draw in account.lease_requests({_TOKENS: account.token_limit})
        ]
        for start in range(0, len(draws), MAX_LEASE_REQUESTS):
            await self._draw(draws[start : start + MAX_LEASE_REQUESTS])

    async def _keep_reporting(self) -> None:
        while True:
            await self._used.wait()
            await asyncio.sleep(REPORT_EVERY_S)
            try:
                await self.report()
            except ToolgateError as exc:
                _log.warning("cannot tell of the tokens that were used: %s", exc)

    async def _close(self) -> None:
        now_s = self._clock_s()
        left = [draw for account in self._accounts.values() for draw in account.returned(now_s)]
        try:
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await self.report()
                for start in range(0, len(left), MAX_LEASE_REQUESTS):
                    await self._draw(left[start : start + MAX_LEASE_REQUESTS])
        except (ToolgateError, TimeoutError) as exc:
            _log.warning("what was not used of budgets could not be handed back: %s", exc)

    async def _take(
        self, account: QuotaAccount, limits: Mapping[QuotaName, int], ticket: QuotaReservation
    ) -> ExceededQuota | None:
        if account.find_empty(limits, self._clock_s()):
            async with account.lock:
                overdraft = await self._open(account, limits)
                if overdraft is not None:
                    self._metrics.budget_refusals[overdraft.budget] += 1
                    return overdraft
                account.take(limits, ticket)  # before anybody else can
                return None
        account.take(limits, ticket)
        return None

    async def _open(self, account: QuotaAccount, limits: Mapping[QuotaName, int]) -> ExceededQuota | None:
        """Returns once something of each budget is here; or which of them is used up."""
        for _ in range(_MAX_LEASE_ATTEMPTS):
            now_s = self._clock_s()
            lacking = account.find_empty(limits, now_s)
            if not lacking:
                return None
            overdraft = account.find_exceeded(lacking, now_s)
            if overdraft is not None:
                return overdraft
            await self._draw(account.lease_requests(lacking))
        raise _quota_unavailable()

    async def _draw(self, draws: Sequence[LeaseRequest]) -> None:
        """Ask the bank, and put what it gives into the purses."""
        asked_s = self._clock_s()
        try:
            drawn = await self._ask(draws, asked_s)
        except BaseException:
            for one in draws:  # rather said twice than not at all
                self._account(one.holder).unreported += one.spent
                self._used.set()
            raise
        heard_s = self._clock_s()
        for wanted, given in zip(draws, drawn, strict=True):
            if not wanted.returned:
                self._account(wanted.holder).fill(wanted, given, asked_s=asked_s, heard_s=heard_s)

    async def _ask(self, draws: Sequence[LeaseRequest], now_s: float) -> Sequence[LeaseGrant]:
        # One that does not answer is not asked by every call in turn.
        if self._bank is None or now_s < self._failed_until_s:
            raise _quota_unavailable()
        try:
            return await self._bank.draw(draws)
        except ToolgateError as exc:
            self._failed_until_s = self._clock_s() + CACHED_S
            raise _quota_unavailable() from exc

    def _account(self, holder: QuotaHolder) -> QuotaAccount:
        account = self._accounts.get(holder)
        if account is None:
            if len(self._accounts) >= self._many:
                now_s = self._clock_s()
                self._accounts = {k: one for k, one in self._accounts.items() if not one.is_idle(now_s)}
                self._many = max(_MAX_ACCOUNTS, 2 * len(self._accounts))
            account = self._accounts[holder] = QuotaAccount(holder)
        return account


def _quota_unavailable() -> ServerUnavailable:
    return ServerUnavailable(
        "this caller has a budget, and how much of it is left cannot be asked at the moment",
        hint="try again when the control plane can be reached",
    )
