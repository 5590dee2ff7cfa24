"""Where what the recipe names stands in a Responses request: each message of a conversation comes from one item or
several, or from a field.

Paths within a message are in the terms of Chat Completions, as in `recipe/strings.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from forebay.api.asking import Path
from forebay.api.responses_items import CallOutputItem, CustomCallItem, FunctionCallItem, MessageItem


def is_item(place: Path) -> bool:
    """Whether a place is an item of the request, and not a field such as `instructions`."""
    return len(place) > 1


@dataclass(slots=True)
class MessagePlaces:
    """The places of one message's strings."""

    base: Path
    """Of the message itself: its first item, or the field."""
    known: dict[Path, Path] = field(default_factory=dict)
    """Path within the message → place."""
    texts: int = 0
    calls: int = 0

    def text(self, item: MessageItem | CallOutputItem, place: Path) -> None:
        """The message's next texts are this item's."""
        name = "content" if isinstance(item, MessageItem) else "output"
        content = item.content if isinstance(item, MessageItem) else item.output
        if isinstance(content, str):
            self.field_text((*place, name) if is_item(place) else place)
            return
        for part in range(len(content)):
            self.field_text((*place, name, part, "text") if is_item(place) else place)

    def field_text(self, place: Path) -> None:
        """The message's next text stands there."""
        self.known.setdefault(("content",), place)
        self.known["content", self.texts, "text"] = place
        self.texts += 1

    def call(self, item: FunctionCallItem | CustomCallItem, place: Path) -> None:
        """The message's next call is this item."""
        at: Path = ("tool_calls", self.calls)
        self.calls += 1
        self.known[at] = place
        if is_item(place):
            arguments = "arguments" if isinstance(item, FunctionCallItem) else "input"
            self.known[(*at, "id")] = (*place, "call_id")
            self.known[(*at, "function", "name")] = (*place, "name")
            self.known[(*at, "function", "arguments")] = (*place, arguments)

    def of(self, path: Path) -> Path:
        """The place that is meant by a path within the message."""
        if path[:1] in (("role",), ("tool_call_id",)) and is_item(self.base):
            return (*self.base, "role" if path[0] == "role" else "call_id")
        if path[:1] == ("tool_calls",):
            return self.known.get(path, self.known.get(path[:2], self.base))
        return self.known.get(path, self.base)
