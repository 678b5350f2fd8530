"""Text of strangers as people can look at it."""

import json

from toolgate.model.json_text import format_json


def test_json_is_shown_as_it_is_spelled_with_what_cannot_be_seen_spelled_out() -> None:
    raw = '{"to":"a\u202e\u200bb\\n","n":1.10,"é":[]}'.encode()
    shown = format_json(raw)

    assert shown == '{\n  "to": "a\\u202e\\u200bb\\n",\n  "n": 1.10,\n  "é": []\n}'
    assert json.loads(shown) == json.loads(raw)
