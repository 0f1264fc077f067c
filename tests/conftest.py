"""Settings of the whole suite; `helpers` holds the shared builders."""

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile("libra", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("libra")


@pytest.fixture(scope="module")
def tool():
    """Module of the tool that derives the example workloads."""
    path = Path(__file__).parents[1] / "tools" / "derive_workloads.py"
    if not path.exists():
        pytest.skip("tools/ is not part of an installed package")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module
