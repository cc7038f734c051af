"""`python -m rendergen` is the `rendergen` command."""

import sys

from rendergen.cli import main

if __name__ == "__main__":
    sys.exit(main())
