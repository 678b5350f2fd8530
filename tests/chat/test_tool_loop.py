"""The tool loop, told as conversations: what happened, and what is to be done."""

import pytest

from toolgate.chat.client_tools import parse_choice
from toolgate.chat.tool_calls import CallError, ToolCall
from toolgate.chat.tool_loop import (
    Action,
    Finish,
    PromptModel,
    RefuseTool,
    RunTool,
    RunTools,
    StopReason,
    ToolLoop,
)
from toolgate.model.chat import ChatBudgets

NAMES = {
    "mcp__fs__read": "fs.read",
    "mcp.fs.read": "fs.read",
    "mcp__fs__write": "fs.write",
    "mcp.fs.write": "fs.write",
    "both": "x.both",
    "mcp.x.both": "x.both",
}
OWN = {"mine", "both"}
NAMED_OWN = b'{"type":"function","function":{"name":"mine"}}'
NAMED_MCP = b'{"type":"function","function":{"name":"mcp__fs__write"}}'
ONLY_READ = (
    b'{"type":"allowed_tools","allowed_tools":{"mode":"required",'
    b'"tools":[{"type":"function","function":{"name":"mcp.fs.read"}}]}}'
)


def loop(choice: bytes | None = None, *, iterations: int = 8, calls: int = 32) -> ToolLoop:
    budgets = ChatBudgets(max_iterations=iterations, max_total_tool_calls=calls, wall_clock_ms=2_500)
    return ToolLoop(names=NAMES, own=OWN, budgets=budgets, choice=parse_choice(choice))


def call(name: str = "mcp__fs__read", arguments: str = "{}", *, call_id: str = "c1") -> ToolCall:
    return ToolCall(call_id=call_id, name=name, arguments=arguments)


def run(one: ToolCall) -> RunTool:
    return RunTool(call=one, name=NAMES[one.name], arguments=one.arguments.encode())


def error_of(action: Action, *, step: int = 0) -> CallError:
    assert isinstance(action, RunTools)
    refused = action.steps[step]
    assert isinstance(refused, RefuseTool)
    return refused.error


def codes_of(action: Action) -> list[str]:
    assert isinstance(action, RunTools)
    return [step.error.code if isinstance(step, RefuseTool) else "run" for step in action.steps]


def test_a_model_that_calls_nothing_has_answered() -> None:
    talk = loop()

    assert talk.start() == PromptModel(choice="sent")
    assert talk.on_completion([], has_text=True) == Finish(reason="answered")
    assert (talk.rounds, talk.calls_made) == (0, 0)


def test_a_model_that_says_nothing_at_all_is_spoken_for() -> None:
    talk = loop()
    talk.start()

    assert talk.on_completion([], has_text=False) == Finish(
        reason="model_silent", closing="The model ended its response without any text."
    )


@pytest.mark.requirement("002-031")
def test_three_rounds_and_an_answer() -> None:
    talk = loop()
    talk.start()

    for path in "abc":
        one = call(arguments=f'{{"path":"{path}"}}')
        assert talk.on_completion([one], has_text=False) == RunTools(steps=(run(one),))
        assert talk.on_results() == PromptModel(choice="sent")
    assert talk.on_completion([], has_text=True) == Finish(reason="answered")
    assert (talk.rounds, talk.calls_made) == (3, 3)


def test_a_tool_may_be_called_by_its_dotted_name() -> None:
    talk = loop()
    talk.start()
    dotted = call("mcp.fs.read")

    assert talk.on_completion([dotted], has_text=False) == RunTools(steps=(run(dotted),))


def test_an_unknown_tool_is_answered_with_those_there_are_and_the_loop_continues() -> None:
    """CHT-1"""
    talk = loop()
    talk.start()

    error = error_of(talk.on_completion([call("mcp__fs__reed")], has_text=False))

    assert error == CallError(
        code="unknown_tool",
        message="there is no tool `mcp__fs__reed`. The tools are: `mcp__fs__read`, `mcp__fs__write`, `both`",
        retryable=False,
    )
    assert talk.on_results() == PromptModel(choice="sent")
    assert talk.calls_made == 1


def test_of_many_tools_an_unknown_name_is_answered_with_the_nearest() -> None:
    names = {f"mcp__s{n}__tool_{n}": f"s{n}.tool" for n in range(100)} | {
        "mcp__mail__send_letter": "mail.send"
    }
    talk = ToolLoop(names=names, own=(), budgets=ChatBudgets(), choice=parse_choice(None))
    talk.start()

    asked = talk.on_completion([call("letter-SEND"), call("x" * 5_000)], has_text=False)

    assert error_of(asked).message.startswith(
        "there is no tool `letter-SEND`. Of 101 tools, the nearest are: `mcp__mail__send_letter`, `mcp__s0__"
    )
    assert error_of(asked).message.count("`mcp__") == 20
    assert f"`{'x' * 128}`" in error_of(asked, step=1).message


