"""The one way from a guest into a function of ours. Nothing is ever raised through it.

The bindings keep what a callback raises in one place for the whole process, and raise it in whichever thread
next comes out of a guest: one guest would end by another's failure. So all that is raised ends here.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

from wasmtime import Caller

from toolgate.errors import ToolgateError
from toolgate.wasm.abi import HostFunction
from toolgate.wasm.faults import Errno, Fault, Stopped
from toolgate.wasm.guest import RunningGuest

log = logging.getLogger(__name__)

INTERNAL: Final = "a call of it failed within the host: this is a bug in Toolgate, its log says more"


def make_callback(
    function: HostFunction[Any], current: Callable[[], RunningGuest[Any]], count_fault: Callable[[], None]
) -> Callable[..., int | None]:
    """What wasmtime calls for `function`; `current` is the guest that calls."""
    call, has_result = function.call, bool(function.result)
    failures = {errno: function.failure(errno) for errno in Errno} if has_result else {}

    def callback(caller: Caller, *args: int) -> int | None:
        guest = current()
        with guest.gate:
            try:
                guest.enter(caller)
                result = call(guest, *args)
                return _checked(result) if has_result else None
            except Fault as fault:
                errno = fault.errno
            except ToolgateError as exc:
                errno = errno_of(exc)
            except Stopped:
                guest.halt(INTERNAL)  # unless something else has ended it, as it should
                errno = Errno.ECANCELED
            except BaseException:
                log.exception("the call `%s.%s` of a guest failed", function.module, function.name)
                count_fault()
                guest.halt(INTERNAL)
                errno = Errno.EIO
            return failures.get(errno)

    return callback


def errno_of(error: ToolgateError) -> Errno:
    """As the table of wires has it."""
    return Errno.__members__.get(error.wire.errno, Errno.EIO)


def _checked(result: object) -> int:
    if not isinstance(result, int):
        raise TypeError(f"a call is to give a number, not `{result!r}`")
    return result
