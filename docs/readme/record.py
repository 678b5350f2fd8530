"""Runs the demo as a reader would, and makes the pictures, sessions and figures of README.md: `make readme`.

The demo must find its default address free, because the pictures show what it prints there.
"""

import os
import pty
import select
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fcntl import ioctl
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import httpx2
from playwright.sync_api import ViewportSize
from tests.console.browser import chromium_running, tab_on

from .film import Frame, draw_film
from .layers import Layer, draw_layers
from .terminal import COLUMNS, PLAIN, Run, Screen, Terminal
from .text import Figures, load_peers, rewrite_figures, rewrite_sessions

ROOT: Final = Path(__file__).parents[2]
HERE: Final = Path(__file__).parent
README: Final = ROOT / "README.md"
DEMO: Final = ROOT / "build" / "readme"
INSTALLED: Final = "demo-venv"
"""What is kept in `DEMO`, so that only the first run installs the demo's servers."""
URL: Final = "http://127.0.0.1:8080"

UP: Final = "toolgate up --demo"
READY: Final = "Ctrl-C stops the gateway and all its servers."
TASK: Final = "review"
KEY: Final = "editor"
KEY_SERVERS: Final = ("git", "notes", "time")
TOOLS: Final = "git.git_log,git.git_diff*"
"""What the request asks for in the pictures of the layers."""
TYPED: Final = (
    f"toolgate tools --task {TASK}",
    f"toolgate explain git.git_commit --task {TASK}",
    f"toolgate call git.git_commit repo_path=. message=oops --task {TASK}",
    "toolgate audit --outcome denied --limit 1",
)
"""The commands in the second terminal, while the demo runs in the first."""

ROWS: Final = 27
"""As many as the demo prints once it serves, and one for the cursor."""
KEYSTROKE_S: Final = 0.04
"""For two characters. Typing at a person's speed would take half of the recording."""
LONGEST_WAIT_S: Final = 0.4
"""A longer pause in the output is cut to this: there is nothing to read in it."""
FIRST_HOLD_S: Final = 3.2
"""For how long the demo's own output stays: it has the most to read."""
HOLD_S: Final = 2.1
START_WITHIN_S: Final = 300.0
"""The first start installs three packages."""
STOP_WITHIN_S: Final = 60.0
"""The gateway waits up to 10 s for calls in flight. The rest is for a busy machine."""
MAX_FILM_BYTES: Final = 200_000
"""More is slow to load with a README, and sites that mirror repositories refuse large pictures."""
WINDOW: Final[ViewportSize] = {"width": 1080, "height": 1000}
"""The narrowest in which the console shows its navigation and the lens without wrapping."""
MARGIN: Final = 20
"""Below the lens, in pixels: as much as on its right."""


class Output(NamedTuple):
    """A piece of output, and when it came after the command was entered."""

    at_s: float
    text: str


class RunningCommand:
    """A command in a terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._started = time.monotonic()

    def read(self, until: str | None = None) -> list[Output]:
        """What it prints until `until`, or until it ends."""
        found: list[Output] = []
        text = b""
        while until is None or until.encode() not in text:
            if not select.select([self._descriptor], [], [], START_WITHIN_S)[0]:
                raise TimeoutError(f"no output within {START_WITHIN_S:g} s after:\n{text.decode()}")
            piece = b""
            with suppress(OSError):  # Linux reports so that no process has the terminal open
                piece = os.read(self._descriptor, 65536)
            if not piece:
                if until is not None:
                    raise RuntimeError(f"ended before `{until}`:\n{text.decode()}")
                break
            text += piece
            found.append(Output(time.monotonic() - self._started, piece.decode()))
        return found


@contextmanager
def in_terminal(command: str, environment: Mapping[str, str]) -> Iterator[RunningCommand]:
    """The command, in a terminal of the size that is drawn. It is terminated when the block ends."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    with subprocess.Popen(  # noqa: S603 - our own program, no shell
        shlex.split(command),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        try:
            yield RunningCommand(ours)
        finally:
            process.terminate()
            process.wait(STOP_WITHIN_S)
            os.close(ours)


