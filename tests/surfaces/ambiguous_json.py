"""JSON that readers disagree about: bodies with disguised second members, and readers of every habit."""

import json
import random
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

Json = dict[str, Any]
Path = tuple[str, ...]


class Pairs(list[tuple[str, Any]]):
    """An object as it is written: names as JSON texts, one of which may occur twice."""


def pairs_of(value: Any) -> Any:
    """A JSON value whose objects can be written in any way."""
    if isinstance(value, dict):
        return Pairs((json.dumps(name), pairs_of(one)) for name, one in value.items())
    return [pairs_of(one) for one in value] if isinstance(value, list) else value


def render(value: Any) -> str:
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{name}:{render(one)}" for name, one in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(render, value)) + "]"
    return json.dumps(value)


def disguised(name: str, chance: random.Random) -> str:
    """`name` as a JSON text that some reader takes for `name`."""
    at = chance.randrange(len(name) + 1)
    alike = {"s": "\u017f", "k": "\u212a", "i": "\u0131"}
    disguises: Sequence[Callable[[], str]] = (
        lambda: json.dumps(name),
        lambda: "".join(f"\\u{ord(one):04x}" for one in name).join('""'),
        lambda: json.dumps(name.upper()),
        lambda: json.dumps(name.title()),
        lambda: json.dumps("".join(chance.choice((one.upper(), one.lower())) for one in name)),
        lambda: json.dumps(
            name[:at] + chance.choice("\0\x01\t\x7f\u200b\u00ad\ufeff\ufe0f\u2060") + name[at:]
        ),
        lambda: json.dumps(f"{name}\0x"),
        lambda: json.dumps(chance.choice((f" {name}", f"{name} ", f"{name}\u00a0"))),
        lambda: json.dumps("".join(chr(ord(one) + 0xFEE0) if "!" <= one <= "~" else one for one in name)),
        lambda: json.dumps("".join(alike.get(one, one) for one in name), ensure_ascii=False),
    )
    return chance.choice(disguises)()


def spoiled(body: Any, evil: Mapping[Path, Any], chance: random.Random) -> str:
    """`body` with up to three second members; `evil` is what each would have a reader do, by its place."""
    written = pairs_of(body)
    for path in chance.sample(sorted(evil), min(len(evil), chance.choice((0, 1, 1, 1, 2, 3)))):
        *above, name = path
        target = _at(written, above)
        if target is not None:
            second = (disguised(name, chance), pairs_of(evil[path]))
            target.insert(chance.randrange(len(target) + 1), second)
    if chance.random() < 0.2:
        chance.shuffle(written)
    return render(written)


def _at(written: Any, path: Sequence[str]) -> Pairs | None:
    for name in path:
        found = [one for key, one in written if json.loads(key) == name] if isinstance(written, Pairs) else []
        written = found[0] if found else None
    return written if isinstance(written, Pairs) else None


def _folded(name: str) -> str:
    plain = unicodedata.normalize("NFKC", name).partition("\0")[0] or name
    kept = "".join(one for one in plain if unicodedata.category(one)[0] != "C" and one != "\ufe0f")
    return unicodedata.normalize("NFKC", kept.strip().upper().casefold())


def _reader(*, first: bool, fold: Callable[[str], str]) -> Callable[[bytes], Json]:
    def members(pairs: list[tuple[str, Any]]) -> Json:
        read: Json = {}
        for name, value in pairs:
            if not (first and fold(name) in read):
                read[fold(name)] = value
        return read

    return lambda raw: dict(json.loads(raw, object_pairs_hook=members))


READERS: Final[Mapping[str, Callable[[bytes], Json]]] = {
    "last wins": _reader(first=False, fold=str),
    "first wins": _reader(first=True, fold=str),
    "any case, last wins": _reader(first=False, fold=_folded),
    "any case, first wins": _reader(first=True, fold=_folded),
}


def readings(raw: Mapping[str, msgspec.Raw] | bytes) -> list[Json]:
    """What each of the readers has of one object."""
    data = raw if isinstance(raw, bytes) else msgspec.json.encode(raw)
    return [read(data) for read in READERS.values()]
