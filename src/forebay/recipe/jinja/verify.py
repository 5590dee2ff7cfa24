"""What is proved of a chat template before its model is served, and what is found out about it.

Small conversations with known words are rendered twice, by the marking sandbox and by plain Jinja. The two have to
agree on every character; each known word has to carry its own origin; and every control spelling in the plain rendering
has to be one that the marks show as the template's. Otherwise the template does something whose origin can't be
followed, and the model is refused with the reason, instead of being served with a prompt that lacks structure. Where
that is so with tools only, tools are refused with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from jinja2 import Template

from forebay.core.errors import InvalidRequestError, UnsupportedModelError
from forebay.recipe.conversation import Conversation, Message, ToolSpec
from forebay.recipe.jinja.abilities import Abilities
from forebay.recipe.jinja.given import given_messages, given_tools, plain
from forebay.recipe.jinja.kept import AnswerPlace
from forebay.recipe.jinja.marked import ORIGIN_OF, TEMPLATE, Marked, runs
from forebay.recipe.jinja.probes import (
    BESIDE,
    FIRST,
    NAMED,
    RESULT,
    SECOND,
    TOOL,
    called,
    known_words,
    messages,
    probes,
    tool_probes,
)
from forebay.recipe.jinja.sandbox import BoundedEnvironment, Budget
from forebay.recipe.jinja.template import RENDER_ERRORS, JinjaTemplate, switches
from forebay.recipe.order import RoleOrder, SystemPlace


def verify(
    template: JinjaTemplate,
    source: str,
    control: Mapping[str, int],
    named: Mapping[str, str],
    now: Callable[[], datetime],
) -> Abilities:
    """Find what the template can do, and tell it. Raises UnsupportedModelError, with the reason, when its text can't be
    told from the messages'."""
    proof = _Proof(template, BoundedEnvironment(now).from_string(source), control, named)
    _prove_plain(proof)
    template.abilities = Abilities(_order(proof), *_tools(proof), _answer_place(proof))
    return template.abilities


@dataclass(frozen=True, slots=True)
class _Proof:
    """Compares one template's renderings with the reference."""

    template: JinjaTemplate
    reference: Template
    control: Mapping[str, int]
    named: Mapping[str, str]

    def rendered(self, conversation: Conversation) -> Marked:
        """The rendering. Raises UnsupportedModelError when the proof fails, InvalidRequestError when the template
        refuses the conversation or leaves out a part of it."""
        marked = self.template.render(conversation)
        text = self._plain(conversation)
        if str.__str__(marked) != text:
            raise UnsupportedModelError(
                "The model's chat template renders differently when the origin of text is followed."
            )
        for word, owners in known_words(conversation).items():
            _check_origin(word, owners, marked)
        self._check_control(marked)
        list(self.template.pieces(conversation))
        return marked

    def allows(self, conversation: Sequence[Message]) -> bool:
        """Whether the template renders messages without tools, all of them."""
        try:
            self.rendered(Conversation(list(conversation)))
        except InvalidRequestError:
            return False
        return True

    def _plain(self, conversation: Conversation) -> str:
        try:
            return self.reference.render(
                messages=given_messages(conversation.messages, plain, as_text=self.template.arguments_as_text),
                tools=given_tools(conversation.tools, plain) or None,
                add_generation_prompt=True,
                range=Budget().range,
                **self.named,
                **switches(conversation),
            )
        except RENDER_ERRORS as error:
            raise UnsupportedModelError(f"The model's chat template fails: {error}") from error

    def _check_control(self, marked: Marked) -> None:
        for spelling in self.control:
            own = bytes((TEMPLATE,)) * len(spelling)
            at = marked.find(spelling)
            while at >= 0:
                if marked.marks[at : at + len(spelling)] != own:
                    raise UnsupportedModelError(
                        f"The model's chat template builds the control token {spelling!r} in a way that loses its "
                        f"origin."
                    )
                at = marked.find(spelling, at + len(spelling))