def test_a_caller_without_tools_is_reported_so() -> None:
    talk = ToolLoop(names={}, own=(), budgets=ChatBudgets(), choice=parse_choice(None))
    talk.start()

    error = error_of(talk.on_completion([call("anything")], has_text=False))

    assert error.message == "there is no tool `anything`. The tools are: none"


@pytest.mark.requirement("002-096")
def test_bad_arguments_are_answered_and_counted() -> None:
    """CHT-2"""
    talk = loop(calls=2)
    talk.start()

    asked = talk.on_completion([call(arguments=""), call(arguments='{"a":1}{"b":2}'), call()], has_text=False)

    assert codes_of(asked) == ["mcp_invalid_arguments", "mcp_invalid_arguments", "tool_call_limit"]
    assert talk.on_results() == PromptModel(choice="none", is_last=True)


def test_a_model_that_calls_for_ever_is_requested_an_answer_once_its_rounds_are_used_up() -> None:
    """CHT-3"""
    talk = loop(iterations=2)
    talk.start()

    talk.on_completion([call(arguments='{"n":1}')], has_text=False)
    assert talk.on_results() == PromptModel(choice="sent")
    talk.on_completion([call(arguments='{"n":2}')], has_text=False)
    assert talk.on_results() == PromptModel(choice="none", is_last=True)
    assert talk.on_completion([call(arguments='{"n":3}')], has_text=False) == Finish(
        reason="round_limit", closing="Stopped: this request may run tools in at most 2 rounds."
    )
    assert talk.rounds == 2


def test_the_last_answer_is_where_there_is_one() -> None:
    talk = loop(iterations=1)
    talk.start()
    talk.on_completion([call()], has_text=False)
    talk.on_results()

    assert talk.on_completion([call("mine")], has_text=True) == Finish(reason="round_limit")


@pytest.mark.requirement("002-033")
def test_calls_past_the_budget_are_answered_and_not_run() -> None:
    """A stop in the middle of a batch leaves a history that strict servers accept."""
    talk = loop(calls=2)
    talk.start()
    batch = [call(arguments=f'{{"n":{n}}}', call_id=f"c{n}") for n in range(4)]

    asked = talk.on_completion(batch, has_text=False)

    assert isinstance(asked, RunTools)
    assert [step.call for step in asked.steps] == batch
    assert codes_of(asked) == ["run", "run", "tool_call_limit", "tool_call_limit"]
    assert talk.on_results() == PromptModel(choice="none", is_last=True)
    assert talk.on_completion([], has_text=False) == Finish(
        reason="call_limit", closing="Stopped: this request may make at most 2 tool calls."
    )
    assert talk.calls_made == 2


def test_a_hundred_calls_at_once_are_run_in_their_order() -> None:
    """CHT-4"""
    talk = loop(calls=100)
    talk.start()
    batch = [call(arguments=f'{{"n":{n}}}', call_id=f"c{n}") for n in range(100)]

    assert talk.on_completion(batch, has_text=False) == RunTools(steps=tuple(run(one) for one in batch))


@pytest.mark.parametrize(
    ("talk", "reason"), [(loop(iterations=0), "round_limit"), (loop(calls=0), "call_limit")]
)
def test_a_budget_of_nothing_runs_nothing(talk: ToolLoop, reason: StopReason) -> None:
    assert talk.start() == PromptModel(choice="none", is_last=True)
    assert talk.on_completion([call()], has_text=True) == Finish(reason=reason)


def test_the_third_identical_call_is_refused_however_it_is_spelled() -> None:
    talk = loop()
    talk.start()
    spellings = ['{"a":1,"b":2}', '{"b": 2, "a": 1}', '{"a":1,\n"b":2}']

    asked = talk.on_completion(
        [*(call("mcp.fs.read", one) for one in spellings), call(arguments='{"a":1}')], has_text=False
    )

    assert codes_of(asked) == ["run", "run", "repeated_call", "run"]
    assert not error_of(asked, step=2).retryable
    assert talk.on_results() == PromptModel(choice="sent")


def test_a_model_that_goes_in_a_circle_is_requested_an_answer() -> None:
    talk = loop()
    talk.start()

    assert codes_of(talk.on_completion([call(), call()], has_text=False)) == ["run", "run"]
    assert talk.on_results() == PromptModel(choice="sent")
    assert codes_of(talk.on_completion([call(), call()], has_text=False)) == [
        "repeated_call",
        "repeated_call",
    ]
    assert talk.on_results() == PromptModel(choice="none", is_last=True)
    assert talk.on_completion([], has_text=False) == Finish(
        reason="repeated_calls", closing="Stopped: the model kept making the same tool call."
    )


def test_calls_of_a_mixed_turn_are_run_here_and_handed_over() -> None:
    talk = loop()
    talk.start()
    ours, theirs = call(call_id="c1"), call("mine", "not JSON", call_id="c2")

    assert talk.on_completion([theirs, ours], has_text=False) == RunTools(
        steps=(run(ours),), handed=(theirs,)
    )
    assert talk.on_results() == Finish(reason="client_calls")


