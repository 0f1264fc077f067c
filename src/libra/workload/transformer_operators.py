"""Operators of a transformer on one NPU for one micro-batch, phase by phase.

Matrix products after Megatron-LM (Shoeybi et al. 2019, arXiv 1909.08053): tensor parallelism cuts
the columns of the first matrix of a pair and the rows of the second. What is neither product nor
attention moves each of its tensors to and from memory once, as kernels that fuse a chain of
elementwise operations do (bias, activation; bias, dropout, residual; norm). Attention that is not
fused writes its scores: product, softmax with mask, dropout, product.

A product (m, k) x (k, n) costs two in the backward pass: the input's gradient (m, n) x (n, k), and
the weight's (k, m) x (m, n), which is added to the sum over micro-batches; where ZeRO splits the
gradients, to the NPU's share of it after they were reduced.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from libra.workload.activations import Recomputation
from libra.workload.blocks import (
    Attention,
    Block,
    FeedForward,
    MixtureOfExperts,
    QueryKeyNorm,
    mean_keys,
)
from libra.workload.model import LayerKind, Model
from libra.workload.operators import Operator, OperatorKind, Precision
from libra.workload.training_plan import TrainingPlan

__all__ = [
    "OperatorWriter",
    "PhaseOperators",
    "block_operators",
    "block_sections",
    "head_operators",
    "input_operators",
    "update_operator",
]

_FP32_BYTES = 4
_MASK_BYTES = 1
_FUSED_BACKWARD = 2.5
"""FLOPs of the backward pass of fused attention over those of the forward pass: five products, one
of them the scores once more, against two (Dao 2023, arXiv 2307.08691, section 4.1)."""


@dataclass
class PhaseOperators:
    """Operators of a part of a model, by phase.

    Attributes
    ----------
    forward, input_gradient, weight_gradient : list of Operator
        Of the training step.
    recomputation : list of Operator
        What the backward pass computes again.
    """

    forward: list[Operator] = field(default_factory=list)
    input_gradient: list[Operator] = field(default_factory=list)
    weight_gradient: list[Operator] = field(default_factory=list)
    recomputation: list[Operator] = field(default_factory=list)

    def phases(self) -> tuple[list[Operator], ...]:
        """All four lists, in the order of the attributes."""
        return self.forward, self.input_gradient, self.weight_gradient, self.recomputation


class OperatorWriter:
    """Collects the operators of a part of a model."""

    def __init__(self, plan: TrainingPlan) -> None:
        self.plan, self.run = plan, plan.memory.activations
        self.found = PhaseOperators()
        self.core: list[Operator] = []
        self.begun: list[tuple[str, tuple[int, ...]]] = []

    def begin(self, name: str) -> None:
        """Begin a section: what is written from here on, up to the next one."""
        self.begun.append((name, tuple(len(phase) for phase in self.found.phases())))

    def sections(self) -> list[tuple[str, PhaseOperators]]:
        """Operators of each section; what the backward pass computes again is in none."""
        ends = [start for _, start in self.begun[1:]]
        ends.append(tuple(len(phase) for phase in self.found.phases()))
        return [
            (
                name,
                PhaseOperators(
                    *(
                        phase[a:b]
                        for phase, a, b in zip(self.found.phases(), start, end, strict=True)
                    )
                ),
            )
            for (name, start), end in zip(self.begun, ends, strict=True)
        ]

    def product(self, name: str, m: float, n: float, k: float, groups: int = 1) -> None:
        """A linear layer's three products; `groups` of them in one kernel."""
        memory = self.plan.memory
        wide, fused = memory.states.gradients, self.plan.fused_accumulation and memory.zero < 2
        add = self._matmul
        self.found.forward.append(add(name, m, n, k, groups))
        self.found.input_gradient.append(add(f"{name} input gradient", m, k, n, groups))
        # Fused, the sum over micro-batches is read and written.
        result = 2 * wide if fused else self.run.element
        self.found.weight_gradient.append(
            add(f"{name} weight gradient", k, n, m, groups, result=result)
        )
        if not fused:
            size = groups * k * n / (memory.replicas if memory.zero >= 2 else 1)
            self.found.weight_gradient.append(
                Operator(
                    OperatorKind.ELEMENTWISE,
                    0.0,
                    (self.run.element + wide) * size,
                    wide * size,
                    name=f"{name} accumulation",
                )
            )

    def _matmul(
        self, name: str, m: float, n: float, k: float, groups: int, result: float | None = None
    ) -> Operator:
        size = self.plan.precision.bytes
        out = self.run.element if result is None else result
        kind = OperatorKind.MATMUL if groups == 1 else OperatorKind.GROUPED_MATMUL
        return Operator(
            kind,
            2.0 * groups * m * n * k,
            groups * size * (m * k + k * n),
            groups * out * m * n,
            self.plan.precision,
            max(1, round(m)),
            max(1, round(n)),
            max(1, round(k)),
            name,
        )

    def move(self, name: str, forward: float, backward: float) -> None:
        """An elementwise operator that moves so many bytes in each pass."""
        kind = OperatorKind.ELEMENTWISE
        self.found.forward.append(Operator(kind, 0.0, forward / 2, forward / 2, name=name))
        self.found.input_gradient.append(
            Operator(kind, 0.0, backward / 2, backward / 2, name=f"{name} gradient")
        )

    def norm(self, name: str, elements: float) -> None:
        """A norm: reads and writes its elements; backward reads two tensors and writes one."""
        size = self.run.element * elements
        self.move(name, 2 * size, 3 * size)

    def add_residual(self, name: str, elements: float) -> None:
        """Bias, dropout and residual: reads two tensors, writes one (and a mask)."""
        mask = self.run.dropout * _MASK_BYTES * elements
        size = self.run.element * elements
        self.move(name, 3 * size + mask, 2 * size + mask)

    # --- attention -----------------------------------------------------------------------------

    def attention(self, attention: Attention, hidden: int, *, rotary: bool) -> None:
        """Projections and attention of one NPU's heads."""
        run, tokens = self.run, self.run.tokens
        queries = attention.query_width / run.tp
        kv_heads = max(attention.kv_heads / run.tp, 1)
        keys, values = kv_heads * attention.head_dim, kv_heads * attention.value_dim
        if attention.latent is not None:
            self._compress(attention, hidden)
        else:
            self.product("query, key, value", tokens, queries + keys + values, hidden)
        if attention.norm is not QueryKeyNorm.NONE:
            self.norm("query, key norm", tokens * (queries + keys))
        if rotary:
            size = run.element * tokens * (queries + keys)
            self.move("rotary positions", 2 * size, 2 * size)
        if run.fused_attention:
            self._fused(attention, queries, keys + values)
        else:
            self._unfused(attention)
        self.begin("attention_output")
        self.product("attention output", tokens, hidden, attention.output_width / run.tp)

    def _compress(self, attention: Attention, hidden: int) -> None:
        """Projections of latent attention; the compressing ones are whole on every member."""
        latent = attention.latent
        assert latent is not None
        run, tokens = self.run, self.run.tokens
        queries = attention.query_width / run.tp
        nope = attention.head_dim - latent.rope_dim
        if latent.query_rank:
            self.product("query down", tokens / run.whole, latent.query_rank, hidden)
            self.norm("query norm", tokens / run.whole * latent.query_rank)
            self.product("query up", tokens, queries, latent.query_rank)
        else:
            self.product("query", tokens, queries, hidden)
        rank = latent.key_value_rank
        self.product("key, value down", tokens / run.whole, rank + latent.rope_dim, hidden)
        self.norm("key, value norm", tokens / run.whole * rank)
        width = attention.heads * (nope + attention.value_dim) / run.tp
        self.product("key, value up", tokens, width, rank)

    def _fused(self, attention: Attention, queries: float, keys_values: float) -> None:
        run = self.run
        reach = mean_keys(attention, run.sequence, run.sequence)
        heads = attention.heads / run.tp
        width = attention.head_dim + attention.value_dim
        flops = 2.0 * run.tokens * reach * heads * width
        result = heads * attention.value_dim
        read = run.element * run.tokens * (queries + keys_values)
        write = run.element * run.tokens * result
        self._core(flops, read, write)

    def _core(self, flops: float, read: float, write: float) -> None:
        """Attention in one kernel; backward reads and writes gradients of all as well."""
        kind, precision = OperatorKind.ATTENTION, _at_least_16_bits(self.plan.precision)
        forward = Operator(kind, flops, read, write, precision, name="attention")
        self.found.forward.append(forward)
        self.core.append(forward)
        again = Operator(
            kind,
            _FUSED_BACKWARD * flops,
            2 * read + write,
            read + write,
            precision,
            name="attention gradient",
        )
        self.found.input_gradient.append(again)

    def _unfused(self, attention: Attention) -> None:
        """Scores of all keys, masked or not: product, softmax, dropout, product."""
        run = self.run
        heads = attention.heads / run.tp
        scores = run.tokens * run.sequence * heads
        groups = run.tokens / run.sequence * heads
        e, before = run.element, len(self.found.forward)
        self._batched("scores", groups, run.sequence, run.sequence, attention.head_dim)
        self.move("softmax", 2 * e * scores, 3 * e * scores)
        if run.dropout:
            size = (2 * e + _MASK_BYTES) * scores
            self.move("attention dropout", size, size)
        self._batched("values", groups, run.sequence, attention.value_dim, run.sequence)
        self.core += self.found.forward[before:]

    def _batched(self, name: str, groups: float, m: int, n: int, k: int) -> None:
        """A product of each head and sequence; both factors have gradients."""
        plan = self.plan
        found = self.found
        for into, of, (a, b, c) in (
            (found.forward, "", (m, n, k)),
            (found.input_gradient, " gradient", (m, k, n)),
            (found.input_gradient, " gradient", (k, n, m)),
        ):
            size = self.run.element * groups
            precision = _at_least_16_bits(plan.precision)
            into.append(
                Operator(
                    OperatorKind.GROUPED_MATMUL,
                    2.0 * groups * a * b * c,
                    size * (a * c + c * b),
                    size * a * b,
                    precision,
                    a,
                    b,
                    c,
                    f"{name}{of}",
                )
            )

    # --- feed-forward --------------------------------------------------------------------------

    def feed_forward(self, network: FeedForward, hidden: int, tokens: float, width: float) -> None:
        """Up, gate, activation, down of so many tokens."""
        ways = network.matrices - 1
        self.product("up", tokens, ways * width, hidden)
        size = self.run.element * tokens * width
        self.move("activation", (ways + 1) * size, (2 * ways + 1) * size)
        self.begin("feed_forward_output")
        self.product("down", tokens, hidden, width)

    def experts(self, mixture: MixtureOfExperts, hidden: int) -> None:
        """Router, visited experts (routing balanced), shared experts."""
        run, plan = self.run, self.plan
        here = run.tokens / run.whole
        self.product("router", here, mixture.experts, hidden)
        self.move(
            "routing", 4 * _FP32_BYTES * here * mixture.experts,
            2 * _FP32_BYTES * here * mixture.experts,
        )  # fmt: skip
        visits = run.tokens * mixture.active * run.expert_tp / run.tp * plan.capacity
        size = run.element * visits * hidden
        self.move("permutation", 2 * size, 2 * size)
        local = mixture.experts // plan.memory.ep
        width = mixture.expert.width / run.expert_tp
        expert, each = mixture.expert, visits / local
        ways = expert.matrices - 1
        self.product("expert up", each, ways * width, hidden, local)
        size = run.element * visits * width
        self.move("expert activation", (ways + 1) * size, (2 * ways + 1) * size)
        self.product("expert down", each, hidden, width, local)
        size = run.element * visits * hidden
        self.move("combination", 2 * size, 2 * size)
        if mixture.shared is not None:
            self.feed_forward(mixture.shared, hidden, run.tokens, mixture.shared.width / run.tp)


