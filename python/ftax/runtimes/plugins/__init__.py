"""Runtimes of others: shared libraries with ftax/runner.h, and entry points of Python packages."""
