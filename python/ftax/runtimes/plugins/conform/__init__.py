"""Whether a shared library keeps the promises of ftax/runner.h: `ftax conform ./libmine.so`.

The surprising choice: every check runs in a process of its own. A library that crashes fails the
check that it crashed in, and the others still say what they found.
"""
