"""The quota stage: enforces rate limits (per minute) and quotas (per day) of keys and tasks.

A node spends the leases it was granted and requests more when they are used up. It never exceeds them: if it
cannot reach the quota source, a call fails unless a lease still has calls. So all nodes together never exceed
a quota (ADR 42).
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Final, NamedTuple

from toolgate.errors import BudgetExceeded, ServerBusy, ServerUnavailable, ToolgateError
from toolgate.gateway.call import Admission, CallContext, Denial
from toolgate.model.principals import (
    MAX_LEASE_REQUESTS,
    HolderQuotas,
    LeaseGrant,
    LeaseRequest,
    QuotaHolder,
    QuotaName,
)
from toolgate.policy.admission import list_limits
from toolgate.registry.store import QuotaSource
from toolgate.telemetry import Metrics

CACHED_S: Final = 1.0
"""How long a node caches "used up" and a count of tokens: other nodes use and return tokens meanwhile."""
REPORT_EVERY_S: Final = 1.0  # how far the source may lag behind the tokens used
CLOSE_WITHIN_S: Final = 2.0
"""How long a shutdown may take to return unused calls: it must not hang on an unreachable control plane."""
MAX_ACCOUNTS: Final = 4_096  # accounts kept before idle ones are dropped: about 4 MB
_MAX_LEASE_ATTEMPTS: Final = 3  # a window may end while a lease of it is requested
_TOKENS: Final = "tokens_per_day"

_log = logging.getLogger(__name__)


class ExceededQuota(NamedTuple):
    """A quota that is used up."""

    holder: QuotaHolder
    quota: QuotaName
    limit: int
    retry_after_s: int

    @property
    def rule(self) -> str:
        """The quota as written in the record of its holder."""
        field = "budgets" if self.holder.kind == "key" else "mcp.budgets"
        return f"{field}: {self.quota} = {self.limit}"

    def error(self) -> ToolgateError:
        """The error for the caller. A client can wait for the next minute, but not for the next day."""
        kind = ServerBusy if self.quota == "calls_per_minute" else BudgetExceeded
        used_up = f"{self.limit} {self.quota.replace('_', ' ')}"
        return kind(
            f"{self.holder} has used up its quota of {used_up}, which resets in {self.retry_after_s} s",
            hint=f"retry after {self.retry_after_s} s, or ask an operator for a larger quota",
            data={
                "budget": self.quota,
                "limit": self.limit,
                "holder": {"kind": self.holder.kind, "id": self.holder.id},
                "retry_after_s": self.retry_after_s,
            },
        )


@dataclass(slots=True)
class QuotaLease:
    """A node's share of one quota. All times are by the node's monotonic clock."""

    left: int = 0
    limit: int = 0
    window_ms: int = -1
    ends_s: float = 0.0
    open_until_s: float = 0.0
    closed_until_s: float = 0.0

    def fill(self, request: LeaseRequest, grant: LeaseGrant, *, requested_s: float, now_s: float) -> None:
        # Counted from the time of the request, so a lease never outlives its window.
        self.ends_s = requested_s + grant.left_ms / 1e3
        cached_until_s = min(self.ends_s, now_s + CACHED_S)
        if request.budget == _TOKENS:
            self.left, self.open_until_s = grant.amount, cached_until_s
        else:
            # Calls may have been released meanwhile. A remainder under a larger limit is void.
            is_same = grant.window_ms == self.window_ms and request.limit >= self.limit
            self.left = grant.amount + (self.left if is_same else 0)
            self.open_until_s = self.ends_s
        self.closed_until_s = cached_until_s if grant.amount <= 0 else 0.0
        self.window_ms, self.limit = grant.window_ms, request.limit

    def is_open(self, limit: int, now_s: float) -> bool:
        """Whether calls or tokens granted under this limit, or a smaller one, are left."""
        return self.left > 0 and now_s < self.open_until_s and limit >= self.limit

    def is_closed(self, limit: int, now_s: float) -> bool:
        """Whether the source recently reported this limit as used up."""
        return now_s < self.closed_until_s and limit == self.limit


@dataclass(slots=True)
class QuotaReservation(Admission):
    """One call, taken out of each lease that it needs."""

    record_tokens: Callable[[int], None]
    taken: list[tuple[QuotaLease, int]] = field(default_factory=list)
    """Each lease, and its window at that time."""

    def release(self) -> None:
        """Return the call, which was not sent. Calls of an earlier window are void."""
        for lease, window_ms in self.taken:
            if lease.window_ms == window_ms:
                lease.left += 1
        self.taken.clear()

    def settle(self, tokens: int) -> None:
        self.record_tokens(tokens)


@dataclass(slots=True)
class QuotaAccount:
    """The leases of one holder."""

    holder: QuotaHolder
    leases: dict[QuotaName, QuotaLease] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during a lease request, so that concurrent calls send one request."""
    unreported: int = 0
    """Tokens that were used and are not reported so far."""
    token_limit: int = 0

    def find_empty(self, limits: Mapping[QuotaName, int], now_s: float) -> Mapping[QuotaName, int]:
        return {
            quota: limit
            for quota, limit in limits.items()
            if (lease := self.leases.get(quota)) is None or not lease.is_open(limit, now_s)
        }

    def find_exceeded(self, limits: Mapping[QuotaName, int], now_s: float) -> ExceededQuota | None:
        """The quota that resets last, of those known to be used up."""
        exceeded = [
            ExceededQuota(self.holder, quota, limit, max(1, math.ceil(lease.ends_s - now_s)))
            for quota, limit in limits.items()
            if (lease := self.leases.get(quota)) is not None and lease.is_closed(limit, now_s)
        ]
        return max(exceeded, key=lambda one: one.retry_after_s, default=None)

    def take(self, limits: Iterable[QuotaName], reservation: QuotaReservation) -> None:
        """Take one call out of each of these quotas; none of them is empty."""
        for quota in limits:
            if quota != _TOKENS:
                lease = self.leases[quota]
                lease.left -= 1
                reservation.taken.append((lease, lease.window_ms))

    def request_leases(self, limits: Mapping[QuotaName, int]) -> list[LeaseRequest]:
        """Lease requests for these limits. They report the consumed tokens, which then count as reported."""
        spent = 0
        if _TOKENS in limits:
            spent, self.unreported = self.unreported, 0
        return [
            LeaseRequest(self.holder, quota, limit, spent=spent if quota == _TOKENS else 0)
            for quota, limit in limits.items()
        ]

    def record_tokens(self, tokens: int, limit: int) -> None:
        self.unreported += tokens
        self.token_limit = limit
        if (lease := self.leases.get(_TOKENS)) is not None:
            lease.left -= tokens

    def return_unused(self, now_s: float) -> list[LeaseRequest]:
        return [
            LeaseRequest(self.holder, quota, lease.limit, returned=lease.left, window_ms=lease.window_ms)
            for quota, lease in self.leases.items()
            if quota != _TOKENS and lease.is_open(lease.limit, now_s)
        ]

    def is_idle(self, now_s: float) -> bool:
        """Whether the account holds nothing and can be dropped."""
        is_over = all(now_s >= max(one.open_until_s, one.closed_until_s) for one in self.leases.values())
        return is_over and not self.unreported and not self.lock.locked()


