"""Whole sequences at once: prefill, forward and backward, and the distance to float64."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from attnlab.bench.case import Report
from attnlab.bench.memory import torch_peak
from attnlab.bench.ring_ways import (
    CAUSAL,
    FLEX,
    MASKED,
    MOST_MASKED,
    OURS,
    compiled_flex,
    eager_ways,
    inputs,
    setting,
    skip,
)
from attnlab.bench.rows import Param

ERROR = "largest error"
NO_BACKWARD = "FlexAttention has no backward on the CPU"


def prefill(report: Report, tokens: int, window: int, repeats: int | None) -> None:
    """Time one forward pass of every way, interleaved; compiling is timed by itself."""
    import torch

    place = setting()
    params: dict[str, Param] = {"device": place.device, "S": tokens, "W": window}
    q, k, v = inputs(place, tokens)
    ways = eager_ways(place, tokens, window, _chosen(report, tokens, params, MOST_MASKED))
    flex = compiled_flex(report, place, tokens, window, q, k, v, **params)
    if flex is not None:
        ways[FLEX] = flex
    with torch.no_grad():
        report.time(
            {name: partial(way, q, k, v) for name, way in ways.items()},
            params=params,
            baseline=OURS,
            repeats=repeats,
        )


def forward_backward(report: Report, tokens: int, window: int, repeats: int | None) -> None:
    """Time a forward and a backward pass of every way that has one, and take the peaks of the eager ones.

    The peak is of what lives from the start of the forward pass to the end of the backward pass, above the
    inputs. What a fused kernel keeps to itself is not in it.
    """
    place = setting()
    params: dict[str, Param] = {"device": place.device, "S": tokens, "W": window}
    given = inputs(place, tokens, grad=True)
    # Half of that here: what the table leaves in the caches and the memory would slow the others.
    ways = eager_ways(place, tokens, window, _chosen(report, tokens, params, MOST_MASKED // 2))
    eager = list(ways)
    if place.device == "cuda":
        flex = compiled_flex(report, place, tokens, window, *given, **params)
        if flex is not None:
            ways[FLEX] = flex
    else:
        skip(report, FLEX, NO_BACKWARD, **params)
    steps = {name: _step(way, given) for name, way in ways.items()}
    report.time(steps, params=params, baseline=OURS, repeats=repeats)
    for name in eager:
        report.peak(name, torch_peak(steps[name], device=place.device), params=params, baseline=OURS)


def errors(report: Report, tokens: int, window: int) -> None:
    """The largest distance of outputs and gradients from dense attention in float64."""
    from attnlab.ring import sliding_window_attention

    place = setting()
    given = inputs(place, tokens, grad=True)
    exact = tuple(x.detach().double().requires_grad_() for x in given)
    expected = _step(partial(sliding_window_attention, window=window, impl="reference"), exact)()
    for name, way in eager_ways(place, tokens, window, (OURS, MASKED)).items():
        for tensor, got, want in zip(("out", "dq", "dk", "dv"), _step(way, given)(), expected, strict=True):
            far = float((got.double() - want).abs().max())
            params: dict[str, Param] = {"device": place.device, "S": tokens, "W": window, "tensor": tensor}
            report.add(name, ERROR, far, "", params=params, baseline=OURS)


def _chosen(report: Report, tokens: int, params: dict[str, Param], most: int) -> tuple[str, ...]:
    if tokens <= most:
        return OURS, CAUSAL, MASKED
    skip(report, MASKED, f"its table has {tokens} x {tokens} entries", **params)
    return OURS, CAUSAL


def _step(
    way: Callable[[Any, Any, Any], Any], given: tuple[Any, ...]
) -> Callable[[], tuple[Any, Any, Any, Any]]:
    """A function that runs `way` forward and backward, and returns the output and the three gradients."""
    import torch

    def step() -> tuple[Any, Any, Any, Any]:
        out = way(*given)
        # The gradient that comes in is q: fixed numbers of the right shape, the same for every way.
        return (out.detach(), *torch.autograd.grad(out, given, given[0].detach()))

    return step
