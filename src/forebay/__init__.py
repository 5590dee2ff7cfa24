"""Forebay: a complete open serving system for open-weight language models, from a laptop's CPU up."""

__version__ = "0.1.0"
