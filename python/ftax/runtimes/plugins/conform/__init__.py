"""Whether a shared library keeps the promises of ftax/runner.h: `ftax conform ./libmine.so`.

Every check runs in another process. A library that crashes fails the check that it crashed in, and
the others go on.
"""
