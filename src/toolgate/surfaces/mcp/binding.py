"""A caller bound to a URL or a session, with its newest view at hand."""

import weakref
from dataclasses import replace
from typing import Final

from toolgate.errors import PolicyDenied
from toolgate.gateway.caller import Caller, Trace
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.view import View
from toolgate.model.principals import Principal

DOOR: Final = "mcp"
"""What the audit calls this door."""


class Binding:
    """Saves looking a view up by its caller as long as the snapshot stays the same.

    Only the gateway keeps views, and bounds them: here one is merely known while it is kept there.
    """

    __slots__ = ("_known", "_serial", "caller")

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self._serial = -1
        self._known: weakref.ref[View] | None = None

    def keep_principal(self, principal: Principal) -> None:
        """Follow a key whose rights changed since the caller was bound."""
        if self.caller.principal is not principal and self.caller.principal != principal:
            self.caller = replace(self.caller, principal=principal)
            self._serial = -1

    def view(self, gateway: Gateway) -> View:
        """The view of the current snapshot; raises what the scope refuses with."""
        serial = gateway.snapshot.serial
        view = None if self._known is None or self._serial != serial else self._known()
        if view is None:
            view = self._look_up(gateway)
            self._known = weakref.ref(view)
            self._serial = serial
        return view

    def _look_up(self, gateway: Gateway) -> View:
        """Whoever asks for more than it may have is on record."""
        try:
            return gateway.view(self.caller)
        except PolicyDenied as exc:
            task_id = self.caller.effective_task_id
            gateway.record_refused(self.caller.principal, exc, trace=Trace(DOOR), task_id=task_id)
            raise
