"""What secrets look like in a text: as their makers made them, on command lines, and as people tell them.

These are searched for in the texts of strangers: none may begin at every character of a word and read on to
its end. What finds the slightest sign of them (`gateway/redacting`) has to know of each.
"""

import re
from collections.abc import Sequence
from typing import Final

MASK: Final = "***"

# Tokens whose makers gave them a shape, so that they are known wherever they stand.
_TOKEN: Final = re.compile(
    r"\b(?:sk-[\w-]{16,}|[rs]k_(?:live|test)_\w{16,}|gsk_\w{20,}|whsec_[\w+/=]{16,}"
    r"|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}|xapp-[\w-]{10,}"
    r"|xai-[\w-]{20,}|A(?:KIA|SIA)[0-9A-Z]{16}|AIza[\w-]{30,}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}"
    r"|npm_\w{30,}|pypi-[\w-]{30,}|hf_\w{20,}|dop_v1_\w{30,}|SG\.[\w-]{16,64}\.[\w-]{16,}"
    r"|shp(?:at|ca|pa|ss)_\w{20,}|hv[brs]\.[\w-]{20,}|lin_api_\w{20,}|nvapi-[\w-]{20,}|pplx-\w{20,}"
    r"|figd_[\w-]{20,}|dapi[0-9a-f]{32}|secret_\w{32,}|AGE-SECRET-KEY-1\w{20,}|\d{8,10}:AA[\w-]{32,}"
    r"|eyJ[\w-]{8,1024}+\.(?:eyJ[\w-]{8,}|[\w-]{0,1024}+\.[\w-]{8,})[\w.-]*"
    r"|LS0tLS1CRUdJTi[\w+/=]{8,})"
)
_HOOK: Final = re.compile(
    r"\b(hooks\.slack\.com/\w{1,16}/|discord(?:app)?\.com/api/webhooks/\d{1,24}/)[\w/-]+"
)
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:(?!-----END)[\s\S])*")

# A program, and the flags of it before a secret.
_VALUE: Final = r"""(?:"(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s"';|&]+)"""
_FLAGS: Final = tuple(
    (re.compile(rf"(?<![\w-])(?:{program})(?=\s)[^\r\n]*"), re.compile(flags))
    for program, flags in (
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
)
_MAX_WORD: Final = 128
"""A program, its flag and the beginning of a secret are shorter."""
_SPACE: Final = re.compile(r"\s")
_FLAG: Final = re.compile(r"\s-")

# What people say of it, or statements; then what may be the secret.
_STATEMENT: Final = re.compile(
    r"\b(?=[psato])(?:pass(?:word|wort|phrase|code)|pwd|pw|secret|token|pin|otp"
    r"|(?:api|access|private|signing)[ _-]?key)"
    r"(?:\s(?:for|of|to)\s[\w@.+-]{1,64})?\s{1,4}(?:is|was|ist|lautet)(?:\snow)?:?\s{1,4}",
    re.IGNORECASE,
)
_STATEMENT_VALUE: Final = re.compile(r"""(?P<quote>["'`“„])(?:(?!["'`“”])[^\r\n])*|\S{4,}""")
_TRAILING: Final = ".,;:!?)]}>\"'`"
_MIN_SECRET: Final = 4
_SQL_STATEMENT: Final = re.compile(
    r"""\b(?=[il])(identified\s{1,4}(?:with\s{1,4}\w{1,64}\s{1,4})?(?:by|as)\s{1,4}["']|login\s\S{1,64}\spassword\s)"""
    r"""[^\s"']+""",
    re.IGNORECASE,
)


def redact_shapes(text: str) -> str:
    """`text` without what has the shape of a token or a key."""
    text = _PRIVATE_KEY.sub(MASK, text)
    text = _HOOK.sub(rf"\1{MASK}", text)
    return _TOKEN.sub(MASK, text)


def redact_commands(text: str) -> str:
    """`text` without the secrets on the command lines of well-known programs, like `mysql -pSECRET`."""
    if _FLAG.search(text) is None:  # most texts have no command in them
        return text
    for line, flags in _FLAGS:
        text = line.sub(lambda found, flags=flags: flags.sub(rf"\1{MASK}", found[0]), text)  # type: ignore[misc]
    return text


def redact_statements(text: str) -> str:
    """`text` without what is said to be a secret, as in `password is …`, and looks like no word."""
    text = _SQL_STATEMENT.sub(rf"\1{MASK}", text)
    shown, upto = [], 0
    for found in _STATEMENT.finditer(text):
        value = _STATEMENT_VALUE.match(text, found.end())
        if value is None or found.start() < upto:
            continue
        begin, end = value.span()
        if value["quote"]:
            begin += 1
        else:
            end = begin + len(value[0].rstrip(_TRAILING))
            if _is_word(text[begin:end]):
                continue
        shown += [text[upto:begin], MASK]
        upto = end
    return "".join([*shown, text[upto:]])


def hides_word(program: str, words: Sequence[str], at: int) -> bool:
    """Whether `words[at]`, of what `program` is started with, is a secret or holds one."""
    before = words[at - 1] if at else ""
    if not words[at].startswith("-") and not before.startswith("-"):
        return False
    # Each word is looked at beside its program: no more of both than is needed, for callers choose how long.
    name = program.rsplit("/", 1)[-1][:_MAX_WORD] + (" login" if "login" in words[:3] else "")
    word = _SPACE.sub("_", words[at][:_MAX_WORD])
    line = f"{name} {before[:_MAX_WORD]} {word}"
    return not redact_commands(line).endswith(line[-len(word) - 1 :])


def _is_word(text: str) -> bool:
    """Whether it is one of a language, or too short for a secret."""
    letters = text.replace("-", "").replace("'", "")
    is_plain = text.islower() or text.isupper() or text.istitle()
    return len(text) < _MIN_SECRET or (letters.isalpha() and is_plain)
