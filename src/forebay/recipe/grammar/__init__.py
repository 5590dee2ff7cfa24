"""Structured output: grammars of answers to masks over tokens, with llguidance. It samples nothing."""

from forebay.recipe.grammar.answers import answer_grammar
from forebay.recipe.grammar.compiler import GrammarCompiler
from forebay.recipe.grammar.matcher import DeadEndError, Matcher, allowed_tokens
from forebay.recipe.grammar.reasoning import after_reasoning, can_bound, within_budget
from forebay.recipe.grammar.tokens import grammar_tokens, load_grammar_tokens
from forebay.recipe.grammar.tools import GrammarTool, tool_grammar

__all__ = [
    "DeadEndError",
    "GrammarCompiler",
    "GrammarTool",
    "Matcher",
    "after_reasoning",
    "allowed_tokens",
    "answer_grammar",
    "can_bound",
    "grammar_tokens",
    "load_grammar_tokens",
    "tool_grammar",
    "within_budget",
]
