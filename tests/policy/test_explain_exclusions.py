"""What a scope leaves out: counted whole, and named within a bound."""

from toolgate.policy.compose import MAX_EXCLUSIONS, summarize_exclusions
from toolgate.policy.scope import Decision, Reason


def decision(server_id: str, tool: str | None, reason: Reason | None, rule: str = "r") -> Decision:
    is_allowed = reason is None
    return Decision(
        server_id=server_id, tool=tool, allowed=is_allowed, layer="task", reason=reason, rule=rule
    )


YES = decision("a", "x", None)
NO = decision("a", "y", Reason.DENIED_BY_TASK)
GONE = decision("b", None, Reason.LIST_FAILED)


def test_whole_servers_are_named_before_single_tools() -> None:
    found = summarize_exclusions([YES, NO, GONE])

    assert found.reasons == {Reason.DENIED_BY_TASK: 1, Reason.LIST_FAILED: 1}
    assert (found.count, found.named) == (2, (GONE, NO))


def test_as_many_are_named_as_the_bound_says_and_all_are_counted() -> None:
    tools = [decision("a", f"t{n}", Reason.DENIED_BY_TASK) for n in range(2 * MAX_EXCLUSIONS)]
    servers = [decision(f"s{n}", None, Reason.LIST_FAILED) for n in range(MAX_EXCLUSIONS)]

    assert len(summarize_exclusions(tools).named) == MAX_EXCLUSIONS
    assert summarize_exclusions([*tools, *servers]).named == tuple(servers)
    assert summarize_exclusions([*tools, *servers]).count == 3 * MAX_EXCLUSIONS


def test_the_fingerprint_follows_what_is_excluded_and_why_and_not_the_wording() -> None:
    same = [YES, decision("a", "y", Reason.DENIED_BY_TASK, "another"), GONE]
    other = [YES, decision("a", "y", Reason.NOT_IN_TASK_ALLOWLIST), GONE]
    found = summarize_exclusions([NO, GONE]).fingerprint

    assert summarize_exclusions(same).fingerprint == found
    assert summarize_exclusions(other).fingerprint != found
