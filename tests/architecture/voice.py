"""Finds the words that VOICE forbids, in docstrings, comments, string literals, identifiers and class names.

`python -m tests.architecture.voice [--advice] [--count] [PATH …]` prints one finding a line, for all of `src`
and `tests` unless paths are given. The words are in `voice.toml`. Code is read as tokens and trees, so
`x is None` is never a finding.
"""

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.architecture.source_tree import ROOT, Module, modules

# The word list names what it forbids.
EXEMPT = frozenset({f"tests/architecture/{name}.py" for name in ("voice", "voice_texts", "test_voice")})
_PROSE_TOKENS = frozenset({tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)})
_NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


class Finding(NamedTuple):
    """One word in one line."""

    file: str
    line: int
    word: str
    advice: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.word} → {self.advice}"


class _Words(NamedTuple):
    prose: tuple[tuple[re.Pattern[str], str], ...]
    documents: tuple[tuple[re.Pattern[str], str], ...]
    names: Mapping[str, str]
    exact: frozenset[str]
    nouns: frozenset[str]
    odd_classes: frozenset[str]
    published: str


@cache
def load_words(*, with_advice: bool = False) -> _Words:
    """The lists of `voice.toml`."""
    lists = tomllib.loads(Path(__file__).with_name("voice.toml").read_text("utf-8"))
    prose = {**lists["prose"], **(lists["advice"] if with_advice else {})}
    return _Words(
        prose=_compile(prose),
        documents=_compile(lists["documents"]),
        names=lists["names"],
        exact=frozenset(lists["exact"]["names"]),
        nouns=frozenset(lists["classes"]["nouns"]),
        odd_classes=frozenset((*lists["classes"]["participles"], *lists["classes"]["pronouns"])),
        published=lists["classes"]["published"],
    )


def _compile(phrases: Mapping[str, str]) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(rf"\b{pattern}\b"), advice) for pattern, advice in phrases.items())


def find_words(module: Module, *, with_advice: bool = False) -> Iterator[Finding]:
    """The forbidden words of one file, by line."""
    words = load_words(with_advice=with_advice)
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type in _PROSE_TOKENS:
            yield from _find_in_prose(module.name, token, words)
        elif token.type == tokenize.NAME and token.string not in words.exact:
            for part in split_name(token.string):
                if part in words.names:
                    yield Finding(module.name, token.start[0], token.string, words.names[part])


def _find_in_prose(file: str, token: tokenize.TokenInfo, words: _Words) -> Iterator[Finding]:
    # A phrase may run over the end of a line: line breaks and the indentation after them count as one blank.
    text, starts = _join_lines(token.string)
    for pattern, advice in words.prose:
        for found in pattern.finditer(text):
            line = token.start[0] + sum(start <= found.start() for start in starts)
            yield Finding(file, line, f'"{found[0]}"', advice)


def _join_lines(text: str) -> tuple[str, list[int]]:
    joined, starts = "", []
    for number, line in enumerate(text.split("\n")):
        if number:
            joined += " "
            starts.append(len(joined))
        joined += line.strip() if number else line.rstrip()
    return joined, starts


def split_name(name: str) -> list[str]:
    """The words of an identifier, in lower case."""
    return [part.lower() for part in _NAME_PART.findall(name)]


def find_classes(sources: Iterable[Module]) -> Iterator[Finding]:
    """Classes of `src` that are named like something that happens, and public ones that share a name."""
    words = load_words()
    places: defaultdict[str, list[Finding]] = defaultdict(list)
    classes = [(module.name, node) for module in sources for node in _classes_of(module)]
    bases = {node.name: {ast.unparse(base) for base in node.bases} for _, node in classes}
    for file, node in classes:
        here = Finding(
            file, node.lineno, f"class {node.name}", "another class has this name: add the owner's word"
        )
        if not node.name.startswith("_"):
            places[node.name].append(here)
        is_exempt = file.startswith(words.published) or _is_event(node) or is_error(node.name, bases)
        if is_verb_form(node.name, words) and not is_exempt:
            yield here._replace(advice="name the thing or the agent, not what happens")
    yield from (one for several in places.values() if len(several) > 1 for one in several)


def _classes_of(module: Module) -> Iterator[ast.ClassDef]:
    # Messages generated from the definitions of the protocol are not ours to name.
    if "_pb2" not in module.name and "package_template" not in module.name:
        yield from (node for node in module.tree.body if isinstance(node, ast.ClassDef))


def is_verb_form(name: str, words: _Words) -> bool:
    """Whether a class name ends as a gerund or a participle does, or is a pronoun."""
    parts = re.findall(r"[A-Z][a-z0-9]*", name)
    last = parts[-1] if parts else ""
    if last in words.nouns:
        return False
    return last in words.odd_classes or re.search(r"[a-z]{2}(?:ing|ed)$", last) is not None


def _is_event(node: ast.ClassDef) -> bool:
    """What happened is told in the past tense: `CallRecorded`. Events have a tag."""
    return any(keyword.arg == "tag" for keyword in node.keywords)


def is_error(name: str, bases: Mapping[str, set[str]]) -> bool:
    """Errors are named for what happened. Their bases may be in other files."""
    known = bases.get(name, set())
    return any(
        base in {"ToolgateError", "Exception", "BaseException"}
        or base.endswith(("Error", "Exception"))
        or (base != name and is_error(base, bases))
        for base in known
    )


def find_all(*, with_advice: bool = False) -> list[Finding]:
    """Every finding in the product and its tests."""
    checked = [
        module
        for module in modules("src", "tests")
        if module.name not in EXEMPT and "_pb2" not in module.name
    ]
    found = [one for module in checked for one in find_words(module, with_advice=with_advice)]
    return sorted([*found, *find_classes(modules("src"))])


def main(arguments: list[str]) -> None:
    """Print the findings below the given paths, or how many each file has."""
    options = {one for one in arguments if one.startswith("--")}
    paths = [(Path(one).resolve().relative_to(ROOT)) for one in arguments if one not in options]
    found = [
        one
        for one in find_all(with_advice="--advice" in options)
        if not paths or any(Path(one.file).is_relative_to(path) for path in paths)
    ]
    if "--count" in options:
        lines: Iterable[str] = (
            f"{many:5} {file}" for file, many in Counter(one.file for one in found).most_common()
        )
    else:
        lines = map(str, found)
    sys.stdout.write("".join(f"{line}\n" for line in (*lines, f"{len(found)} findings")))


if __name__ == "__main__":
    main(sys.argv[1:])
