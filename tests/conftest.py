"""Settings of the whole suite; `helpers` holds the shared builders."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile("libra", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("libra")
