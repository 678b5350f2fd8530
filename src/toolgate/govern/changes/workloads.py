"""The modules that tasks name: whether they are there, and which tasks name them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from toolgate.errors import InvalidRecord
from toolgate.govern.changes.pending import RecordEdit
from toolgate.govern.control import Control
from toolgate.model.revisions import Body, StoredRecord
from toolgate.model.tasks import Task


async def list_needed_modules(control: Control, edits: Iterable[RecordEdit]) -> Collection[str]:
    """The hashes of those that are there. Nobody is asked where `edits` name no other than before."""
    if not any(_new_module(edit) for edit in edits):
        return ()
    return {one.sha256 for one in await control.modules.list()}


def check_module_exists(edit: RecordEdit, kept: Collection[str]) -> None:
    """Raises InvalidRecord where a task is to run a module that is not there."""
    module = _new_module(edit)
    if module is not None and module not in kept:
        raise InvalidRecord(
            f"`workload.module`: there is no module `{module}` here",
            hint="`toolgate modules upload FILE` uploads it; `toolgate tasks apply` uploads what it names",
        )


def warn_of_missing_modules(edits: Iterable[RecordEdit], kept: Collection[str]) -> list[str]:
    """Which modules must come before the change can be made."""
    return [
        f"task `{edit.change.id}`, `workload.module`: `{module}` is not uploaded yet"
        for edit in edits
        if (module := _new_module(edit)) is not None and module not in kept
    ]


def find_module_users(tasks: Sequence[StoredRecord]) -> Mapping[str, list[str]]:
    """The tasks that name a module, by its hash."""
    users: dict[str, list[str]] = defaultdict(list)
    for stored in tasks:
        if (module := _stored_module(stored.body)) is not None:
            users[module].append(stored.id)
    return users


def _new_module(edit: RecordEdit) -> str | None:
    """The module of a task, unless it has it already."""
    if not isinstance(edit.record, Task) or edit.record.workload is None:
        return None
    module = edit.record.workload.module
    return None if module == _stored_module(edit.body_before or {}) else module


def _stored_module(body: Body) -> str | None:
    # Whatever another version of the program has stored there.
    workload = body.get("workload")
    module = workload.get("module") if isinstance(workload, Mapping) else None
    return module if isinstance(module, str) else None
