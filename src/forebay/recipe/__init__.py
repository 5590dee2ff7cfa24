"""Conversations to token ids with provenance, and token ids back to text. It knows nothing of HTTP or of the engine.

What it promises: no text of a request ever becomes a control token. Text goes through a tokenizer that knows none
(`vocabulary.py`), structure goes in by id (`pieces.py`), and what cannot be proved when a model is loaded
(`selftest.py`, `jinja/verify.py`, `delimiters.py`) keeps the model from being served. What it does not promise: that a
model is not persuaded by what text says.
"""

from forebay.recipe.conversation import Conversation, Effort, KeptAnswer, Message, ToolCall, ToolSpec
from forebay.recipe.detokenizer import Detokenizer
from forebay.recipe.recipe import Recipe
from forebay.recipe.text_stream import TextDelta, TextStream

__all__ = [
    "Conversation",
    "Detokenizer",
    "Effort",
    "KeptAnswer",
    "Message",
    "Recipe",
    "TextDelta",
    "TextStream",
    "ToolCall",
    "ToolSpec",
]
