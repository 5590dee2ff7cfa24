"""Long conversations for the recipe's benchmark: prose of common words with names and numbers, code, tables, JSON. The
same seed gives the same text."""

from __future__ import annotations

import random
from typing import Final

from forebay.recipe import Conversation, Message

_TURN: Final = 2_500
"""Characters of one message."""
_COMMON: Final = (
    "the of and to in is that for it as was with be by on not he his but at are this have from or had an they which "
    "one you were all her she there would their we him been has when who will more no if out so said what up its "
    "about into than them can only other new some could time these two may then do first any my now such like our "
    "over man me even most made after also did many before must through back years where much your way well down "
    "should because each just those people how too little state good very make world still own see men work long get "
    "here between both life being under never day same another know while last might us great old year off come since "
    "against go came right used take three"
)
_WORDS: Final = _COMMON.split()
_OTHER: Final = (
    "def merge(left, right):\n    out = []\n    while left and right:\n        side = left if left[0] < right[0] else"
    " right\n        out.append(side.pop(0))\n    return out + left + right\n",
    '{"name": "look", "arguments": {"place": "north", "depth": 12, "exact": true}}\n',
    "| step | ms | share |\n|---|---|---|\n| prefill | 512 | 0.31 |\n",
)


def text_of(chars: int, rng: random.Random) -> str:
    """A text of this many characters."""
    parts: list[str] = []
    length = 0
    while length < chars:
        parts.append(rng.choice(_OTHER) if rng.random() < 0.08 else _sentence(rng))
        length += len(parts[-1])
    return "".join(parts)[:chars]


def _sentence(rng: random.Random) -> str:
    words = rng.choices(_WORDS, k=rng.randint(6, 18))
    words[rng.randrange(len(words))] = "".join(rng.choices("abdeiklmnorstuv", k=rng.randint(4, 10)))
    return " ".join(words).capitalize() + rng.choice((".", ",", "?", f" {rng.randint(1, 9999)}.")) + " "


def conversation_of(chars: int, rng: random.Random) -> Conversation:
    """Questions and answers that have this many characters together, with a question at the end."""
    messages = [
        Message("assistant" if at % 2 else "user", text_of(min(_TURN, chars - start), rng))
        for at, start in enumerate(range(0, chars, _TURN))
    ]
    if messages[-1].role == "assistant":
        messages.append(Message("user", "Go on."))
    return Conversation(messages)


def next_turn(conversation: Conversation, rng: random.Random) -> Conversation:
    """The conversation after an answer and another question."""
    said = [Message("assistant", text_of(400, rng)), Message("user", text_of(200, rng))]
    return Conversation([*conversation.messages, *said])
