"""`python -m ftax_run`."""

from ftax_run.cli import main

if __name__ == "__main__":
    main()
