"""What a node has of budgets over time, by what it was told last. Nothing is asked here."""

import asyncio
import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from toolgate.errors import BudgetExceeded, ServerBusy, ToolgateError
from toolgate.model.quotas import BudgetName, Draw, Drawn, Holder

REMEMBERED_S: Final = 1.0
"""How long it holds that a budget is used up, and how many tokens are left: others use and return them."""
_TOKENS: Final = "tokens_per_day"
_SAID: Final[Mapping[BudgetName, str]] = {
    "calls_per_minute": "{} calls per minute",
    "calls_per_day": "{} calls per day",
    "tokens_per_day": "{} tokens per day",
}


class Overdraft(NamedTuple):
    """A budget that is used up."""

    holder: Holder
    budget: BudgetName
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
            f"{self.holder} has used up its {_SAID[self.budget].format(self.limit)}: try again in "
            f"{self.retry_after_s} s",
            hint=f"try again after {self.retry_after_s} s, or ask an operator for a larger budget",
            data={
                "budget": self.budget,
                "limit": self.limit,
                "holder": {"kind": self.holder.kind, "id": self.holder.id},
                "retry_after_s": self.retry_after_s,
            },
        )


class Purse:
    """What is left of one budget. All times are of the node's own clock, which never goes back."""

    __slots__ = ("ends_s", "left", "limit", "open_until_s", "shut_until_s", "window_ms")

    def __init__(self) -> None:
        self.left = 0
        self.limit = 0
        self.window_ms = -1
        self.ends_s = 0.0
        self.open_until_s = 0.0
        self.shut_until_s = 0.0

    def fill(self, wanted: Draw, drawn: Drawn, *, asked_s: float, heard_s: float) -> None:
        """Take what was given."""
        # From when it was asked for: the window never ends later than that.
        self.ends_s = asked_s + drawn.left_ms / 1e3
        remembered_s = min(self.ends_s, heard_s + REMEMBERED_S)
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


class Ticket:
    """One call that was taken out of each budget it comes under."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: list[tuple[Purse, int]] = []

    def add(self, purse: Purse) -> None:
        """Take one out of it."""
        purse.left -= 1
        self._taken.append((purse, purse.window_ms))

    def give_back(self) -> None:
        """The call is not made. In a window that has begun since, it is worth nothing."""
        for purse, window_ms in self._taken:
            if purse.window_ms == window_ms:
                purse.left += 1
        self._taken.clear()


class Account:
    """The purses of one holder."""

    __slots__ = ("holder", "lock", "purses", "token_limit", "unreported")

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self.purses: dict[BudgetName, Purse] = {}
        self.lock = asyncio.Lock()
        """Held by whoever asks for more: of those who come at once, one does."""
        self.unreported = 0
        """Tokens that were used, and that nobody was told of."""
        self.token_limit = 0

    def lacking(self, limits: Mapping[BudgetName, int], now_s: float) -> Mapping[BudgetName, int]:
        """The budgets of which there is nothing left here."""
        return {
            budget: limit
            for budget, limit in limits.items()
            if (purse := self.purses.get(budget)) is None or not purse.is_open(limit, now_s)
        }

    def overdraft(self, limits: Mapping[BudgetName, int], now_s: float) -> Overdraft | None:
        """Of the budgets that are known to be used up, the one that opens last."""
        found = [
            Overdraft(self.holder, budget, limit, max(1, math.ceil(purse.ends_s - now_s)))
            for budget, limit in limits.items()
            if (purse := self.purses.get(budget)) is not None and purse.is_shut(limit, now_s)
        ]
        return max(found, key=lambda one: one.retry_after_s, default=None)

    def take(self, limits: Iterable[BudgetName], ticket: Ticket) -> None:
        """Take one call out of each of them; none of them is lacking."""
        for budget in limits:
            if budget != _TOKENS:
                ticket.add(self.purses[budget])

    def draws(self, limits: Mapping[BudgetName, int]) -> list[Draw]:
        """What to ask for. Tokens that were used are said along, and taken for said."""
        spent, self.unreported = (self.unreported, 0) if _TOKENS in limits else (0, self.unreported)
        return [
            Draw(self.holder, budget, limit, spent=spent if budget == _TOKENS else 0)
            for budget, limit in limits.items()
        ]

    def fill(self, wanted: Draw, drawn: Drawn, *, asked_s: float, heard_s: float) -> None:
        """Take what was given."""
        purse = self.purses.setdefault(wanted.budget, Purse())
        purse.fill(wanted, drawn, asked_s=asked_s, heard_s=heard_s)
        if wanted.budget == _TOKENS:
            purse.left -= self.unreported

    def spend_tokens(self, tokens: int, limit: int) -> None:
        """Tokens were used."""
        self.unreported += tokens
        self.token_limit = limit
        if (purse := self.purses.get(_TOKENS)) is not None:
            purse.left -= tokens

    def returned(self, now_s: float) -> list[Draw]:
        """All calls that are left, to be handed back."""
        return [
            Draw(self.holder, budget, purse.limit, returned=purse.left, window_ms=purse.window_ms)
            for budget, purse in self.purses.items()
            if budget != _TOKENS and purse.is_open(purse.limit, now_s)
        ]

    def is_idle(self, now_s: float) -> bool:
        """Whether nothing is lost with it."""
        is_over = all(now_s >= max(one.open_until_s, one.shut_until_s) for one in self.purses.values())
        return is_over and not self.unreported and not self.lock.locked()
