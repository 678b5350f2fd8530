"""The tool loop, whatever a model does: each call answered once, nothing past a budget, always an end."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from toolgate.chat.client_tools import ToolChoice, parse_choice
from toolgate.chat.tool_calls import ToolCall, canonicalize, parse_arguments
from toolgate.chat.tool_loop import MAX_IDENTICAL_CALLS, Finish, PromptModel, RunTool, RunTools, ToolLoop
from toolgate.model.chat import ChatBudgets

NAMES = {"mcp__a__x": "a.x", "mcp.a.x": "a.x", "mcp__a__y": "a.y", "both": "a.z"}
OWN = frozenset({"mine", "both"})
CALLS = st.builds(
    ToolCall,
    call_id=st.just("c"),
    name=st.sampled_from([*NAMES, *OWN, "unknown", ""]),
    arguments=st.sampled_from(["{}", '{"a":1}', '{"a": 1}', '{"a":2}', "", "{", "[]", '{"a":1}{"a":2}']),
    kind=st.sampled_from(["function", "function", "function", "other"]),
)
# Mostly calls of tools, so that talks become long.
TOOL_CALLS = st.builds(
    lambda call, n: ToolCall(call_id="c", name=call, arguments=f'{{"n":{n}}}'),
    st.sampled_from(["mcp__a__x", "mcp.a.x", "mcp__a__y"]),
    st.integers(0, 2),
)
BATCHES = st.lists(TOOL_CALLS, min_size=1, max_size=3)
REPLIES = st.tuples(st.one_of(BATCHES, BATCHES, BATCHES, st.lists(CALLS, max_size=4)), st.booleans())
CHOICES = st.sampled_from(
    [
        None,
        b'"auto"',
        b'"none"',
        b'"required"',
        b'{"type":"function","function":{"name":"mine"}}',
        b'{"type":"function","function":{"name":"both"}}',
        b'{"type":"function","function":{"name":"mcp.a.x"}}',
        b'{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"mcp__a__y"}}]}}',
        b'{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"mcp__a__y"}}]}}',
    ]
).map(parse_choice)
BUDGETS = st.builds(ChatBudgets, max_iterations=st.integers(0, 6), max_total_tool_calls=st.integers(0, 12))


@dataclass
class Talk:
    """All that happened in one conversation."""

    loop: ToolLoop
    asks: list[PromptModel] = field(default_factory=list)
    rounds: list[tuple[list[ToolCall], RunTools]] = field(default_factory=list)
    end: Finish | None = None

    @property
    def runs(self) -> list[RunTool]:
        return [step for _, action in self.rounds for step in action.steps if isinstance(step, RunTool)]


def hold(
    model_completion: list[tuple[list[ToolCall], bool]], budgets: ChatBudgets, choice: ToolChoice
) -> Talk:
    """A talk with a model that replies so, and with its last reply for ever."""
    talk = Talk(ToolLoop(names=NAMES, own=OWN, budgets=budgets, choice=choice))
    talk.asks.append(talk.loop.start())
    for n in range(budgets.max_iterations + budgets.max_total_tool_calls + 2):
        calls, has_text = model_completion[min(n, len(model_completion) - 1)]
        calls = [
            ToolCall(call_id=f"c{n}.{place}", name=one.name, arguments=one.arguments, kind=one.kind)
            for place, one in enumerate(calls)
        ]
        action = talk.loop.on_completion(calls, has_text=has_text)
        if isinstance(action, RunTools):
            talk.rounds.append((calls, action))
            then = talk.loop.on_results()
            if isinstance(then, PromptModel):
                talk.asks.append(then)
                continue
            action = then
        talk.end = action
        return talk
    raise AssertionError("the talk has no end")


TALKS = st.builds(hold, st.lists(REPLIES, min_size=1, max_size=8), BUDGETS, CHOICES)


@given(TALKS)
def test_each_call_has_exactly_one_place_in_its_order(talk: Talk) -> None:
    """CHT-4"""
    for calls, action in talk.rounds:
        answered = [step.call for step in action.steps]
        assert answered == [one for one in calls if one not in action.handed]
        assert list(action.handed) == [one for one in calls if one not in answered]


@given(TALKS)
def test_no_budget_is_exceeded(talk: Talk) -> None:
    """CHT-3"""
    budgets = talk.loop._budgets

    assert len(talk.runs) <= talk.loop.calls_made <= budgets.max_total_tool_calls
    assert talk.loop.rounds == sum(bool(action.steps) for _, action in talk.rounds) <= budgets.max_iterations
    assert max(Counter((run.name, canonicalize(run.arguments)) for run in talk.runs).values(), default=0) <= (
        MAX_IDENTICAL_CALLS
    )


@given(TALKS)
def test_only_tools_of_the_caller_run_and_only_with_what_the_model_wrote(talk: Talk) -> None:
    for run in talk.runs:
        assert (run.call.kind, run.name) == ("function", NAMES[run.call.name])
        assert run.call.name not in OWN
        assert run.arguments == parse_arguments(run.call.arguments)


@given(TALKS)
def test_only_the_last_ask_is_the_last_and_what_it_brings_is_dropped(talk: Talk) -> None:
    *earlier, last = talk.asks

    assert not any(request.is_last or request.choice == "none" for request in earlier)
    assert last.is_last == (last.choice == "none")
    assert len(talk.rounds) == len(earlier) or not last.is_last


@given(TALKS)
def test_a_demand_is_made_until_it_is_met_and_never_again(talk: Talk) -> None:
    choice = talk.loop._choice
    demanded = {NAMES[name] for name in choice.names if name in NAMES and name not in OWN}
    is_met = False
    for request, (_, action) in zip(talk.asks, talk.rounds, strict=False):
        assert request.choice == ("auto" if is_met else "sent")
        runs = [step.name for step in action.steps if isinstance(step, RunTool)]
        if choice.kind == "allowed" or (choice.kind == "named" and not is_met):
            assert demanded.issuperset(runs)
        refused = [step.error.code for step in action.steps if not isinstance(step, RunTool)]
        is_called = bool(runs) or {"mcp_invalid_arguments", "repeated_call"}.intersection(refused)
        is_met = is_met or bool(choice.mode == "required" and is_called)


@given(TALKS)
def test_an_end_is_stated(talk: Talk) -> None:
    assert talk.end is not None
    if talk.asks[-1].is_last and talk.loop._choice.kind != "none":
        assert talk.end.reason in ("round_limit", "call_limit", "repeated_calls")
    else:
        assert talk.end.reason in ("answered", "client_calls", "model_silent")
    is_cut_short = talk.end.reason not in ("answered", "client_calls")
    assert is_cut_short or not talk.end.closing
