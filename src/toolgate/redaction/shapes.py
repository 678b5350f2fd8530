r"""The shapes of secrets as data, the search for the slightest sign of one, and the redaction of texts.

Each shape has a *sign*: an expression that matches in every text that the shape matches, in lower case.
`compile_prefilter` joins the signs into one search, and most arguments are audited at the cost of that
search. A shape without its sign would let secrets pass: add both, and a sample to the tests.

Shapes are searched for in untrusted texts. None may begin at every character of a word and read on to its
end.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from toolgate.model.names import REFERENCE

MASK: Final = "***"
"""Replaces a secret."""


class Shape(NamedTuple):
    """A shape of secrets, and its sign. The sign begins with a literal character, best a rare letter."""

    pattern: str
    sign: str


# Tokens with a shape that their makers chose, so that they are recognised anywhere.
_TOKENS: Final = (
    Shape(r"sk-[\w-]{16,}", "k-"),
    Shape(r"[rs]k_(?:live|test)_\w{16,}", "k_(?:live|test)_"),
    Shape(r"gsk_\w{20,}", "k_(?<=gsk_)"),
    Shape(r"whsec_[\w+/=]{16,}", "hsec_"),
    Shape(r"gh[pousr]_\w{20,}", "h[pousr]_"),
    Shape(r"github_pat_\w{20,}", "hub_"),
    Shape(r"glpat-[\w-]{16,}", r"pat[^\w.]"),
    Shape(r"xox[abeprs]-[\w-]{10,}", "xox"),
    Shape(r"xapp-[\w-]{10,}", "xapp-"),
    Shape(r"xai-[\w-]{20,}", "xai-"),
    Shape(r"AKIA[0-9A-Z]{16}", "kia"),
    Shape(r"ASIA[0-9A-Z]{16}", "sia[0-9a-z]{16}"),
    Shape(r"AIza[\w-]{30,}", "z(?<=aiz)"),
    Shape(r"ya29\.[\w-]{20,}", r"ya29\."),
    Shape(r"GOCSPX-[\w-]{20,}", "cspx-"),
    Shape(r"npm_\w{30,}", "pm_(?<=npm_)"),
    Shape(r"pypi-[\w-]{30,}", "pypi-"),
    Shape(r"hf_\w{20,}", "hf_"),
    Shape(r"dop_v1_\w{30,}", "dop_v1_"),
    Shape(r"SG\.[\w-]{16,64}\.[\w-]{16,}", r"sg\.[\w-]{16}"),
    Shape(r"shp(?:at|ca|pa|ss)_\w{20,}", "hp(?:at|ca|pa|ss)_"),
    Shape(r"hv[brs]\.[\w-]{20,}", r"hv[brs]\."),
    Shape(r"lin_api_\w{20,}", "pi_(?<=api_)"),
    Shape(r"nvapi-[\w-]{20,}", "pi-(?<=api-)"),
    Shape(r"pplx-\w{20,}", "pplx-"),
    Shape(r"figd_[\w-]{20,}", "d_(?<=figd_)"),
    Shape(r"dapi[0-9a-f]{32}", "dapi[0-9a-f]{32}"),
    Shape(r"secret_\w{32,}", "cret"),
    Shape(r"AGE-SECRET-KEY-1\w{20,}", "cret"),
    Shape(r"\d{8,10}:AA[\w-]{32,}", r":aa[\w-]{32}"),
    Shape(r"eyJ[\w-]{8,1024}+\.(?:eyJ[\w-]{8,}|[\w-]{0,1024}+\.[\w-]{8,})[\w.-]*", "j(?<=eyj)"),
    # A private key in Base64.
    Shape(r"LS0tLS1CRUdJTi[\w+/=]{8,}", "crudjti"),
)
# Before a token in a URL.
_WEBHOOKS: Final = (
    Shape(r"hooks\.slack\.com/\w{1,16}/", r"hooks\.s"),
    Shape(r"discord(?:app)?\.com/api/webhooks/\d{1,24}/", "webhooks"),
)
_PEM_KEY: Final = Shape(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:(?!-----END)[\s\S])*", "key")

# Names of variables, headers, flags, parameters and members. Wide on purpose: a masked harmless value costs a
# look into the file, a shown secret costs more.
_NAMES: Final = (
    Shape("(?:api|access|account|encryption|master|private|signing|ssh)[-_]?key|key[-_]?data", "key"),
    Shape("token", "ken"),
    Shape("secret", "cret"),
    Shape("passw", "ssw"),
    Shape("passphrase", "hrase"),
    Shape("passcode", "passcode"),
    Shape("pwd", "wd"),
    Shape("auth(?!or(?!i[sz]))", "uth(?<=auth)(?!or(?!i[sz]))"),
    Shape("cookie", "kie"),
    Shape("credential", "cred"),
    Shape("bearer", "bearer"),
    Shape("session", "session"),
    Shape("signature", "signature"),
)
# For names with this ending.
_LAST_WORDS: Final = (
    Shape("key", "key"),
    Shape("pat", r"pat[^\w.]"),
    Shape("sig", r"sig[^\w.-]"),
    Shape("dsn", r"dsn[^\w.-]"),
    Shape("pass", r"pass[^\w.-]"),
    Shape("pw", r"pw[^\w.-]"),
    Shape("otp", r"p[^\w.-](?<=otp.)"),
    Shape("cv[cv]", r"cv[cv][^\w.-]"),
    Shape("jwt", r"jwt[^\w.-]"),
)

# Programs, and their flags before a secret.
_VALUE: Final = r"""(?:"(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s"';|&]+)"""
_COMMANDS: Final = (
    (r"mysql\w*|mariadb[\w-]*|7z\w?|(?:un)?rar", rf"(\s-p){_VALUE}"),
    (
        r"sshpass|mongo\w*|(?:az|buildah|cf|docker|nerdctl|oc|oras|podman|skopeo)(?:\s[\w-]+)?\slogin",
        rf"(\s-p\s{{0,4}}){_VALUE}",
    ),
    (r"(?:un)?zip", rf"(\s-P\s{{0,4}}){_VALUE}"),
    (r"redis-cli", rf"(\s-a\s{{0,4}}){_VALUE}"),
    (r"ldap\w+", rf"(\s-w\s{{0,4}}){_VALUE}"),
    (r"curl", r"""(\s(?:-[a-zA-Z]{0,8}[uU]|--(?:proxy-)?user)[\s=]{0,4}["']?[^\s:"']*:)[^\s"']+"""),
)
_COMMAND_SIGNS: Final = (
    r"-p(?:(?<=[\s\"']-p)|(?<=\\[fnrt]-p))",
    "cli(?<=redis-cli)",
    "dap(?<=ldap)",
    r"curl[\s\"\\]",
)

# How people name a secret, and SQL; then the possible secret.
_STATEMENT: Final = re.compile(
    r"\b(?=[psato])(?:pass(?:word|wort|phrase|code)|pwd|pw|secret|token|pin|otp"
    r"|(?:api|access|private|signing)[ _-]?key)"
    r"(?:\s(?:for|of|to)\s[\w@.+-]{1,64})?\s{1,4}(?:is|was|ist|lautet)(?:\snow)?:?\s{1,4}",
    re.IGNORECASE,
)
_STATEMENT_VALUE: Final = re.compile(r"""(?P<quote>["'`“„])(?:(?!["'`“”])[^\r\n])*|\S{4,}""")
_TRAILING: Final = ".,;:!?)]}>\"'`"
_MIN_SECRET: Final = 4  # the length of a PIN
_SQL: Final = re.compile(
    r"""\b(?=[il])(identified\s{1,4}(?:with\s{1,4}\w{1,64}\s{1,4})?(?:by|as)\s{1,4}["']|login\s\S{1,64}\spassword\s)"""
    r"""[^\s"']+""",
    re.IGNORECASE,
)
_STATEMENT_SIGNS: Final = (r"pin[\s\\]", "fied(?<=identified)")

# If the text behind the first colon is no port, it may be a password with unencoded characters.
URL_USERINFO: Final = Shape(
    r"""(?<![\w+.-])([\w+.-]*://)(?:[^/?#\s@]*+|[^/?#\s@:]*+:(?!\d{1,5}[/?#])[^\s@"'<>]{1,64}+)@""",
    r":[/\\][/\\]+(?:[^/?#@ ]*+@|[^/?#@: ]*+:[^@ \"]{1,130}+@)",
)
BEARER: Final = Shape(r"(?i:\b(Bearer|Basic)\s+[\w.~+/=-]{8,})", "b(?:earer|asic)")
_PERCENT_SIGN: Final = "%[0-9a-f]{2}"  # shows only after decoding
_ESCAPE_SIGN: Final = r"\\u"  # JSON may spell any letter so

_SIGNS: Final = (
    *(one.sign for one in (*_TOKENS, *_WEBHOOKS, _PEM_KEY, *_NAMES, *_LAST_WORDS, URL_USERINFO, BEARER)),
    *(*_COMMAND_SIGNS, *_STATEMENT_SIGNS, _PERCENT_SIGN, _ESCAPE_SIGN),
)


def _any_of(shapes: Iterable[Shape]) -> str:
    return f"(?:{'|'.join(shape.pattern for shape in shapes)})"


_TOKEN: Final = re.compile(rf"\b{_any_of(_TOKENS)}")
_WEBHOOK: Final = re.compile(rf"\b({_any_of(_WEBHOOKS)})[\w/-]+")
_PEM_KEY_BLOCK: Final = re.compile(_PEM_KEY.pattern)
_SECRET_NAME: Final = re.compile(rf"{_any_of(_NAMES)}|(?:^|[-_.]){_any_of(_LAST_WORDS)}$", re.IGNORECASE)
_COMMAND_LINES: Final = tuple(
    (re.compile(rf"(?<![\w-])(?:{program})(?=\s)[^\r\n]*"), re.compile(flags)) for program, flags in _COMMANDS
)
_MAX_WORD: Final = 128  # characters. A program, its flag and the beginning of a secret are shorter
_SPACE: Final = re.compile(r"\s")
_FLAG: Final = re.compile(r"\s-")

Spans = Iterable[tuple[int, int]]
"""Places in a text, in order."""
Hides = Callable[[str], bool]
"""Whether the value of a name is hidden."""

_SCHEME_AND_REFERENCE: Final = re.compile(rf"(?:(?i:Bearer|Basic|Token) )?{REFERENCE.pattern}")
_BEARER: Final = re.compile(BEARER.pattern)
_URL_USERINFO: Final = re.compile(URL_USERINFO.pattern)
# A name, and what separates it from its value: `name=value` in a URL, `name = 'value'` in a connection
# string, `"name": "value"` in JSON. The value is not part of the match: it may be `url=https://host/?token=…`.
_SEPARATOR: Final = r"""\]?\s{0,2}=\s{0,2}["']?|\\{0,3}["']\s{0,8}:\s{0,8}\\{0,3}["']?"""
_PAIR: Final = re.compile(rf"(?<![\w.-])(--?)?([A-Za-z_][\w.-]*)(?:{_SEPARATOR})")
# Also `Name: value` of a header, `--name value` of a command, `NAME 'value'` of a statement.
_PROSE_PAIR: Final = re.compile(
    rf"""(?<![\w.-])(--?)?([A-Za-z_][\w.-]*)(?:{_SEPARATOR}|:[ \t]{{0,8}}["']?|\s{{1,4}}(?(1)["']?|["']))"""
)
_QUOTED: Final = {'"': re.compile(r'(?s)(?:[^"\\]|\\.)*'), "'": re.compile(r"(?s)(?:[^'\\]|\\.)*")}
_LINE: Final = re.compile(r"""[^\r\n"']*""")
_WORD: Final = re.compile(r"""\{[^}]*\}?|\[[^\]]*\]?|[^\s&;,"'#]*""")
_ELEMENT: Final = re.compile(r"<(?:[\w.-]{1,64}:)?([\w.-]{1,64})(?:\s[^<>]{0,256})?>(?=[^<])")
_ELEMENT_TEXT: Final = re.compile(r"[^<]*")
_ENCODED_WORD: Final = re.compile(r"[^\s\"'<>]+")
_ENCODED_BYTES: Final = re.compile("(?:%[0-9A-Fa-f]{2})+")
_MAX_ENCODED: Final = 3
"""How often one text may be percent-encoded: a URL in a query of a URL in a query."""


def compile_prefilter(words: Iterable[str] = ()) -> Callable[[bytes], object]:
    """A search for any sign of a secret, or any of `words`, in a text in lower case."""
    by_first: defaultdict[str, set[str]] = defaultdict(set)
    for sign in (*_SIGNS, *map(re.escape, words)):
        # An escaped character is one.
        head = 2 if sign.startswith("\\") else 1
        by_first[sign[:head]].add(sign[head:])
    # Every alternative begins with another character. So the engine skips positions where none begins, and
    # tries only those that share it, which makes the search three times as fast.
    groups = (f"{first}(?:{'|'.join(sorted(rests))})" for first, rests in by_first.items())
    return re.compile("|".join(groups).encode()).search


def looks_secret(name: str) -> bool:
    """Whether the value of this name usually is a secret."""
    return _SECRET_NAME.search(name) is not None


def mask_spans(text: str, spans: Spans, mask: Callable[[str], str] = lambda _: MASK) -> str:
    """`text` with each of the `spans` replaced by `mask(span)`."""
    shown, end = [], 0
    for begin, after in spans:
        shown += [text[end:begin], mask(text[begin:after])]
        end = after
    return "".join([*shown, text[end:]]) if shown else text


def redact_commands(text: str) -> str:
    """`text` without the secrets on the command lines of well-known programs, like `mysql -pSECRET`."""
    if _FLAG.search(text) is None:  # most texts contain no command
        return text
    for line, flags in _COMMAND_LINES:
        text = line.sub(lambda found, flags=flags: flags.sub(rf"\1{MASK}", found[0]), text)  # type: ignore[misc]
    return text


def _find_stated(text: str) -> Spans:
    """The secrets that a text states, as in `password is …`, if they look like no word."""
    end = 0
    for found in _STATEMENT.finditer(text):
        value = _STATEMENT_VALUE.match(text, found.end())
        if value is None or found.start() < end:
            continue
        if value["quote"]:
            begin, end = value.start() + 1, value.end()
        else:
            begin, after = value.start(), value.start() + len(value[0].rstrip(_TRAILING))
            if _is_word(text[begin:after]):
                continue
            end = after
        yield begin, end


def _is_word(text: str) -> bool:
    """Whether it is a word of a language, or too short for a secret."""
    letters = text.replace("-", "").replace("'", "")
    is_plain = text.islower() or text.isupper() or text.istitle()
    return len(text) < _MIN_SECRET or (letters.isalpha() and is_plain)


def hides_word(program: str, words: Sequence[str], at: int) -> bool:
    """Whether `words[at]`, an argument of `program`, is or contains a secret."""
    before = words[at - 1] if at else ""
    if not words[at].startswith("-") and not before.startswith("-"):
        return False
    # Callers choose the lengths of program and words, and each word is checked next to both: cut them first.
    name = program.rsplit("/", 1)[-1][:_MAX_WORD] + (" login" if "login" in words[:3] else "")
    word = _SPACE.sub("_", words[at][:_MAX_WORD])
    line = f"{name} {before[:_MAX_WORD]} {word}"
    return not redact_commands(line).endswith(line[-len(word) - 1 :])


def redact_text(text: str, *, hides: Hides = looks_secret, is_prose: bool = False) -> str:
    """`text` without secrets. `is_prose`: people may state secrets in words, which errors mostly do not."""
    return _redact(text, hides, is_prose=is_prose, encoded=_MAX_ENCODED)


def _redact(text: str, hides: Hides, *, is_prose: bool, encoded: int) -> str:
    text = _URL_USERINFO.sub(rf"\1{MASK}@", text)
    text = _BEARER.sub(rf"\1 {MASK}", text)
    text = mask_spans(text, _find_values(text, _PROSE_PAIR if is_prose else _PAIR, hides), mask_value)
    if is_prose:
        text = _SQL.sub(rf"\1{MASK}", mask_spans(text, _find_elements(text, hides)))
        text = mask_spans(text, _find_stated(text))
    text = _PEM_KEY_BLOCK.sub(MASK, redact_commands(text))
    text = _TOKEN.sub(MASK, _WEBHOOK.sub(rf"\1{MASK}", text))
    if encoded and "%" in text:
        decode = partial(_redact_encoded, hides=hides, is_prose=is_prose, encoded=encoded - 1)
        text = _ENCODED_WORD.sub(decode, text)
    return text


def _redact_encoded(word: re.Match[str], *, hides: Hides, is_prose: bool, encoded: int) -> str:
    """A word unchanged, unless decoding it shows a secret: then decoded, and without the secret."""
    if "%" not in word[0]:
        return word[0]
    plain = _SPACE.sub("+", percent_decode(word[0]))
    shown = _redact(plain, hides, is_prose=is_prose, encoded=encoded) if plain != word[0] else plain
    return word[0] if shown == plain else shown


def percent_decode(text: str) -> str:
    """`text` as `urllib.parse.unquote` decodes it; invalid UTF-8 becomes U+FFFD."""
    return _ENCODED_BYTES.sub(
        lambda found: bytes.fromhex(found[0].replace("%", "")).decode(errors="replace"), text
    )


def _find_values(text: str, pair: re.Pattern[str], hides: Hides) -> Spans:
    end = 0
    for found in pair.finditer(text):
        if found.start() >= end and hides(found[2]):
            sign = text[found.end(2) : found.end()]
            value = _QUOTED.get(sign[-1], _LINE if sign[0] == ":" else _WORD).match(text, found.end())
            end = found.end() if value is None else value.end()
            yield found.end(), end


def _find_elements(text: str, hides: Hides) -> Spans:
    """The texts of XML elements that have the name of a secret."""
    for found in _ELEMENT.finditer(text):
        if hides(found[1]):
            value = _ELEMENT_TEXT.match(text, found.end())
            yield found.end(), found.end() if value is None else value.end()


def mask_value(value: str) -> str:
    """The mask of a secret. A reference is shown, but not its default, which may be the secret."""
    if not value or not _SCHEME_AND_REFERENCE.fullmatch(value):
        return value and MASK
    return REFERENCE.sub(lambda match: f"${{ENV:{match[1]}:-{MASK}}}" if match[2] else match[0], value)
