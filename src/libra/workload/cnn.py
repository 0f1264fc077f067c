"""Convolutional networks as sizes: the ResNet family and VGG, for 224 x 224 images, 1,000 classes.

A convolution of edge k from c to n channels with e x e output pixels is the matrix product
(e^2, k^2 c) x (k^2 c, n) for each image.

References
----------
.. [1] He et al., "Deep residual learning for image recognition", CVPR 2016, arXiv 1512.03385,
   table 1; the first 1 x 1 convolution of a stage's first block halves the image, as there.
.. [2] Simonyan, Zisserman, "Very deep convolutional networks for large-scale image recognition",
   ICLR 2015, arXiv 1409.1556, table 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

__all__ = ["CNNS", "ConvLayer", "cnn_parameters"]


@dataclass(frozen=True)
class ConvLayer:
    """A convolution, or a fully connected layer as one of edge 1 on 1 pixel.

    Attributes
    ----------
    name : str
    edge, inputs, outputs, pixels : int
        k, c, n and e.
    norm : bool
        Batch normalisation follows (2 n parameters).
    bias : bool
        n biases.
    """

    name: str
    edge: int
    inputs: int
    outputs: int
    pixels: int
    norm: bool = False
    bias: bool = False

    @property
    def parameters(self) -> int:
        """Weights, normalisation and biases."""
        weights = self.edge**2 * self.inputs * self.outputs
        return weights + (2 * self.norm + self.bias) * self.outputs


def _resnet(blocks: tuple[int, ...], *, bottleneck: bool) -> Iterator[ConvLayer]:
    yield ConvLayer("conv1", 7, 3, 64, 112, norm=True)
    channels, pixels = 64, 56
    for stage, count in enumerate(blocks):
        width, pixels = 64 << stage, 56 >> stage
        wide = 4 * width if bottleneck else width
        for k in range(count):
            name = f"conv{stage + 2}_{k + 1}"
            shapes = (
                ((1, channels, width), (3, width, width), (1, width, wide))
                if bottleneck
                else ((3, channels, width), (3, width, width))
            )
            for j, (edge, inputs, outputs) in enumerate(shapes):
                yield ConvLayer(f"{name}_{j + 1}", edge, inputs, outputs, pixels, norm=True)
            if channels != wide:
                yield ConvLayer(f"{name}_shortcut", 1, channels, wide, pixels, norm=True)
            channels = wide
    yield ConvLayer("fc", 1, channels, 1000, 1, bias=True)


def _vgg(convolutions: tuple[int, ...]) -> Iterator[ConvLayer]:
    channels = 3
    for stage, count in enumerate(convolutions):
        width, pixels = min(64 << stage, 512), 224 >> stage
        for k in range(count):
            name = f"conv{stage + 1}_{k + 1}"
            yield ConvLayer(name, 3, channels, width, pixels, bias=True)
            channels = width
    for name, inputs, outputs in (
        ("fc6", 512 * 49, 4096),
        ("fc7", 4096, 4096),
        ("fc8", 4096, 1000),
    ):
        yield ConvLayer(name, 1, inputs, outputs, 1, bias=True)


CNNS: Mapping[str, Callable[[], Iterator[ConvLayer]]] = {
    "resnet-18": partial(_resnet, (2, 2, 2, 2), bottleneck=False),
    "resnet-34": partial(_resnet, (3, 4, 6, 3), bottleneck=False),
    "resnet-50": partial(_resnet, (3, 4, 6, 3), bottleneck=True),
    "resnet-101": partial(_resnet, (3, 4, 23, 3), bottleneck=True),
    "resnet-152": partial(_resnet, (3, 8, 36, 3), bottleneck=True),
    "vgg-11": partial(_vgg, (1, 1, 2, 2, 2)),
    "vgg-13": partial(_vgg, (2, 2, 2, 2, 2)),
    "vgg-16": partial(_vgg, (2, 2, 3, 3, 3)),
    "vgg-19": partial(_vgg, (2, 2, 4, 4, 4)),
}
"""Layers of each network, by name."""


def cnn_parameters(name: str) -> int:
    """Parameters of a network.

    Examples
    --------
    >>> cnn_parameters("resnet-50")
    25557032
    """
    return sum(layer.parameters for layer in CNNS[name]())
