"""The general path: a model's own Jinja template, run in a sandbox with strings that know who wrote each character."""
