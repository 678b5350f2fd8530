"""One credential's caller, bound to a URL or a session, with its newest view at hand."""

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from toolgate.errors import PolicyDenied, TooManyTools
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.gateway.scope.view import View
from toolgate.model.principals import Principal

DOOR: Final = "mcp"
"""What the audit calls this door."""


class Binding:
    """Saves looking a view up by its caller as long as the snapshot stays the same.

    Its caller never changes: two tokens of one subject have two bindings, so that a request which waits is
    still decided by the credential it came with.
    Only the gateway keeps views, and bounds them: here one is merely known while it is kept there.
    """

    __slots__ = ("_known", "_serial", "caller")

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self._serial = -1
        self._known: weakref.ref[View] | None = None

    def for_principal(self, principal: Principal) -> "Binding":
        """What the same URL or session is for `principal`."""
        bound = self.caller.principal
        if bound is principal or bound == principal:
            return self
        return Binding(replace(self.caller, principal=principal))

    def view(self, gateway: Gateway) -> View:
        """The view of the current snapshot; raises what the scope refuses with."""
        view = self._current(gateway)
        if view is None or view.caller.mode != self.caller.mode:  # kept for calls alone
            view = self._look_up(gateway, gateway.view)
        return view

    def calling_view(self, gateway: Gateway) -> View:
        """As `view`, for a call: where a scope is refused for its size, its tools can still be called."""
        known = self._known  # as in `_current`, without the call: every call of a tool comes by here
        view = None if known is None or self._serial != gateway.snapshot.serial else known()
        return self._look_up(gateway, gateway.calling_view) if view is None else view

    def opening_view(self, gateway: Gateway) -> tuple[View, str]:
        """The view a client is greeted with, and the instructions it gets.

        A scope that is refused for its size refuses its lists: of a refused greeting, clients show no text.
        """
        try:
            view = self.view(gateway)
        except TooManyTools as exc:
            return self.calling_view(gateway), f"{exc}: {exc.hint}"
        return view, view.instructions

    def _current(self, gateway: Gateway) -> View | None:
        known = self._known
        return None if known is None or self._serial != gateway.snapshot.serial else known()

    def _look_up(self, gateway: Gateway, look: Callable[[Caller], View]) -> View:
        """A caller that asks for more than it may have is audited."""
        serial = gateway.snapshot.serial
        try:
            view = look(self.caller)
        except PolicyDenied as exc:
            task_id = self.caller.effective_task_id
            gateway.record_refused(self.caller.principal, exc, trace=Trace(DOOR), task_id=task_id)
            raise
        self._known = weakref.ref(view)
        self._serial = serial
        return view
