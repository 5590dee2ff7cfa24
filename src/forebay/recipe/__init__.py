"""Conversations to token ids with provenance, and token ids back to text. It knows nothing of HTTP or of the engine."""

from forebay.recipe.conversation import Conversation, Message
from forebay.recipe.detokenizer import Detokenizer
from forebay.recipe.recipe import Recipe
from forebay.recipe.text_stream import TextDelta, TextStream

__all__ = ["Conversation", "Detokenizer", "Message", "Recipe", "TextDelta", "TextStream"]
