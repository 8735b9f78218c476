"""`python -m relevo.cli`."""

from relevo.cli import main

if __name__ == "__main__":
    main()
