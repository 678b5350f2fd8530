"""How the calls of WASI fail: with numbers of WASI's own, which are results as they are."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from toolgate.wasm.faults import Errno


class WasiErrno(IntEnum):
    """Those of preview 1 that calls here fail with."""

    SUCCESS = 0
    TOOBIG = 1
    AGAIN = 6
    BADF = 8
    CANCELED = 11
    FAULT = 21
    INVAL = 28
    IO = 29
    NOSYS = 52
    NOTDIR = 54
    NOTSOCK = 57
    NOTSUP = 58
    SPIPE = 70


_OF: Final[Mapping[Errno, WasiErrno]] = {
    Errno.E2BIG: WasiErrno.TOOBIG,
    Errno.EAGAIN: WasiErrno.AGAIN,
    Errno.EBADF: WasiErrno.BADF,
    Errno.ECANCELED: WasiErrno.CANCELED,
    Errno.EFAULT: WasiErrno.FAULT,
    Errno.EINVAL: WasiErrno.INVAL,
}


def wasi_errno(errno: Errno) -> int:
    """What a call of WASI gives where one of ours would give this number."""
    return _OF.get(errno, WasiErrno.IO)
