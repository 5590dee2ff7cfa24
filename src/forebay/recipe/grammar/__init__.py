"""Structured output: grammars of answers to masks over tokens, with llguidance. It samples nothing."""

from forebay.recipe.grammar.compiler import GrammarCompiler
from forebay.recipe.grammar.matcher import DeadEndError, MaskBatch, Matcher
from forebay.recipe.grammar.tokens import grammar_tokens, load_grammar_tokens

__all__ = ["DeadEndError", "GrammarCompiler", "MaskBatch", "Matcher", "grammar_tokens", "load_grammar_tokens"]
