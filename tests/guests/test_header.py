"""The header has the whole ABI and nothing else, and its helpers do what they say."""

import re
from pathlib import Path

import pytest

from tests.guests.built import EXAMPLES, ROOT, build, compiled, example, imports
from tests.wasm.wat import job
from toolgate.wasm.abi import ABI_SIGNATURES, SPEAR, Errno
from toolgate.wasm.run import GuestRun
from toolgate.wasm.slots import Slots
from toolgate.wasm.wasi import WASI_FUNCTIONS

pytestmark = pytest.mark.anyio

HEADER = ROOT / "sdk" / "c" / "toolgate.h"
PROBE = Path(__file__).with_name("json_probe.c")


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_wants_nothing_but_the_published_abi(name: str) -> None:
    wanted = imports(example(name))

    assert {key: ABI_SIGNATURES.get(key) for key in wanted} == wanted
    assert any(module == SPEAR for module, _ in wanted)


@pytest.mark.requirement("002-098")
def test_the_header_declares_every_function_of_the_abi_with_its_type(tmp_path: Path) -> None:
    declared = re.findall(r"^(?:TG_IMPORT\(\w+\)\s+)\w+ (\w+)\(", HEADER.read_text("utf-8"), re.MULTILINE)
    source = tmp_path / "every.c"
    source.write_text(
        "#define TOOLGATE_NO_HELPERS\n"
        '#include "toolgate.h"\n'
        "typedef void (*function)(void);\n"
        f"static function volatile every[] = {{{', '.join(f'(function){name}' for name in declared)}}};\n"
        "void _start(void) { every[0](); }\n",
        "utf-8",
    )

    module = build(
        source, "--target=wasm32-freestanding", "-nostdlib", "-Wl,--no-entry", "-Wl,--export=_start"
    )

    assert imports(module) == {key: type_ for key, type_ in ABI_SIGNATURES.items() if key[0] == SPEAR}


@pytest.mark.requirement("002-099")
def test_the_errors_of_the_header_are_those_of_the_host() -> None:
    defined = re.findall(r"^#define TG_(E[A-Z0-9]+) (\d+)\b", HEADER.read_text("utf-8"), re.MULTILINE)

    assert {name: int(number) for name, number in defined} == {one.name: one.value for one in Errno}


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prints what is at a path in JSON."""
    directory = tmp_path_factory.mktemp("probe")
    source = directory / PROBE.name
    source.write_bytes(PROBE.read_bytes())
    return compiled(build(source, "--target=wasm32-wasi"), directory)


async def test_values_are_found_in_json(probe: Path) -> None:
    cases = [
        ('"a"', "", "text a"),
        ('{"a":1}', "a", "1"),
        ('{ "b" : [ 1 , {"c": "\\"},[" } ] , "a" : -20 }', "a", "-20"),
        ('{ "b" : [ 1 , {"c": "\\"},[" } ] , "a" : -20 }', "b.1.c", 'text "},['),
        ('{"a":[[],[1,2,[3]],"x"]}', "a.1.2.0", "3"),
        ('{"a":[[],[1,2,[3]],"x"]}', "a.2", "text x"),
        ('{"a":[[],[1,2,[3]],"x"]}', "a.3", "nothing"),
        ('{"a":{}}', "a.b", "nothing"),
        ("{}", "a", "nothing"),
        ("[]", "0", "nothing"),
        ("12", "a", "nothing"),
        ('{"aa":1,"a":2}', "a", "2"),
        ('["\\u00e4\\u20ac\\ud83d\\ude00\\n\\t\\/"]', "0", "text ä€😀\n\t/"),
        ('["ä€😀"]', "0", "text ä€😀"),
        ('{"choices":[{"message":{"content":"hi"}}]}', "words", "hi"),
        (
            '{"content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]}',
            "words",
            "ab",
        ),
        ('{"content":[]}', "words", "nothing"),
        ('{"a":"cut', "a", "nothing"),
        ('["\\', "0", "nothing"),
        ("", "a", "nothing"),
    ]
    found = []
    async with Slots(WASI_FUNCTIONS, max_guests=1) as slots:
        for json, path, _ in cases:
            ending = await slots.run(GuestRun(job(probe, None, args=("probe", path), input_=json.encode())))
            assert ending.exit_code == 0, ending
            found.append(ending.stdout.decode())

    assert found == [expected for _, _, expected in cases]


async def test_text_is_quoted_as_json_has_it(probe: Path) -> None:
    words = 'a "b" \\ \n\x01 ä€😀'
    async with Slots(WASI_FUNCTIONS, max_guests=1) as slots:
        ending = await slots.run(GuestRun(job(probe, None, args=("probe", "quote"), input_=words.encode())))

    assert ending.stdout.decode() == '"a \\"b\\" \\\\ \\u000a\\u0001 ä€😀" 0 -9223372036854775808'
