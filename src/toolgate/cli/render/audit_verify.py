"""What `toolgate audit verify` found: each file, and each place where the log is not as it was written."""

from rich.console import RenderableType
from rich.text import Text

from toolgate.audit.log.verify import Break, FileReport, Verifier
from toolgate.cli.render.layout import BAD, DIM, OK, cell, facts, grid, sentence, stack


def render_verified(verifier: Verifier) -> RenderableType:
    """A table of the files, then what is wrong, then the newest seal."""
    table = grid("FILE", "LINES", "SEALS", "FIRST", "LAST", "STATE", flexible={"STATE"})
    broken = {one.file for one in verifier.breaks}
    for file in verifier.files:
        table.add_row(*_cells(file, is_broken=file.file in broken))
    breaks = facts(2)
    for one in verifier.breaks:
        breaks.add_row(cell(one.kind.replace("_", " "), BAD), cell(_place(one)))
    return stack(table, breaks if verifier.breaks else None, _sum(verifier))


def _cells(file: FileReport, *, is_broken: bool) -> list[Text]:
    said = [*file.notes]
    if file.unsealed:
        said.append(f"{file.unsealed} lines at its end are not sealed yet")
    if file.is_torn:
        said.append("its last line is torn")
    state = [cell("BROKEN", BAD) if is_broken else cell("ok", OK), *(cell(one, DIM) for one in said)]
    return [
        cell(file.file),
        cell(f"{file.lines:,}"),
        cell(f"{file.seals:,}"),
        cell(file.first_seq or ""),
        cell(file.last_seq or ""),
        Text("; ").join(state),
    ]


def _place(one: Break) -> str:
    lines, numbers = _range(one.first_line, one.last_line), _range(one.first_seq, one.last_seq)
    return f"{one.file}, line {lines}, number {numbers}: {one.what}"


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _sum(verifier: Verifier) -> Text:
    last = verifier.last_seal
    if last is None:
        return cell("No seal holds.", BAD if verifier.breaks else DIM)
    return sentence(
        f"The last seal vouches for all up to {last.upto}:\n",
        cell(last.sha256),
        Text("\nKeep it elsewhere: --seal then shows whether the log was written anew.", DIM),
    )
