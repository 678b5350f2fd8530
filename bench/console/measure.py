"""How soon each page of the console can be used in a large house: 500 servers, 10,000 tools, 100,000 events.

    .venv/bin/python bench/console/measure.py [--turns 3]

A real gateway and a real browser on this machine, each page opened anew in a tab of its own; the median of the turns.
Usable: its first content is there. Typing: what a filter or a search brings is there.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT))

from playwright.sync_api import Browser  # noqa: E402
from tests.console.browser import chromium_running, tab_on  # noqa: E402
from tests.console.scale import PLACES, Place, large_world, open_place, type_into  # noqa: E402
from tests.scenarios.gateway import Gateway  # noqa: E402


def measure(browser: Browser, gateway: Gateway, place: Place) -> tuple[float, float | None]:
    """Milliseconds until the page can be used, and from then until it has answered to typing."""
    with tab_on(browser, gateway.url) as tab:
        begin = time.perf_counter()
        open_place(tab, place)
        usable = time.perf_counter()
        if not place.field:
            return (usable - begin) * 1000, None
        type_into(tab, place)
        return (usable - begin) * 1000, (time.perf_counter() - usable) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    turns = parser.parse_args().turns
    with tempfile.TemporaryDirectory() as root, large_world(Path(root) / "house") as gateway, chromium_running() as browser:
        print("| page | usable, ms | typing, ms |\n| --- | --- | --- |")
        for name, place in PLACES.items():
            taken = [measure(browser, gateway, place) for _ in range(turns)]
            typing = [second for _, second in taken if second is not None]
            shown = f"{statistics.median(typing):.0f}" if typing else ""
            print(f"| {name} | {statistics.median(first for first, _ in taken):.0f} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
