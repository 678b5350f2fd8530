"""The modules that tasks name: whether they are there, and which tasks name them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from toolgate.errors import InvalidRecord, NotFound
from toolgate.govern.changes.pending import Edit
from toolgate.govern.control import Control
from toolgate.model.revisions import Body, Stored
from toolgate.model.tasks import Task
from toolgate.packages.modules import Modules


def modules_of(control: Control) -> Modules:
    """Where modules are kept. Raises NotFound on a process without."""
    if control.modules is None:
        raise NotFound("this process keeps no modules", hint="set its `data_dir` or `artifacts`")
    return control.modules


async def kept_modules(control: Control, edits: Iterable[Edit]) -> Collection[str]:
    """The hashes of those that are there. Nobody is asked where `edits` name no other than before."""
    if control.modules is None or not any(_named_anew(edit) for edit in edits):
        return ()
    return {one.sha256 for one in await control.modules.list()}


def check_module_kept(edit: Edit, kept: Collection[str]) -> None:
    """Raises InvalidRecord where a task is to run a module that is not there."""
    module = _named_anew(edit)
    if module is not None and module not in kept:
        raise InvalidRecord(
            f"`workload.module`: there is no module `{module}` here",
            hint="`toolgate modules upload FILE` uploads it; `toolgate tasks apply` uploads what it names",
        )


def warn_of_modules(edits: Iterable[Edit], kept: Collection[str]) -> list[str]:
    """Which modules must come before the change can be made."""
    return [
        f"task `{edit.draft.id}`, `workload.module`: `{module}` is not uploaded yet"
        for edit in edits
        if (module := _named_anew(edit)) is not None and module not in kept
    ]


def users_of_modules(tasks: Sequence[Stored]) -> Mapping[str, list[str]]:
    """The tasks that name a module, by its hash."""
    users: dict[str, list[str]] = defaultdict(list)
    for stored in tasks:
        if (module := _module_in(stored.body)) is not None:
            users[module].append(stored.id)
    return users


def _named_anew(edit: Edit) -> str | None:
    """The module of a task, unless it has it already."""
    if not isinstance(edit.record, Task) or edit.record.workload is None:
        return None
    module = edit.record.workload.module
    return None if module == _module_in(edit.body_before or {}) else module


def _module_in(body: Body) -> str | None:
    # Whatever another version of the program has stored there.
    workload = body.get("workload")
    module = workload.get("module") if isinstance(workload, Mapping) else None
    return module if isinstance(module, str) else None
