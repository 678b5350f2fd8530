"""Approvals as a node asks for them: through control.

An answer that is lost may have used an approval up. The call is then not made, and somebody has to agree
anew: rather that than a call that is made twice.
"""

from typing import Protocol, cast, get_args

from toolgate.model.approvals import Question
from toolgate.proto import node_pb2
from toolgate.registry.approvals.contract import Outcome, Said, Verdict


class ApprovalLink(Protocol):
    """Control, as far as approvals go. What goes wrong is a ToolgateError."""

    async def ask_approval(self, request: node_pb2.AskApprovalRequest) -> node_pb2.AskApprovalResponse:
        """What control says to a question."""

    async def decide_approval(self, request: node_pb2.DecideApprovalRequest) -> node_pb2.AskApprovalResponse:
        """What control says to a question that was answered in place."""


class ControlDesk:
    """A `Desk` over a link to control."""

    def __init__(self, link: ApprovalLink) -> None:
        self._link = link

    async def ask(self, question: Question, *, new_id: str) -> Verdict:
        return _verdict(await self._link.ask_approval(_encode_question(question, new_id)))

    async def settle(self, question: Question, said: Said, *, new_id: str) -> Verdict:
        sent = _encode_question(question, new_id)
        return _verdict(
            await self._link.decide_approval(
                node_pb2.DecideApprovalRequest(
                    question=sent, approval_id=said.approval_id, is_approved=said.is_approved
                )
            )
        )


def _encode_question(question: Question, new_id: str) -> node_pb2.AskApprovalRequest:
    return node_pb2.AskApprovalRequest(
        new_id=new_id,
        principal=question.principal,
        task_id=question.task_id,
        server_id=question.server_id,
        tool=question.tool,
        arguments_digest=question.arguments_digest,
        definition=question.definition,
        arguments=question.arguments,
        why=question.why,
        session=question.session,
        door=question.door,
        round=question.round,
    )


def _verdict(answer: node_pb2.AskApprovalResponse) -> Verdict:
    # A newer control may know more answers than we do: none of them lets a call pass.
    outcome = cast("Outcome", answer.outcome) if answer.outcome in get_args(Outcome) else "waiting"
    return Verdict(
        outcome,
        answer.approval_id,
        answer.expires_ms,
        answer.reason,
        in_place=answer.in_place,
        console_url=answer.console_url,
    )