def _at_least_16_bits(precision: Precision) -> Precision:
    """Precision of attention where matrices are multiplied in one."""
    return precision if precision.bytes >= Precision.BF16.bytes else Precision.BF16


def block_operators(
    model: Model, block: Block, plan: TrainingPlan, *, rotary: bool = False
) -> PhaseOperators:
    """Operators of a block on one NPU for one micro-batch.

    Parameters
    ----------
    model : Model
        For its hidden size.
    block : Block
    plan : TrainingPlan
    rotary : bool
        Queries and keys are turned by their positions.
    """
    run = plan.memory.activations
    writer = _write_block(model, block, plan, rotary=rotary)
    found = writer.found
    if run.recomputation is Recomputation.FULL:
        found.recomputation = list(found.forward)
    elif run.recomputation is Recomputation.SELECTIVE and not run.fused_attention:
        found.recomputation = list(writer.core)
    return found


def block_sections(
    model: Model, block: Block, plan: TrainingPlan, *, rotary: bool = False
) -> list[tuple[str, PhaseOperators]]:
    """Operators of a block on one NPU, cut before each matrix or pair of them.

    Returns
    -------
    list of (str, PhaseOperators)
        ``attention`` (queries, keys and values, scores) and ``attention_output``, ``feed_forward``
        and ``feed_forward_output``, in the order of the forward pass; without recomputation.
    """
    return _write_block(model, block, plan, rotary=rotary).sections()


