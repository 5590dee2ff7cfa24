"""Programs that run in a process of their own: one in our interpreter, one in a peer's. Nothing imports them.

Both take what they are made of as JSON in the first argument and print {"ready": true} when they can measure. Then each
line of standard input, {"rows": [{"name", "sequences", "context", "tokens"}]}, is answered by a line for every row as
it is done, {"row", "value", "seconds"} or {"row", "failure"}, and at the end by {"extras": {...}}. A row without
context is a prefill; `seconds` is what the row took in all. They end with their standard input.
"""
