"""`python -m ftax_run`."""

from ftax_run.cli import main

main()
