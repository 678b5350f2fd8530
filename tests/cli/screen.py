"""What people see, whole, at 80 columns."""

import io

from rich.console import Console, RenderableType


def shown(rendered: RenderableType) -> list[str]:
    """As on a plain terminal of 80 columns, without the blanks at the ends of lines."""
    file = io.StringIO()
    console = Console(file=file, width=80, color_system=None, markup=False, emoji=False, highlight=False)
    console.print(rendered, crop=False)
    return [line.rstrip() for line in file.getvalue().splitlines()]