def _check_origin(word: str, owners: set[int], marked: Marked) -> None:
    at = marked.find(word)
    while at >= 0:
        marks = set(marked.marks[at : at + len(word)])
        if len(marks) != 1 or not marks <= owners:
            names = " and ".join(sorted({ORIGIN_OF[owner].value for owner in owners}))
            raise UnsupportedModelError(f"The model's chat template loses who wrote the text of {names} messages.")
        at = marked.find(word, at + 1)


def _prove_plain(proof: _Proof) -> None:
    refusal: InvalidRequestError | None = None
    rendered_any = False
    for conversation in probes():
        try:
            proof.rendered(conversation)
            rendered_any = True
        except InvalidRequestError as error:
            refusal = error
    if not rendered_any and refusal is not None:
        raise UnsupportedModelError(f"The model's chat template renders not even one user message. {refusal.message}")


def _order(proof: _Proof) -> RoleOrder:
    system = SystemPlace.NOWHERE
    if proof.allows(messages("system", "user")):
        anywhere = proof.allows(messages("user", "assistant", "system", "user"))
        system = SystemPlace.ANYWHERE if anywhere else SystemPlace.FIRST
    in_a_row = proof.allows(messages("user", "user"))
    return RoleOrder(system, questions_in_a_row=in_a_row, names=_shows(proof, [NAMED], NAMED.name))


def _tools(proof: _Proof) -> tuple[bool, str | None, bool, bool]:
    """Whether tools are rendered; why not; whether text beside calls is; whether all calls of one message are.

    A call's arguments are an object to most templates, and text to some: the second is tried when the first fails.
    """
    found, fault = _renders_tools(proof)
    if not found:
        proof.template.arguments_as_text = True
        found, second = _renders_tools(proof)
        fault = second and fault
    if not found:
        return False, fault, False, False
    beside = _shows(proof, called(BESIDE), BESIDE, [TOOL])
    return True, None, beside, _shows(proof, called(count=2), SECOND, [TOOL])


def _renders_tools(proof: _Proof) -> tuple[bool, str | None]:
    shown: list[Marked] = []
    offered = False
    for conversation in tool_probes():
        try:
            rendered = proof.rendered(conversation)
        except InvalidRequestError:
            continue
        except UnsupportedModelError as error:
            return False, f"Tools can't be used with this model. {error}"
        shown.append(rendered)
        offered = offered or (len(conversation.messages) == 1 and TOOL.name in rendered)
    return offered and all(any(word in text for text in shown) for word in (FIRST, RESULT)), None


def _shows(proof: _Proof, conversation: list[Message], word: str, tools: Sequence[ToolSpec] = ()) -> bool:
    try:
        return word in proof.rendered(Conversation(conversation, list(tools)))
    except InvalidRequestError:
        return False


def _answer_place(proof: _Proof) -> AnswerPlace | None:
    """The strings around an answer: what asks for it and for nothing else, and what ends it."""
    asked, talked = messages("user"), messages("user", "assistant", "user")
    try:
        head, mark = list(runs(proof.template.render(Conversation(asked))))[-1]
        whole = proof.template.render(Conversation(talked))
    except InvalidRequestError:
        return None
    answer = whole.find(talked[1].content)
    behind = next((text for text, owner in runs(whole[answer + len(talked[1].content) :]) if owner == TEMPLATE), "")
    ends = [behind[: behind.index(spelling) + len(spelling)] for spelling in proof.control if spelling in behind]
    if mark != TEMPLATE or answer < 0 or not ends:
        return None
    starts = sorted({head.rfind(spelling) for spelling in proof.control if spelling in head}, reverse=True)
    heads = [head[start:] for start in starts if whole[:answer].endswith(head[start:])]
    own = next((each for each in heads if whole.count(each) == 2), None)
    return None if own is None else AnswerPlace(own, min(ends, key=len))
