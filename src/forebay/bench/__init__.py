"""Benchmarks of a server (any OpenAI-compatible one) and of the engine (in process). Not the command line."""