class Camera:
    """Takes frames of a terminal, one after another."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.now_s = 0.0

    def film(self, command: str, outputs: list[Output], hold_s: float, terminal: Terminal) -> None:
        """The command as it is typed, its output, and a pause to read it."""
        terminal.feed("\x1b[32m$\x1b[0m ")
        self._take(terminal.screen(), cursor=2)
        for at in range(0, len(command), 2):
            self.now_s += KEYSTROKE_S
            terminal.feed(command[at : at + 2])
            self._take(terminal.screen(), cursor=2 + len(command[: at + 2]))
        terminal.feed("\r\n")
        before_s = 0.0
        for output in outputs:
            self.now_s += min(output.at_s - before_s, LONGEST_WAIT_S)
            before_s = output.at_s
            terminal.feed(output.text)
            self._take(terminal.screen())
        self.now_s += hold_s

    def _take(self, screen: Screen, cursor: int | None = None) -> None:
        if cursor is not None:
            screen = (*screen[:-1], (*screen[-1], Run(cursor, "█", PLAIN)))
        self.frames.append(Frame(self.now_s, screen))


def film_commands(environment: Mapping[str, str], demo: list[Output]) -> str:
    """The recording: the start of the demo, then each command in a second terminal."""
    camera = Camera()
    camera.film(UP, demo, FIRST_HOLD_S, Terminal(ROWS))
    second = Terminal(ROWS)
    for command in TYPED:
        with in_terminal(command, environment) as running:
            outputs = running.read()
        camera.film(command, outputs, HOLD_S, second)
        second.feed("\r\n")
    title = f"Terminal: {', '.join([UP, *TYPED])}"
    film = draw_film(camera.frames, rows=ROWS, length_s=round(camera.now_s, 1), title=title)
    if len(film.encode()) > MAX_FILM_BYTES:
        raise ValueError(f"the recording has {len(film.encode()):,} bytes, more than {MAX_FILM_BYTES:,}")
    return film


def fetch(url: str, path: str, **query: str) -> Any:
    """What the REST API of the gateway at `url` responds."""
    return httpx2.get(url + path, params=query).raise_for_status().json()


def measure_layers(url: str) -> list[Layer]:
    """How many tools each layer of the picture lets through, for a key that is made for it."""
    key = {"key_id": KEY, "role": "agent", "ceiling": {"servers": list(KEY_SERVERS)}}
    httpx2.post(f"{url}/admin/api/keys", json=key).raise_for_status()
    tools = fetch(url, "/api/v1/mcp/explain", task=TASK, key=KEY, tools=TOOLS)["tools"]
    notes = {
        "platform": ("Platform", "allowed_tools of each server"),
        "key": ("Key", f"ceiling: {', '.join(KEY_SERVERS)}"),
        "task": ("Task", f"{TASK}: reads code, changes nothing"),
        "request": ("Request", f"?tools={TOOLS}"),
    }
    layers: list[Layer] = []
    left = len(tools)
    for layer, (name, note) in notes.items():
        hidden = sum(not tool["allowed"] and tool["layer"] == layer for tool in tools)
        layers.append(Layer(name, note, left, left - hidden))
        left -= hidden
    if left != sum(tool["allowed"] for tool in tools):
        raise ValueError(f"other layers than {', '.join(notes)} hide tools")
    return layers


def measure(url: str) -> Figures:
    """Everything that the text states in numbers."""
    return Figures(fetch(url, "/api/v1/mcp/scope", task=TASK), load_peers(), measure_layers(url))


def photograph_lens() -> None:
    """The scope lens of the console for the same key, task and request, in light and dark."""
    query = urlencode({"task": TASK, "key": KEY, "tools": TOOLS})
    with chromium_running() as browser:
        for scheme in ("light", "dark"):
            with tab_on(browser, URL, viewport=WINDOW, color_scheme=scheme, reduced_motion="reduce") as tab:
                tab.goto(f"/console/scope?{query}")
                tab.get_by_role("main").get_by_text("git_diff_staged").first.wait_for()
                lens = tab.get_by_role("list", name="Scope by layer").bounding_box()
                assert lens is not None  # it is shown
                end = lens["y"] + lens["height"] + MARGIN
                tab.screenshot(
                    animations="disabled",
                    path=HERE / f"lens-{scheme}.png",
                    clip={"x": 0, "y": 0, "width": WINDOW["width"], "height": end},
                )


def run_plainly(command: str, environment: Mapping[str, str]) -> str:
    """What a command prints if its output is not a terminal: the tests of the documents run it so."""
    done = subprocess.run(  # noqa: S603 - our own program, no shell
        shlex.split(command), cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    lines = (done.stdout + done.stderr).splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def forget_earlier_run() -> None:
    """Remove records and logs. The installed servers stay."""
    for path in DEMO.glob("*"):
        if path.name != INSTALLED:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def record(environment: Mapping[str, str]) -> None:
    """Everything, with the demo running."""
    up = f"{UP} --data {shlex.quote(str(DEMO))}"
    with in_terminal(up, environment) as demo:
        demo.read(READY)  # the first start installs what the demo needs, which is not shown
    forget_earlier_run()
    with in_terminal(up, environment) as demo:
        (HERE / "session.svg").write_text(film_commands(environment, demo.read(READY)), "utf-8")
        figures = measure(URL)
        (HERE / "layers.svg").write_text(draw_layers(figures.layers), "utf-8")
        photograph_lens()
        text = rewrite_sessions(README.read_text("utf-8"), lambda typed: run_plainly(typed, environment))
        README.write_text(rewrite_figures(text, figures), "utf-8")


def main() -> None:
    """Record with nothing of the user's own: another home, another configuration."""
    with tempfile.TemporaryDirectory() as home:
        record(
            {
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "HOME": home,
                "TERM": "xterm",
                "LANG": "C.UTF-8",
                "COLUMNS": str(COLUMNS),
            }
        )


if __name__ == "__main__":
    main()
