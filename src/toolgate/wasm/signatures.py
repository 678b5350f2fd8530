"""The type of every function that a guest may import. Modules are checked by it before they ever run.

In a type, `i` is an i32 and `I` an i64; the parameters come before the `>`, the result after it. The
functions take their types from here.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from toolgate.wasm.abi import SPEAR, WASI, Errno, HostFunction, negate_errno

Signature = tuple[str, str]
"""The types of the parameters, and that of the result; empty without one."""

_SPEAR_TYPES: Final = {
    "time_now_ms": ">I",
    "wall_time_s": ">I",
    "sleep_ms": "i>",
    "random_i64": ">I",
    "log": "iii>i",
    "cchat_create": ">i",
    "cchat_write_msg": "iiiii>i",
    "cchat_write_fn": "iiii>i",
    "cchat_ctl": "iiii>i",
    "cchat_send": "ii>i",
    "cchat_recv": "iii>i",
    "cchat_close": "i>i",
    "mcp_open": "ii>i",
    "mcp_list_tools": "iii>i",
    "mcp_call_tool": "iiiiiii>i",
    "mcp_close": "i>i",
    "mcp_registry_list": "ii>i",
    "mcp_registry_get": "iiii>i",
    "spear_epoll_create": ">i",
    "spear_epoll_ctl": "iiii>i",
    "spear_epoll_wait": "iiii>i",
    "spear_epoll_close": "i>i",
    "spear_fd_ctl": "iiii>i",
}

_WASI_TYPES: Final = {
    "args_get": "ii>i",
    "args_sizes_get": "ii>i",
    "environ_get": "ii>i",
    "environ_sizes_get": "ii>i",
    "clock_res_get": "ii>i",
    "clock_time_get": "iIi>i",
    "fd_advise": "iIIi>i",
    "fd_allocate": "iII>i",
    "fd_close": "i>i",
    "fd_datasync": "i>i",
    "fd_fdstat_get": "ii>i",
    "fd_fdstat_set_flags": "ii>i",
    "fd_fdstat_set_rights": "iII>i",
    "fd_filestat_get": "ii>i",
    "fd_filestat_set_size": "iI>i",
    "fd_filestat_set_times": "iIIi>i",
    "fd_pread": "iiiIi>i",
    "fd_prestat_get": "ii>i",
    "fd_prestat_dir_name": "iii>i",
    "fd_pwrite": "iiiIi>i",
    "fd_read": "iiii>i",
    "fd_readdir": "iiiIi>i",
    "fd_renumber": "ii>i",
    "fd_seek": "iIii>i",
    "fd_sync": "i>i",
    "fd_tell": "ii>i",
    "fd_write": "iiii>i",
    "path_create_directory": "iii>i",
    "path_filestat_get": "iiiii>i",
    "path_filestat_set_times": "iiiiIIi>i",
    "path_link": "iiiiiii>i",
    "path_open": "iiiiiIIii>i",
    "path_readlink": "iiiiii>i",
    "path_remove_directory": "iii>i",
    "path_rename": "iiiiii>i",
    "path_symlink": "iiiii>i",
    "path_unlink_file": "iii>i",
    "poll_oneoff": "iiii>i",
    "proc_exit": "i>",
    "proc_raise": "i>i",
    "random_get": "ii>i",
    "sched_yield": ">i",
    "sock_accept": "iii>i",
    "sock_recv": "iiiiii>i",
    "sock_send": "iiiii>i",
    "sock_shutdown": "ii>i",
}


ABI_SIGNATURES: Final[Mapping[tuple[str, str], Signature]] = {
    (module, name): (params, result)
    for module, types in ((SPEAR, _SPEAR_TYPES), (WASI, _WASI_TYPES))
    for name, kind in types.items()
    for params, _, result in [kind.partition(">")]
}


def host_functions(
    module: str,
    calls: Mapping[str, Callable[..., int | None]],
    *,
    failure: Callable[[Errno], int] = negate_errno,
) -> tuple[HostFunction[Any], ...]:
    """Make the host functions of `module` from their calls; see `HostFunction`."""
    return tuple(
        HostFunction(module, name, *ABI_SIGNATURES[module, name], call, failure)
        for name, call in calls.items()
    )
