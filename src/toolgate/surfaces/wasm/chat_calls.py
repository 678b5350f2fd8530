"""`cchat_*`: chats of a guest with models, with the tools of its task and with functions of its own.

A request is made from what the session holds, and goes the way of any request at the chat door: the same
scope, the same loop, the same history. Whatever becomes of it is an answer that the guest can read.
"""

from functools import partial
from typing import Final

import msgspec

from toolgate.errors import ToolgateError
from toolgate.model.raw import encode_raw
from toolgate.surfaces.wasm.chat_sending import Answered, Sending, failed
from toolgate.surfaces.wasm.chat_session import (
    MAX_SESSION_BYTES,
    ChatEntry,
    ChatResponse,
    ChatSession,
    check_kept,
)
from toolgate.surfaces.wasm.context import TaskContext, TaskGuest
from toolgate.surfaces.wasm.guest_tools import GuestTool, call_guest_tool, parse_guest_tool
from toolgate.surfaces.wasm.session_params import MAX_PARAM_BYTES, SessionParams, parse_param
from toolgate.wasm.abi import SPEAR, HostFunction
from toolgate.wasm.faults import Errno, Fault
from toolgate.wasm.signatures import host_functions

SET_PARAM: Final = 1
GET_METRICS: Final = 2
ENABLE_METRICS: Final = 1
AUTO_TOOL_CALL: Final = 2
MAX_ROLE_BYTES: Final = 256
MAX_FUNCTION_BYTES: Final = 1_048_576


def cchat_create(guest: TaskGuest) -> int:
    return guest.fds.open(ChatSession())


def cchat_write_msg(guest: TaskGuest, fd: int, *buffers: int) -> int:
    """One more message. `buffers`: role and content, each with its length."""
    role_pointer, role_length, content_pointer, content_length = buffers
    session = guest.fds.get(fd, ChatSession)
    role = guest.read(role_pointer, role_length, most=MAX_ROLE_BYTES)
    content = guest.read(content_pointer, content_length, most=MAX_SESSION_BYTES)
    check_kept(guest.fds)
    message = {"role": role.decode(errors="replace"), "content": content.decode(errors="replace")}
    session.write_message(encode_raw(message))
    return 0


def cchat_write_fn(guest: TaskGuest, fd: int, index: int, pointer: int, length: int) -> int:
    """A function of the guest's table becomes a tool that models may call."""
    session = guest.fds.get(fd, ChatSession)
    data = guest.read(pointer, length, most=MAX_FUNCTION_BYTES)
    check_kept(guest.fds)
    session.write_tool(parse_guest_tool(data, index))
    return 0


def cchat_ctl(guest: TaskGuest, fd: int, command: int, argument: int, argument_length: int) -> int:
    """Set a parameter of a session, or tell what an answer has used."""
    entry = guest.fds.get(fd, ChatEntry)
    if command == SET_PARAM:
        data = guest.read(argument, guest.read_u32(argument_length), most=MAX_PARAM_BYTES)
        # An answer takes none, but what no session may say is refused here, too.
        params = entry.params if isinstance(entry, ChatSession) else SessionParams()
        check_kept(guest.fds)
        params.set(guest, *parse_param(data))
        return 0
    if command != GET_METRICS:
        raise Fault(Errno.EINVAL)
    usage = guest.fds.get(fd, ChatResponse).usage
    return guest.put_out(argument, argument_length, msgspec.json.encode(usage))


def cchat_send(guest: TaskGuest, fd: int, flags: int) -> int:
    """Ask the model, and run what it calls; a descriptor of the answer, be it that of a failure.

    That is opened first: an answer that was paid for has its place.
    """
    session = guest.fds.get(fd, ChatSession)
    check_kept(guest.fds)
    response = ChatResponse()
    with session.sending():
        response_fd = guest.fds.open(response)
        try:
            answered = _send(guest, session, runs_tools=bool(flags & AUTO_TOOL_CALL))
        except BaseException:
            _drop(guest, response_fd, response)
            raise
    response.body = answered.body
    response.usage = answered.usage if flags & ENABLE_METRICS else {}
    return response_fd


def cchat_recv(guest: TaskGuest, fd: int, out: int, out_length: int) -> int:
    """An answer. It stays where it is."""
    response = guest.fds.get(fd, ChatResponse)
    guest.check_out(out, out_length)
    if response.body is None:
        raise Fault(Errno.EAGAIN)
    return guest.put_out(out, out_length, response.body)


def cchat_close(guest: TaskGuest, fd: int) -> int:
    guest.fds.close(fd, ChatEntry)
    return 0


def _send(guest: TaskGuest, session: ChatSession, *, runs_tools: bool) -> Answered:
    try:
        request = session.request()
    except ToolgateError as exc:
        return failed(exc)
    sending = Sending(guest.context, session, request, runs_tools=runs_tools)

    def call(tool: GuestTool, arguments: bytes, max_bytes: int) -> str:
        return call_guest_tool(guest, tool, session.arena, arguments, max_bytes=max_bytes)

    answered = guest.serve(partial(sending.run, call))
    if answered.history is not None:
        session.go_on_with(answered.history, of=request)
    return answered


def _drop(guest: TaskGuest, fd: int, response: ChatResponse) -> None:
    """Unless the guest has closed it itself meanwhile."""
    if guest.fds.entries().get(fd) is response:
        guest.fds.close(fd)


CHAT_FUNCTIONS: Final[tuple[HostFunction[TaskContext], ...]] = host_functions(
    SPEAR,
    {
        "cchat_create": cchat_create,
        "cchat_write_msg": cchat_write_msg,
        "cchat_write_fn": cchat_write_fn,
        "cchat_ctl": cchat_ctl,
        "cchat_send": cchat_send,
        "cchat_recv": cchat_recv,
        "cchat_close": cchat_close,
    },
)
