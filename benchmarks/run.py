"""Measure what a user waits for, and the same problems by other open ways: see `command`."""

import sys

from command import main

if __name__ == "__main__":
    sys.exit(main())
