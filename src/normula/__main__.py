"""`python -m normula`."""

import sys

from normula.cli import main

if __name__ == "__main__":
    sys.exit(main())
