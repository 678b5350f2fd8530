"""YAML of strangers: plain values are read, whatever could grow or name a type is refused at once."""

import resource
import time
from typing import Any

import pytest
import yaml

from toolgate.errors import InvalidRecord
from toolgate.registry.interchange.yaml import MAX_DEPTH, MAX_NODES, MAX_YAML_BYTES, parse_yaml

ALIAS_BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(20)
)
FIL_6 = {
    "a type of Python": "a: !!python/object/apply:os.system ['true']",
    "a type of one's own": "a: !thing {}",
    "a standard type": "a: !!binary aGVsbG8=",
    "an alias bomb": ALIAS_BOMB,
    "a map that holds itself": "&a {a: *a}",
    "merged maps": "a: &a {b: c}\nd: {<<: *a}",
    "depth in brackets": "[" * 100_000,
    "depth by indentation": "\n".join(" " * n + "a:" for n in range(1_000)),
    "too many values": "[" + "a," * (MAX_NODES + 1) + "]",
    "too many bytes": "a" * (MAX_YAML_BYTES + 1),
    "a long line of keys": "? " * 50_000,
    "half of a character": "a: \ud800",
    "a character YAML has not": "a: \x00",
    "two documents": "a: b\n---\nc: d",
    "a name twice": "a: b\na: c",
    "a map as a name": "{a: b}: c",
    "no YAML": "a: b: c: [",
}


@pytest.mark.parametrize("text", FIL_6.values(), ids=FIL_6.keys())
def test_fil_6_what_could_grow_or_name_a_type_is_refused_in_no_time_and_space(text: str) -> None:
    """FIL-6: error within a second, of processor time, and at most 10 MiB more memory."""
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()

    with pytest.raises(InvalidRecord):
        parse_yaml(text)

    assert time.process_time() - began < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10 * 1024


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("a: b\nc: [d, 'e', \"f\"]", {"a": "b", "c": ["d", "e", "f"]}),
        ("a: true\nb: false\nc: null\nd: ~\ne:", {"a": True, "b": False, "c": None, "d": None, "e": None}),
        ("a: 'true'\nb: no\nc: 1.10\nd: 12:30", {"a": "true", "b": "no", "c": "1.10", "d": "12:30"}),
        ("a: |\n  b\n  c\n", {"a": "b\nc\n"}),
        ('{"a": [{"b": "é"}]}', {"a": [{"b": "é"}]}),
        ("- a\n- - b\n", ["a", ["b"]]),
        ("a: &anchor b", {"a": "b"}),
        ("[" * MAX_DEPTH + "]" * MAX_DEPTH, None),
    ],
)
@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
def test_plain_values_are_read_as_they_are_written(text: str, expected: Any, loader: str) -> None:
    found = parse_yaml(text, getattr(yaml, loader))

    assert found == expected or (expected is None and str(found) == text)


def test_a_refusal_names_the_line_and_repeats_nothing() -> None:
    with pytest.raises(InvalidRecord, match="line 2") as aliased:
        parse_yaml("a: &x hunter2\nb: *x")
    with pytest.raises(InvalidRecord, match="line 2") as broken:
        parse_yaml("a: hunter2\n]")

    assert "hunter2" not in f"{aliased.value}{broken.value}"
