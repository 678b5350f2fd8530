"""Chat in the console: a model answers with the tools of a task, and each call is seen as it happens."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.browser import findings_in_both_schemes
from tests.scenarios.chat import put_task, put_upstream
from tests.scenarios.gateway import Gateway, Site
from tests.upstream.scripted_model import Ask, Reply, ScriptedModel, calls, hang, scripted_model, status, text

ECHO = "mcp__stage__echo"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """One server; its tool `pid` needs an approval."""
    site = Site(tmp_path_factory.mktemp("site"))
    asked = {"per_tool": {"pid": "always"}}
    site.place({**site.stage("stage", "tools=echo,pid,wait"), "approval_policy": asked})
    return site


def script(ask: Ask) -> Reply:
    """What is answered follows from the words of the last question."""
    shown = [one for one in ask.messages if one["role"] == "user"][-1]["content"]
    is_first = ask.messages[-1]["role"] == "user"
    match shown.split()[0]:
        case "echo" if is_first:
            made = (ECHO, '{"text": "<b>tea</b>"}'), ("mcp__stage__nope", '{"cut')
            return calls(*made, content="Let me see.")
        case "wait" if is_first:
            return calls(("mcp__stage__wait", "{}"))
        case "approve" if is_first:
            return calls(("mcp__stage__pid", "{}"))
        case "hang":
            return hang(text("This is only the beginning.", step=4), after=1_000)
        case "fail":
            return status(400, {"error": {"message": "the model is out of `tea`", "code": "no_tea"}})
        case _:
            return text(f"That was question {sum(one['role'] == 'user' for one in ask.messages)}.")


@contextmanager
def model_in_a_thread() -> Iterator[ScriptedModel]:
    """The browser's own loop runs in this one."""
    begun: Future[tuple[ScriptedModel, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        async with scripted_model(script, models=["scripted"]) as model:
            ended = asyncio.Event()
            begun.set_result((model, asyncio.get_running_loop(), ended))
            await ended.wait()

    thread = threading.Thread(target=asyncio.run, args=[serve()])
    thread.start()
    model, loop, ended = begun.result(60)
    yield model
    loop.call_soon_threadsafe(ended.set)
    thread.join(60)


@pytest.fixture(scope="module")
def model(gateway: Gateway) -> Iterator[ScriptedModel]:
    with model_in_a_thread() as model:
        put_upstream(gateway, model.url)
        put_task(gateway, "desk", {"mcp.enabled": True, "mcp.default_server_ids": ["stage"]})
        yield model


def ask(tab: Page, words: str) -> Locator:
    """Asks, and returns the answer."""
    tab.get_by_role("textbox", name="Message").fill(words)
    tab.get_by_role("textbox", name="Message").press("Enter")
    return tab.get_by_role("article", name=words, exact=True)


def test_without_a_model_the_first_step_is_to_add_one(tab: Page) -> None:
    tab.goto("/console/playground")
    tab.get_by_role("tab", name="Chat with a task").click()
    expect(tab.get_by_role("heading", name="No model yet")).to_be_visible()
    tab.get_by_role("link", name="Add a chat upstream").click()
    expect(tab.get_by_role("heading", name="New chat upstream")).to_be_visible()


def test_an_answer_streams_in_with_each_call_its_result_and_its_cost(
    tab: Page, model: ScriptedModel, gateway: Gateway
) -> None:
    tab.goto("/console/playground/chat?task=desk")
    answer = ask(tab, "echo tea")
    expect(answer).to_contain_text("Let me see.")
    call = answer.get_by_role("article", name="Step 2: stage.echo")
    expect(call).to_contain_text("success")
    call.get_by_role("button").first.click()
    expect(call.get_by_label("arguments", exact=True)).to_contain_text('"text": "<b>tea</b>"')
    expect(call.get_by_label("result", exact=True)).to_have_text("<b>tea</b>")
    refused = answer.get_by_role("article", name="Step 3: stage.nope")
    expect(refused).to_contain_text("not made")
    refused.get_by_role("button").first.click()
    expect(refused).to_contain_text("there is no tool mcp__stage__nope")
    expect(answer).to_contain_text("That was question 1.")
    expect(answer).to_contain_text("tokens in")
    assert findings_in_both_schemes(tab) == []

    again = ask(tab, "more")
    expect(again).to_contain_text("That was question 2.")
    expect(tab.get_by_text("2 tool calls; ")).to_be_visible()
    assert [one["role"] for one in model.requests[-1].messages] == ["user", "assistant", "user"]

    call.get_by_role("link", name="Audit record").click()
    expect(tab.get_by_role("heading", name="stage.echo")).to_be_visible()
    (event,) = gateway.get("/admin/api/audit?tool=echo&door=chat")["events"]
    expect(tab).to_have_url(f"/console/activity/{event['event_id']}")
    tab.go_back()
    expect(again).to_contain_text("That was question 2.")
    tab.get_by_role("button", name="New chat").click()
    expect(again).to_be_hidden()


def test_a_chat_is_stopped_while_a_tool_runs_and_while_the_model_writes(
    tab: Page, model: ScriptedModel, gateway: Gateway
) -> None:
    tab.goto("/console/playground/chat?task=desk")
    answer = ask(tab, "wait")
    call = answer.get_by_role("article", name="Step 1: stage.wait")
    expect(call).to_contain_text("running")
    tab.get_by_role("button", name="Stop").click()
    expect(call).to_contain_text("ended without a result")
    expect(answer.get_by_text("stopped", exact=True)).to_be_visible()
    answer = ask(tab, "hang")
    expect(answer).to_contain_text("This")
    tab.get_by_role("button", name="Stop").click()
    expect(answer.get_by_text("stopped", exact=True)).to_be_visible()
    expect(ask(tab, "go on")).to_contain_text("That was question")
    tab.goto("/console/activity?tool=wait&type=call")
    expect(tab.get_by_text("cancelled").first).to_be_visible()


def test_a_chat_that_fails_or_needs_approval_says_what_to_do(
    tab: Page, model: ScriptedModel, gateway: Gateway
) -> None:
    tab.goto("/console/playground/chat?task=desk")
    failed = ask(tab, "fail")
    expect(failed.get_by_role("alert")).to_contain_text("the model is out of tea")
    answer = ask(tab, "approve")
    call = answer.get_by_role("article", name="Step 1: stage.pid")
    expect(call).to_contain_text("This call needs approval.")
    (waiting,) = gateway.get("/admin/api/approvals?state=pending")["approvals"]
    call.get_by_role("link", name="Open the approval").click()
    expect(tab).to_have_url(f"/console/approvals/{waiting['approval_id']}")