def test_calls_of_the_caller_alone_take_no_round() -> None:
    talk = loop()
    talk.start()

    assert talk.on_completion([call("mine")], has_text=True) == RunTools(steps=(), handed=(call("mine"),))
    assert talk.on_results() == Finish(reason="client_calls")
    assert (talk.rounds, talk.calls_made) == (0, 0)


def test_a_name_on_both_sides_is_the_callers() -> None:
    """CHT-8"""
    talk = loop()
    talk.start()

    assert talk.on_completion([call("both")], has_text=False) == RunTools(steps=(), handed=(call("both"),))


@pytest.mark.requirement("003-04")
def test_a_tool_that_is_no_function_is_never_run_here() -> None:
    talk = loop()
    talk.start()
    custom = ToolCall(call_id="c1", name="mcp__fs__read", arguments="{}", kind="other")

    assert talk.on_completion([custom], has_text=False) == RunTools(steps=(), handed=(custom,))


@pytest.mark.requirement("002-023")
@pytest.mark.parametrize("choice", [None, b"null", b'"auto"'])
def test_a_choice_that_demands_nothing_is_sent_again(choice: bytes | None) -> None:
    talk = loop(choice)

    assert talk.start() == PromptModel(choice="sent")
    talk.on_completion([call()], has_text=False)
    assert talk.on_results() == PromptModel(choice="sent")


@pytest.mark.requirement("002-022")
def test_nothing_is_run_where_the_caller_chose_none() -> None:
    talk = loop(b'"none"')

    assert talk.start() == PromptModel(choice="none", is_last=True)
    assert talk.on_completion([call()], has_text=True) == Finish(reason="answered")


def test_a_required_call_is_demanded_once() -> None:
    talk = loop(b'"required"')

    assert talk.start() == PromptModel(choice="sent")
    talk.on_completion([call(arguments="{}")], has_text=False)
    assert talk.on_results() == PromptModel(choice="auto")
    talk.on_completion([call(arguments='{"again":1}')], has_text=False)
    assert talk.on_results() == PromptModel(choice="auto")


def test_a_call_of_nothing_satisfies_no_demand() -> None:
    talk = loop(b'"required"')
    talk.start()

    talk.on_completion([call("nothing")], has_text=False)
    assert talk.on_results() == PromptModel(choice="sent")


def test_a_call_with_bad_arguments_satisfies_the_demand() -> None:
    talk = loop(b'"required"')
    talk.start()

    talk.on_completion([call(arguments="{")], has_text=False)
    assert talk.on_results() == PromptModel(choice="auto")


def test_a_function_of_the_caller_that_is_named_is_handed_and_no_tool_runs() -> None:
    talk = loop(NAMED_OWN)
    talk.start()

    asked = talk.on_completion([call(), call("mine")], has_text=False)

    assert isinstance(asked, RunTools)
    assert error_of(asked) == CallError(
        code="mcp_policy_denied",
        message="not run: the `tool_choice` of this request excludes `mcp__fs__read`. It allows `mine`",
        retryable=False,
    )
    assert asked.handed == (call("mine"),)
    assert talk.on_results() == Finish(reason="client_calls")


@pytest.mark.requirement("002-024")
def test_a_tool_that_is_named_is_the_only_one_until_it_was_called() -> None:
    talk = loop(NAMED_MCP)
    talk.start()

    assert codes_of(talk.on_completion([call()], has_text=False)) == ["mcp_policy_denied"]
    assert talk.on_results() == PromptModel(choice="sent")
    assert codes_of(talk.on_completion([call("mcp.fs.write"), call()], has_text=False)) == [
        "run",
        "mcp_policy_denied",
    ]
    assert talk.on_results() == PromptModel(choice="auto")
    assert codes_of(talk.on_completion([call()], has_text=False)) == ["run"]


def test_a_name_on_both_sides_that_is_named_lets_no_tool_run() -> None:
    """CHT-8"""
    talk = loop(b'{"type":"function","function":{"name":"both"}}')
    talk.start()

    assert (
        codes_of(talk.on_completion([call(), call("mcp.x.both")], has_text=False))
        == ["mcp_policy_denied"] * 2
    )


def test_tools_that_are_not_allowed_stay_so_after_the_demand_was_met() -> None:
    talk = loop(ONLY_READ)

    assert talk.start() == PromptModel(choice="sent")
    assert codes_of(talk.on_completion([call(), call("mcp__fs__write")], has_text=False)) == [
        "run",
        "mcp_policy_denied",
    ]
    assert talk.on_results() == PromptModel(choice="auto")
    assert codes_of(talk.on_completion([call("mcp__fs__write")], has_text=False)) == ["mcp_policy_denied"]


@pytest.mark.parametrize("state", ["asking", "running", "last"])
def test_time_runs_out_whatever_continues(state: str) -> None:
    """CHT-3"""
    talk = loop(iterations=1)
    talk.start()
    if state != "asking":
        talk.on_completion([call()], has_text=False)
    if state == "last":
        talk.on_results()

    assert talk.on_timeout() == Finish(
        reason="time_limit", closing="Stopped: this request may take at most 2.5 seconds."
    )
