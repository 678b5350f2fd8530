"""What a task may say of chats, and how it is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.chat.config import ChatOptions, parse_budgets, parse_task_chat
from toolgate.errors import InvalidParams, InvalidRecord
from toolgate.model.chat import ChatBudgets
from toolgate.model.tasks import Task


def parse(**config: str) -> ChatOptions:
    return parse_task_chat(
        Task(task_id="triage", config={key.replace("_", ".", 1): text for key, text in config.items()})
    )


def test_a_task_that_says_nothing_of_chats_narrows_nothing() -> None:
    found = parse(mcp_enabled="true", chatty="yes")

    assert found == ChatOptions()
    assert ChatBudgets().narrow(found.budgets) == ChatBudgets()


def test_present_but_partial_budgets_keep_the_rest() -> None:
    found = parse(chat_mode='"passthrough"', chat_budgets='{"max_iterations": 2, "wall_clock_ms": 900000}')

    assert found == ChatOptions(mode="passthrough", budgets={"max_iterations": 2, "wall_clock_ms": 900_000})
    assert ChatBudgets().narrow(found.budgets) == ChatBudgets(max_iterations=2)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        pytest.param({"chat_mod": '"inject"'}, "unknown key `chat.mod`", id="an unknown key"),
        pytest.param({"chat_\n": "1"}, r"unknown key `chat.\n`", id="an unprintable key"),
        pytest.param({"chat_mode": "passthrough"}, "`chat.mode`: invalid value", id="no JSON"),
        pytest.param({"chat_mode": '"off"'}, "`chat.mode`: invalid value", id="no mode"),
        pytest.param({"chat_mode": "null"}, "`chat.mode`: invalid value", id="null is no mode"),
        pytest.param({"chat_mode": '"\ud800"'}, "`chat.mode`: invalid value", id="no Unicode"),
        pytest.param({"chat_budgets": "[]"}, "`chat.budgets`: invalid value", id="no object"),
        pytest.param({"chat_budgets": "null"}, "Expected `object`, got `null`", id="null is no object"),
        pytest.param({"chat_budgets": '{"rounds": 1}'}, "unknown field `rounds`", id="an unknown budget"),
        pytest.param({"chat_budgets": '{"max_iterations": null}'}, "max_iterations", id="null is no budget"),
        pytest.param({"chat_budgets": '{"max_iterations": -1}'}, "max_iterations", id="less than none"),
        pytest.param({"chat_budgets": '{"max_iterations": true}'}, "max_iterations", id="a flag"),
        pytest.param({"chat_budgets": '{"max_iterations": 1.5}'}, "max_iterations", id="a part of one"),
        pytest.param({"chat_budgets": '{"tool_timeout_ms": 0}'}, "tool_timeout_ms", id="no time at all"),
        pytest.param({"chat_budgets": '{"max_tool_output_bytes": 9}'}, "bytes", id="no room for a result"),
        pytest.param(
            {"chat_budgets": '{"max_iterations": 1, "max_iterations": 9}'},
            "`chat.budgets`: duplicate name in the object",
            id="a budget twice",
        ),
    ],
)
def test_what_is_not_of_its_shape_is_refused_with_its_key(config: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRecord) as refused:
        parse(**config)

    assert str(refused.value).startswith("task `triage`: ")
    assert message in str(refused.value)
    assert refused.value.hint


@given(st.binary(max_size=40) | st.text(max_size=40))
def test_whatever_is_sent_as_budgets_is_parsed_or_refused(sent: str | bytes) -> None:
    try:
        found = parse_budgets(sent)
    except InvalidParams:
        return

    assert found.keys() <= set(ChatBudgets.__slots__)


@given(st.dictionaries(st.just("max_iterations"), st.integers(0, 200)))
def test_narrowing_never_widens(limits: dict[str, int]) -> None:
    assert ChatBudgets().narrow(limits).max_iterations <= ChatBudgets().max_iterations
