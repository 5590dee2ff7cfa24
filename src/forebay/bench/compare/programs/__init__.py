"""Programs that run in a process of their own: one in our interpreter, one in a peer's. Nothing imports them.

Both take their work as JSON in the first argument and write {"values", "failures", "extras"} as the last line of
standard output.
"""
