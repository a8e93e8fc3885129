"""``python -m mxref`` is the ``mxref`` command."""

from mxref.cli import main

if __name__ == "__main__":
    main()
