"""Exercises: a check runs a reader's own function and says, in a sentence and a picture, what went wrong.

- `attnlab.exercises.segments`, `ring` and `tiles` hold the exercises on packed sequences, on ring buffers and
  on tiles, and `ring_more` three more on bugs in ring buffers that shipped. An exercise is called with the
  reader's function.
- `segments_bugs`, `ring_bugs` and `tiles_bugs` hold the functions in which a bug is to be found.
- `attnlab.exercises.check` is what an exercise is made of: cases chosen by hand, inputs that hypothesis
  draws, limits on memory and on reading. Its parts are `result` (what the reader sees), `answers` (how
  answers are compared and put into words) and `counting_row` (a row that counts how often it is read).
- `segments_cases`, `ring_cases`, `ring_more_cases` and `tiles_cases` hold the inputs of those exercises, and
  their pictures.
- `attnlab.exercises.rows` draws packed batches. The tests of `attnlab.segments` draw from the same
  strategies, so an answer that passes has met what the package itself has met.

Solutions are in ``notebooks/solutions``, and the tests run them. The package needs hypothesis, which the
extras ``notebooks`` and ``test`` install.
"""
