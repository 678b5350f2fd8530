"""How a call of a guest fails: the numbers, and what is raised within functions of ours on the way to one."""

from enum import IntEnum


class Errno(IntEnum):
    """Linux's numbers; a call returns one negated."""

    EPERM = 1
    ENOENT = 2
    EIO = 5
    E2BIG = 7
    EBADF = 9
    EAGAIN = 11
    ENOMEM = 12
    EACCES = 13
    EFAULT = 14
    EINVAL = 22
    EMFILE = 24
    ENOSPC = 28
    EPIPE = 32
    ENOSYS = 38
    ENOTSUP = 95
    ECONNRESET = 104
    ENOTCONN = 107
    ETIMEDOUT = 110
    ECANCELED = 125


class Fault(Exception):
    """The call fails with this number. Raised within functions of ours only; the trampoline takes it."""

    def __init__(self, errno: Errno) -> None:
        super().__init__(errno.name)
        self.errno = errno


class Stopped(Exception):
    """The run is to end: unwinds what a call is at. The trampoline takes it; the guest runs no further."""
