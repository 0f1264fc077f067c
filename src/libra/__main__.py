"""``python -m libra``."""

from libra.cli import main

main()
