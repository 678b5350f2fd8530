"""The one gate in front of calls and chats of those who have budgets over time.

A node spends what it was granted before, and asks for more when that is used up. Nothing passes beyond it:
where budgets are set and nobody can be asked, a call is refused unless something granted is left.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from toolgate.errors import ServerUnavailable, ToolgateError
from toolgate.gateway.purses import REMEMBERED_S, Account, Overdraft, Ticket
from toolgate.model.quotas import MAX_DRAWS, Allowance, BudgetName, Draw, Drawn, Holder
from toolgate.policy.allowances import limits_of
from toolgate.registry.quotas.contract import Bank
from toolgate.telemetry import Metrics

REPORT_EVERY_S: Final = 1.0
"""How long the bank may not know of tokens that were used."""
CLOSE_WITHIN_S: Final = 2.0
_TRIES: Final = 3
"""A window may end while it is asked for."""
_MANY_ACCOUNTS: Final = 4_096
_TOKENS: Final = "tokens_per_day"

_log = logging.getLogger(__name__)


class Spending:
    """Takes calls and tokens out of budgets. `bank` None: nobody can be asked here."""

    def __init__(
        self, bank: Bank | None = None, *, metrics: Metrics, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._bank = bank
        self._metrics = metrics
        self._clock_s = clock_s
        self._accounts: dict[Holder, Account] = {}
        self._many = _MANY_ACCOUNTS
        self._failed_until_s = 0.0
        self._used = asyncio.Event()
        """There are tokens to tell the bank of."""

    async def admit(self, allowances: Sequence[Allowance]) -> Ticket | Overdraft:
        """Take one call out of all of them, or of none where one is used up.

        Raises ServerUnavailable where nobody can be asked.
        """
        ticket = Ticket()
        try:
            for allowance in allowances:
                limits = limits_of(allowance.budgets)
                overdraft = await self._take(self._account(allowance.holder), limits, ticket)
                if overdraft is not None:
                    ticket.give_back()
                    return overdraft
        except (ToolgateError, asyncio.CancelledError):
            ticket.give_back()
            raise
        return ticket

    async def check_tokens(self, allowances: Sequence[Allowance]) -> None:
        """Raises BudgetExceeded where the tokens of one are used up, and as `admit`."""
        for allowance in allowances:
            limit = allowance.budgets.tokens_per_day
            if limit is not None:
                account = self._account(allowance.holder)
                overdraft = await self._take(account, {_TOKENS: limit}, Ticket())
                if overdraft is not None:
                    raise overdraft.error()

    def spent(self, allowances: Sequence[Allowance], tokens: int) -> None:
        """Tokens were used by a call or a chat that has ended."""
        for allowance in allowances:
            limit = allowance.budgets.tokens_per_day
            if limit is not None and tokens > 0:
                self._account(allowance.holder).spend_tokens(tokens, limit)
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
            for draw in account.draws({_TOKENS: account.token_limit})
        ]
        for start in range(0, len(draws), MAX_DRAWS):
            await self._draw(draws[start : start + MAX_DRAWS])

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
                for start in range(0, len(left), MAX_DRAWS):
                    await self._draw(left[start : start + MAX_DRAWS])
        except (ToolgateError, TimeoutError) as exc:
            _log.warning("what was not used of budgets could not be handed back: %s", exc)

    async def _take(
        self, account: Account, limits: Mapping[BudgetName, int], ticket: Ticket
    ) -> Overdraft | None:
        if account.lacking(limits, self._clock_s()):
            async with account.lock:
                overdraft = await self._open(account, limits)
                if overdraft is not None:
                    self._metrics.budget_refusals[overdraft.budget] += 1
                    return overdraft
                account.take(limits, ticket)  # before anybody else can
                return None
        account.take(limits, ticket)
        return None

    async def _open(self, account: Account, limits: Mapping[BudgetName, int]) -> Overdraft | None:
        """Returns once something of each budget is here; or which of them is used up."""
        for _ in range(_TRIES):
            now_s = self._clock_s()
            lacking = account.lacking(limits, now_s)
            if not lacking:
                return None
            overdraft = account.overdraft(lacking, now_s)
            if overdraft is not None:
                return overdraft
            await self._draw(account.draws(lacking))
        raise _nobody_to_ask()

    async def _draw(self, draws: Sequence[Draw]) -> None:
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

    async def _ask(self, draws: Sequence[Draw], now_s: float) -> Sequence[Drawn]:
        # One that does not answer is not asked by every call in turn.
        if self._bank is None or now_s < self._failed_until_s:
            raise _nobody_to_ask()
        try:
            return await self._bank.draw(draws)
        except ToolgateError as exc:
            self._failed_until_s = self._clock_s() + REMEMBERED_S
            raise _nobody_to_ask() from exc

    def _account(self, holder: Holder) -> Account:
        account = self._accounts.get(holder)
        if account is None:
            if len(self._accounts) >= self._many:
                now_s = self._clock_s()
                self._accounts = {k: one for k, one in self._accounts.items() if not one.is_idle(now_s)}
                self._many = max(_MANY_ACCOUNTS, 2 * len(self._accounts))
            account = self._accounts[holder] = Account(holder)
        return account


def _nobody_to_ask() -> ServerUnavailable:
    return ServerUnavailable(
        "this caller has a budget, and how much of it is left cannot be asked at the moment",
        hint="try again when the control plane can be reached",
    )
