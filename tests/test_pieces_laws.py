"""Laws of collective times, for all algorithms, kinds, chunks, latencies and efficiencies."""

import dataclasses

import numpy as np
import pytest
from helpers import collective, network
from hypothesis import given
from hypothesis import strategies as st
from test_pieces import (
    BALANCED,
    CHUNKS,
    IDEAL,
    MULTI,
    REDUCING,
    collective_time,
    random_bandwidth,
    random_case,
)

from libra.collectives import Algorithm, CollectiveKind, CollectiveModel
from libra.pieces import Schedule, best_schedule
from libra.placement import Group

seeds = st.integers(0, 2**32 - 1)
algorithms = pytest.mark.parametrize("algorithm", list(Algorithm))
any_chunks = pytest.mark.parametrize("chunks", CHUNKS)