def _write_block(model: Model, block: Block, plan: TrainingPlan, *, rotary: bool) -> OperatorWriter:
    writer, run = OperatorWriter(plan), plan.memory.activations
    whole = run.tokens * model.hidden / run.whole
    attentions = [a for a in (block.attention, block.cross_attention) if a is not None]
    for attention in attentions:
        writer.begin("attention")
        writer.norm("norm", whole)
        writer.attention(attention, model.hidden, rotary=rotary)
        writer.add_residual("residual", whole)
    if block.feed_forward is not None:
        writer.begin("feed_forward")
        if not (block.parallel and block.norms == 1 and attentions):
            writer.norm("norm", whole)
        if isinstance(block.feed_forward, MixtureOfExperts):
            writer.experts(block.feed_forward, model.hidden)
        else:
            width = block.feed_forward.width / run.tp
            writer.feed_forward(block.feed_forward, model.hidden, run.tokens, width)
        writer.add_residual("residual", whole)
    for _ in range(block.norms - len(attentions) - 1):
        writer.norm("norm", whole)
    return writer


def input_operators(model: Model, plan: TrainingPlan) -> PhaseOperators:
    """Operators before the blocks: token embedding and the model's other layers at its input."""
    writer, run = OperatorWriter(plan), plan.memory.activations
    size = run.element * run.tokens * model.token_width
    if model.vocabulary:
        kind = OperatorKind.EMBEDDING
        writer.found.forward.append(Operator(kind, 0.0, size, size, name="token embedding"))
        writer.found.weight_gradient.append(
            Operator(kind, 0.0, 2 * size, size, name="token embedding gradient")
        )
    _outer_layers(writer, model, first=True)
    return writer.found


