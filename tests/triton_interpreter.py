"""Where the cases of the Triton kernels run: on a GPU, or on the CPU under Triton's interpreter.

``TRITON_INTERPRET=1`` asks for the interpreter. It must be set before anything imports Triton, and then every
kernel of the process is interpreted, so such cases have a process of their own.

The interpreter is changed in four ways, to run under NumPy 2.4 and later and to run quickly:

- In the interpreter a scalar is an array of one element, and ``range(begin, end)`` asks it for its
  ``__index__``. NumPy 2.4 no longer turns an array that has a dimension into an int, so every loop with
  bounds from data fails (https://github.com/triton-lang/triton/issues/9171, mended after Triton 3.6). Here
  the element is taken out first.
- Whenever one kernel function calls another, the interpreter replaces all of ``triton.language`` again,
  around what it put there the time before. Here that is done once.
- Sums of integers are not computed a second time in 64 bits to see whether they overflow.
- A product of bfloat16 tiles is one of numbers. The interpreter holds bfloat16 as integers of 16 bits, which
  it would multiply.
"""

from __future__ import annotations

import os

import numpy as np
from triton.runtime import interpreter

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"

_replace_language = interpreter._patch_lang
_modules = {"core": interpreter.tl.core, "language": interpreter.tl}
_done: set[str] = set()
_narrow_dot = interpreter.InterpreterBuilder.create_dot


def _replace_once(function):
    used = {name for name, module in _modules.items() if module in function.__globals__.values()}
    scope = interpreter._LangPatchScope()
    if not used <= _done:
        scope = _replace_language(function)
        scope.set_attr(interpreter.tl.tensor, "__index__", lambda self: self.handle.data.item())
        scope._changes.clear()  # so that nothing is put back
        _done.update(used)
    return scope


def _widen(tile):
    if tile.dtype != interpreter.tl.bfloat16:
        return tile
    bits = tile.data.astype(np.uint32) << 16
    return interpreter.TensorHandle(bits.view(np.float32), interpreter.tl.float32)


def _dot(self, a, b, *rest):
    return _narrow_dot(self, _widen(a), _widen(b), *rest)


if INTERPRETED:
    interpreter.InterpreterBuilder.create_dot = _dot
    interpreter._patch_lang = _replace_once
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(sanitize_overflow=False)
