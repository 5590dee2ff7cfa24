"""What a Responses request is about, item by item: what came before it, and its own input with its references resolved.

Stored items are read back through the models that requests are, so that both become a conversation in one way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from pydantic import TypeAdapter

from forebay.api.asking import Path
from forebay.api.request_id import new_id
from forebay.api.responses_items import (
    CallOutputItem,
    CustomCallItem,
    FunctionCallItem,
    InputItem,
    Item,
    MessageItem,
    ReasoningItem,
    ReferenceItem,
)
from forebay.api.responses_output import Json
from forebay.api.responses_prompt import Placed
from forebay.api.responses_store import ResponseStore
from forebay.api.responses_types import PromptFields
from forebay.core.errors import InvalidRequestError

_ITEM: Final[TypeAdapter[Item]] = TypeAdapter(InputItem)
_PREFIXES: Final = {
    MessageItem: "msg_",
    FunctionCallItem: "fc_",
    CallOutputItem: "fco_",
    CustomCallItem: "ctc_",
    ReasoningItem: "rs_",
}


class Inputs(msgspec.Struct, frozen=True):
    """All items of a request in order."""

    before: list[Placed]
    """Of the responses that it goes on from."""
    own: list[Placed]

    @property
    def all(self) -> list[Placed]:
        """One after the other."""
        return [*self.before, *self.own]


def inputs_of(body: PromptFields, store: ResponseStore, tenant: str) -> Inputs:
    """Raises InvalidRequestError for a response or an item that this tenant has not."""
    before: list[Placed] = []
    if body.previous_response_id is not None:
        for record in store.chain(tenant, body.previous_response_id):
            items = [_ITEM.validate_python(item) for item in (*record.items(), *record.answer.output)]
            before += [Placed(item, ("previous_response_id",)) for item in items]
    if isinstance(body.input, str):
        return Inputs(before, [Placed(MessageItem(role="user", content=body.input), ("input",))])
    own = [_resolved(item, ("input", index), store, tenant) for index, item in enumerate(body.input)]
    return Inputs(before, own)


def _resolved(item: Item, place: Path, store: ResponseStore, tenant: str) -> Placed:
    if not isinstance(item, ReferenceItem):
        return Placed(item, place)
    found = store.item(tenant, item.id)
    if found is None:
        raise InvalidRequestError(f"Item with id '{item.id}' not found.", ".".join(map(str, (*place, "id"))))
    return Placed(_ITEM.validate_python(found), place)


def listed(own: Sequence[Placed]) -> list[Json]:
    """A request's own items as clients read them: parts in full, each item with an id and a status."""
    return [_listed(placed.item) for placed in own]


def _listed(item: Item) -> Json:
    if isinstance(item, ReferenceItem):
        raise TypeError("references are resolved before items are listed")
    fields = item.model_dump(exclude_none=True, by_alias=True)
    if isinstance(item, MessageItem):
        kind = "output_text" if item.role == "assistant" else "input_text"
        content = [_part(kind, item.content)] if isinstance(item.content, str) else fields["content"]
        fields = {**fields, "type": "message", "content": content}
    status = {} if isinstance(item, ReasoningItem) else {"status": "completed"}
    return {"id": new_id(_PREFIXES[type(item)]), **status, **fields}


def _part(kind: str, text: str) -> Json:
    part: Json = {"type": kind, "text": text}
    return {**part, "annotations": []} if kind == "output_text" else part