@dataclass(slots=True)
class QuotaLeases:
    """The leases of a node, and the stage that admits calls by them. Without a `source`, calls fail."""

    source: QuotaSource | None
    _: KW_ONLY
    metrics: Metrics
    clock_s: Callable[[], float]
    report_every_s: float = REPORT_EVERY_S
    max_accounts: int = MAX_ACCOUNTS
    name: str = "budget"
    accounts: dict[QuotaHolder, QuotaAccount] = field(default_factory=dict, init=False)
    _sweep_at: int = field(default=0, init=False)
    """The number of accounts at which idle ones are dropped next; at least `max_accounts`."""
    _failed_until_s: float = field(default=0.0, init=False)
    _has_unreported: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def applies_to(self, call: CallContext) -> bool:
        return bool(call.view.quotas)

    async def admit(self, call: CallContext) -> Admission | Denial:
        """Count the call in its caller's quotas. Raises ServerUnavailable."""
        reserved = await self.reserve(call.view.quotas)
        if isinstance(reserved, ExceededQuota):
            return Denial(reserved.error(), reserved.holder.kind, reserved.rule)
        return reserved

    async def reserve(self, quotas: Sequence[HolderQuotas]) -> QuotaReservation | ExceededQuota:
        """Count one call in all quotas, or in none if one is used up. Raises ServerUnavailable."""
        reservation = QuotaReservation(partial(self.record_tokens, quotas))
        try:
            for one in quotas:
                limits = list_limits(one.budgets)
                exceeded = await self._take(self._account(one.holder), limits, reservation)
                if exceeded is not None:
                    reservation.release()
                    return exceeded
        except (ToolgateError, asyncio.CancelledError):
            reservation.release()
            raise
        return reservation

    async def check_tokens(self, quotas: Sequence[HolderQuotas]) -> None:
        """Raises BudgetExceeded if the tokens of a quota are used up, and as `reserve`."""
        for one in quotas:
            limit = one.budgets.tokens_per_day
            if limit is not None:
                exceeded = await self._take(self._account(one.holder), {_TOKENS: limit}, None)
                if exceeded is not None:
                    raise exceeded.error()

    def record_tokens(self, quotas: Sequence[HolderQuotas], tokens: int) -> None:
        for one in quotas:
            limit = one.budgets.tokens_per_day
            if limit is not None and tokens > 0:
                self._account(one.holder).record_tokens(tokens, limit)
                self._has_unreported.set()

    @asynccontextmanager
    async def reporting(self) -> AsyncIterator[None]:
        """Report used tokens while the block runs, and return unused calls when it ends."""
        task = asyncio.create_task(self._keep_reporting())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            now_s, accounts = self.clock_s(), self.accounts.values()
            unused = [request for account in accounts for request in account.return_unused(now_s)]
            try:
                async with asyncio.timeout(CLOSE_WITHIN_S):
                    await self.report()
                    await self._request(unused)
            except (ToolgateError, TimeoutError) as exc:
                _log.warning("cannot return the unused calls of quotas: %s", exc)

    async def report(self) -> None:
        """Report the tokens used since the last report. If that fails, the next report includes them."""
        self._has_unreported.clear()
        due = [account for account in self.accounts.values() if account.unreported]
        reports = [request for one in due for request in one.request_leases({_TOKENS: one.token_limit})]
        await self._request(reports)

    async def _keep_reporting(self) -> None:
        while True:
            await self._has_unreported.wait()
            await asyncio.sleep(self.report_every_s)
            try:
                await self.report()
            except ToolgateError as exc:
                _log.warning("cannot report used tokens; the next report includes them: %s", exc)

    async def _take(
        self, account: QuotaAccount, limits: Mapping[QuotaName, int], reservation: QuotaReservation | None
    ) -> ExceededQuota | None:
        if account.find_empty(limits, self.clock_s()):
            async with account.lock:
                exceeded = await self._lease(account, limits)
                if exceeded is not None:
                    self.metrics.budget_refusals[exceeded.quota] += 1
                    return exceeded
        if reservation is not None:  # nothing is awaited between the check and this
            account.take(limits, reservation)
        return None

    async def _lease(self, account: QuotaAccount, limits: Mapping[QuotaName, int]) -> ExceededQuota | None:
        for _ in range(_MAX_LEASE_ATTEMPTS):
            now_s = self.clock_s()
            empty = account.find_empty(limits, now_s)
            if not empty:
                return None
            exceeded = account.find_exceeded(empty, now_s)
            if exceeded is not None:
                return exceeded
            await self._request(account.request_leases(empty))
        raise _quota_unavailable()

    async def _request(self, requests: Sequence[LeaseRequest]) -> None:
        for start in range(0, len(requests), MAX_LEASE_REQUESTS):
            await self._request_batch(requests[start : start + MAX_LEASE_REQUESTS])

    async def _request_batch(self, requests: Sequence[LeaseRequest]) -> None:
        requested_s = self.clock_s()
        try:
            grants = await self._request_grants(requests, requested_s)
        except BaseException:
            for one in requests:  # report tokens twice rather than not at all
                self._account(one.holder).unreported += one.spent
                self._has_unreported.set()
            raise
        now_s = self.clock_s()
        for request, grant in zip(requests, grants, strict=True):
            if not request.returned:
                account = self._account(request.holder)
                lease = account.leases.setdefault(request.budget, QuotaLease())
                lease.fill(request, grant, requested_s=requested_s, now_s=now_s)
                if request.budget == _TOKENS:
                    lease.left -= account.unreported

    async def _request_grants(self, requests: Sequence[LeaseRequest], now_s: float) -> Sequence[LeaseGrant]:
        # After a failure, no call requests a lease for a moment: the source may be overloaded.
        if self.source is None or now_s < self._failed_until_s:
            raise _quota_unavailable()
        try:
            return await self.source.draw(requests)
        except ToolgateError as exc:
            self._failed_until_s = self.clock_s() + CACHED_S
            raise _quota_unavailable() from exc

    def _account(self, holder: QuotaHolder) -> QuotaAccount:
        account = self.accounts.get(holder)
        if account is None:
            if len(self.accounts) >= max(self.max_accounts, self._sweep_at):
                now_s = self.clock_s()
                self.accounts = {k: one for k, one in self.accounts.items() if not one.is_idle(now_s)}
                self._sweep_at = 2 * len(self.accounts)
            account = self.accounts[holder] = QuotaAccount(holder)
        return account


def _quota_unavailable() -> ServerUnavailable:
    return ServerUnavailable(
        "this caller has a quota, and the control plane, which counts it, cannot be reached",
        hint="retry when this node reaches the control plane; its log shows the error",
    )