def head_operators(model: Model, plan: TrainingPlan) -> PhaseOperators:
    """Operators after the blocks: final norm, language-model head and loss, other layers."""
    writer, run = OperatorWriter(plan), plan.memory.activations
    _outer_layers(writer, model, first=False)
    if model.lm_head:
        columns = model.vocabulary / run.tp
        writer.product("head", run.tokens, columns, model.token_width)
        logits = run.tokens * columns
        # Read, written in 32 bits, read for maximum, exponentials and sum; gradient written.
        writer.move(
            "loss", (run.element + 3 * _FP32_BYTES) * logits, (run.element + _FP32_BYTES) * logits
        )
    return writer.found


def _outer_layers(writer: OperatorWriter, model: Model, *, first: bool) -> None:
    run = writer.run
    for layer in model.before if first else model.after:
        tokens = run.tokens if layer.kind is not LayerKind.POOLED else float(run.micro_batch)
        if layer.kind in (LayerKind.MATRIX, LayerKind.POOLED):
            writer.product(layer.name, tokens, layer.outputs, layer.inputs)
        elif layer.kind is LayerKind.VECTOR:
            writer.norm(layer.name, tokens * layer.outputs / run.whole)
        else:
            size = run.element * tokens * layer.outputs / run.whole
            writer.move(layer.name, 3 * size, 2 * size)


def update_operator(parameters: float, plan: TrainingPlan) -> Operator:
    """Optimiser step of so many parameters: reads states and gradients, writes states and weights.

    Parameters
    ----------
    parameters : float
        Those that this NPU updates.
    plan : TrainingPlan
        For the bytes a parameter.
    """
    states = plan.memory.states
    read = states.optimizer + states.gradients
    written = states.optimizer + states.weights
    return Operator(
        OperatorKind.OPTIMIZER, 0.0, read * parameters, written * parameters, name="optimiser"
    )
