"""Layer by layer description of a training step, before it is ordered into a graph."""

from __future__ import annotations

from dataclasses import dataclass

from libra.collectives import Collective

__all__ = ["Layer", "Phase"]


@dataclass(frozen=True)
class Phase:
    """One phase of a layer: compute, then at most one collective.

    Attributes
    ----------
    compute : float
        [s]
    collective : Collective or None
        What follows the compute; None: nothing.
    """

    compute: float
    collective: Collective | None = None


@dataclass(frozen=True)
class Layer:
    """One layer of the model on one NPU.

    Attributes
    ----------
    name : str
        Its name.
    forward, input_gradient, weight_gradient : Phase
        The phases of a training step.
    update : float
        Optimiser's update of the layer's weights [s].
    recomputation : Phase or None
        Its forward phase where the backward pass runs it a second time; None: it does not.
    """

    name: str
    forward: Phase
    input_gradient: Phase
    weight_gradient: Phase
    update: float = 0.0
    recomputation: Phase | None = None
