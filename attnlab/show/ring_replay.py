"""Tokens enter a ring, step by step: the frames are drawn from a real cache that is being appended to."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from attnlab.ring import laws
from attnlab.show.card import open_card
from attnlab.show.picture import Picture
from attnlab.show.replay import Frame, Replay, replay
from attnlab.show.ring_picture import RingScene, check_scene, ring_picture
from attnlab.show.ring_state import RingState, read_ring
from attnlab.show.svg import Svg

__all__ = ["ring_explorer_picture", "ring_replay", "ring_states"]


def ring_states(
    capacity: int, window: int, steps: Sequence[int], padded: Collection[int] = ()
) -> list[RingState]:
    """Append to a `RingCache` and read it after every call.

    Parameters
    ----------
    capacity, window : int
        C and W.
    steps : sequence of int
        Tokens of each call; a negative number takes as many back.
    padded : collection of int
        Positions whose tokens are padding.

    Returns
    -------
    list of RingState
        The empty ring first, then one for each step.

    Raises
    ------
    TypeError, ValueError
        As `RingCache` and its methods raise: a law that a step breaks is said as the cache says it.
    """
    import torch

    from attnlab.ring.cache import RingCache

    cache = RingCache(1, 1, 1, capacity, window=window)
    states = [read_ring(cache)]
    for step in steps:
        if step < 0:
            cache.rollback(-step)
        else:
            rows = torch.zeros(1, 1, laws.whole("steps", step), 1)
            marks = [p in padded for p in range(cache.position, cache.position + step)]
            cache.append(rows, rows, torch.tensor([marks]) if any(marks) else None)
        states.append(read_ring(cache, chunk=max(step, 0)))
    return states


def ring_replay(
    capacity: int = 16,
    window: int = 12,
    steps: Sequence[int] = (1,) * 40,
    *,
    padded: Collection[int] = (),
    title: str = "Tokens enter a ring",
) -> Replay:
    """Replay tokens entering a ring, one call a step; the first step is the empty ring.

    Parameters
    ----------
    capacity, window, steps, padded
        As in `ring_states`.
    title
        Title of the whole.

    Returns
    -------
    Replay

    Raises
    ------
    TypeError, ValueError
        As `ring_states` raises, or if there are too many slots to be drawn.
    """
    states = ring_states(capacity, window, steps, padded)
    tokens = max(capacity, *(state.highest for state in states))
    check_scene(capacity, tokens, tokens)
    canvas, top = open_card(RingScene.WIDTH, RingScene.HEIGHT, title=None, sentence="")
    scene = RingScene(top, capacity, tokens)
    scene.draw_base(canvas, window)
    said = f"A ring of {capacity} slots."
    base = Picture(canvas.render(title="", sentence=said), said)
    frames = []
    for state in states:
        overlay = Svg(*base.size)
        scene.draw_state(overlay, state)
        frames.append(Frame(overlay.inner(), state.sentence))
    return replay(base, frames, title)


def ring_explorer_picture(capacity: int = 16, window: int = 12, chunk: int = 1, tokens: int = 38) -> Picture:
    """Draw a ring after so many tokens, for an explorer.

    Parameters
    ----------
    capacity, window : int
        C and W.
    chunk : int
        Tokens of each call; the last call has what is left.
    tokens : int
        Tokens written in all.

    Raises
    ------
    TypeError, ValueError
        As `ring_states` raises, or if there are too many slots to be drawn.
    """
    chunk = laws.whole("chunk", chunk, least=1)
    steps = [chunk] * (tokens // chunk) + ([tokens % chunk] if tokens % chunk else [])
    return ring_picture(ring_states(capacity, window, steps)[-1])
