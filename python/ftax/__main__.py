"""`python -m ftax`, for a machine on which the command is not on the path."""

from ftax.cli import main

if __name__ == "__main__":
    main()
