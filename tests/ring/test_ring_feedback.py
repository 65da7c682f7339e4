"""The right shift moves no byte, and a decoder fed from the buffer equals teacher forcing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.bench.memory import torch_peak
from attnlab.ring.feedback import FeedbackBuffer, right_shift


def sequence(steps: int, dim: int = 3, batch: int = 2) -> torch.Tensor:
    """[B, steps, dim]: distinct everywhere."""
    return torch.arange(batch * steps * dim, dtype=torch.float32).reshape(batch, steps, dim) + 1


def pad_and_slice(outputs: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(outputs, (0, 0, 1, 0))[:, : outputs.shape[1]]


def joined(runs: tuple[torch.Tensor, ...], dim: int = 3, batch: int = 2) -> torch.Tensor:
    return torch.cat([torch.empty(batch, 0, dim), *runs], dim=1)


def address(x: torch.Tensor) -> int:
    return x.untyped_storage().data_ptr()


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_the_right_shift_equals_pad_and_slice_in_the_same_storage(steps):
    outputs = sequence(steps)
    rows = torch.cat([torch.zeros(2, 1, 3), outputs], dim=1)
    shifted, same = right_shift(rows)
    assert torch.equal(same, outputs) and torch.equal(shifted, pad_and_slice(outputs))
    assert address(shifted) == address(same) == address(rows)
    assert same.storage_offset() - shifted.storage_offset() == 3  # the pointer minus one row
    assert torch_peak(right_shift, rows).peak_bytes == 0


def test_gradients_of_inputs_and_outputs_meet_in_the_rows():
    rows = torch.randn(1, 4, 2, requires_grad=True)
    inputs, outputs = right_shift(rows)
    (grad,) = torch.autograd.grad(inputs.sum() + 10 * outputs.sum(), rows)
    assert grad[0, :, 0].tolist() == [1, 11, 11, 10]


def test_inputs_are_views_one_row_before_the_outputs():
    buffer = FeedbackBuffer(2, 8, 3)
    outputs = sequence(6)
    buffer.append(outputs)
    (read,), (fed,) = buffer.outputs(0, 6), buffer.inputs(0, 6)
    assert torch.equal(read, outputs) and torch.equal(fed, pad_and_slice(outputs))
    assert address(read) == address(fed)
    assert read.storage_offset() - fed.storage_offset() == 3
    assert read.data_ptr() - fed.data_ptr() == 3 * 4
    assert torch_peak(buffer.inputs, 0, 7).peak_bytes == 0
    assert torch.equal(buffer.inputs(6, 7)[0][:, 0], outputs[:, 5])  # the next step can be fed


@settings(max_examples=60)
@given(st.integers(1, 7), st.lists(st.integers(0, 7) | st.integers(-4, -1), max_size=25))
def test_any_appends_and_rollbacks_read_like_a_list(capacity, moves):
    buffer = FeedbackBuffer(2, capacity, 3)
    home = buffer.inputs(0, 1)[0].untyped_storage().data_ptr()
    fresh = iter(range(10_000))
    model: list[float] = []
    highest = 0
    for move in moves:
        if move < 0:
            back = min(-move, len(model), len(model) - max(0, highest - capacity))
            buffer.rollback(back)
            del model[len(model) - back :]
        else:
            new = [float(next(fresh)) + 1 for _ in range(min(move, capacity))]
            buffer.append(torch.tensor(new)[None, :, None].expand(2, -1, 3))
            model += new
        highest = max(highest, len(model))
        n, first = len(model), max(0, highest - capacity)
        assert (buffer.position, buffer.highest) == (n, highest)
        outputs, inputs = buffer.outputs(first, n), buffer.inputs(first, n + 1)
        assert joined(outputs)[1, :, 2].tolist() == model[first:]
        assert joined(inputs)[1, :, 2].tolist() == [0.0, *model][first:]
        assert len(outputs) <= 2 and len(inputs) <= 2
        assert all(address(run) == home for run in (*outputs, *inputs))


def test_storage_never_moves_and_grows_over_many_wraps():
    buffer = FeedbackBuffer(1, 4, 2)
    (row,) = buffer.inputs(0, 1)
    home, size = address(row), row.untyped_storage().nbytes()
    assert size == 1 * (4 + 1) * 2 * 4
    for t in range(1000):
        buffer.append(torch.full((1, 1, 2), float(t)))
        (fed,) = buffer.inputs(t + 1, t + 2)
        assert fed[0, 0, 0] == t and address(fed) == home
    assert fed.untyped_storage().nbytes() == size


class ToyDecoder(torch.nn.Module):
    """Mixes each input with the mean of itself and the three before it."""

    def __init__(self, dim: int):
        super().__init__()
        self.mix = torch.nn.Linear(2 * dim, dim, dtype=torch.float64)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        padded = torch.nn.functional.pad(inputs, (0, 0, 3, 0))
        recent = padded.unfold(1, 4, 1).mean(dim=-1)
        return torch.tanh(self.mix(torch.cat([inputs, recent], dim=-1)))


def test_step_by_step_decoding_equals_teacher_forcing():
    torch.manual_seed(0)
    decoder, start = ToyDecoder(5), torch.randn(2, 5, dtype=torch.float64)
    buffer = FeedbackBuffer(2, 4, 5, start=start, dtype=torch.float64)
    produced = []
    for t in range(23):  # several times round a ring of four steps
        inputs = torch.cat(buffer.inputs(max(0, t - 3), t + 1), dim=1)
        with torch.no_grad():
            output = decoder(inputs)[:, -1:]
        buffer.append(output)
        produced.append(output)
    rows = torch.cat([start[:, None], *produced], dim=1)
    inputs, outputs = right_shift(rows)
    torch.testing.assert_close(decoder(inputs), outputs, atol=1e-14, rtol=0)


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_the_start_row_is_the_first_input_and_is_copied(shape):
    start = torch.randn(shape, requires_grad=True)
    buffer = FeedbackBuffer(2, 4, 3, start=start)
    (first,) = buffer.inputs(0, 1)
    assert torch.equal(first[:, 0], start.detach().expand(2, 3))
    assert not first.requires_grad and address(first) != address(start)
    assert buffer.outputs(0, 0) == ()


def test_nothing_is_recorded_for_autograd():
    buffer = FeedbackBuffer(2, 4, 3)
    buffer.append(sequence(2).requires_grad_())
    assert not buffer.outputs(0, 2)[0].requires_grad


def test_a_state_that_is_saved_and_loaded_goes_on_alike():
    one = FeedbackBuffer(2, 5, 3)
    for chunk in sequence(12).split(4, dim=1):
        one.append(chunk)
    one.rollback(2)
    state = one.state_dict()
    other = FeedbackBuffer(2, 5, 3)
    home = address(other.inputs(0, 1)[0])
    other.load_state_dict(state)
    for buffer in (one, other):
        buffer.append(-sequence(1))
    assert (other.position, other.highest) == (11, 12)
    assert torch.equal(joined(one.inputs(7, 12)), joined(other.inputs(7, 12)))
    assert address(other.inputs(11, 12)[0]) == home
    assert address(state["rows"]) != home  # a copy


def filled(highest: int, back: int = 0) -> FeedbackBuffer:
    buffer = FeedbackBuffer(2, 4, 3)
    for _ in range(highest):
        buffer.append(torch.ones(2, 1, 3))
    buffer.rollback(back)
    return buffer


def test_steps_that_are_gone_or_not_yet_there_are_refused():
    buffer = filled(10)
    assert len(joined(buffer.outputs(6, 10))[0]) == 4 and len(joined(buffer.inputs(6, 11))[0]) == 5
    for read in (buffer.outputs, buffer.inputs):
        with pytest.raises(ValueError, match="first must be at least highest - capacity, 6: .*got 5"):
            read(5, 8)
        with pytest.raises(ValueError, match="stop must be at least 8; got 7"):
            read(8, 7)
    with pytest.raises(ValueError, match="stop must be at most 10, with 10 outputs written; got 11"):
        buffer.outputs(8, 11)
    with pytest.raises(ValueError, match="stop must be at most 11"):
        buffer.inputs(8, 12)


def test_rollbacks_together_reach_back_as_far_as_the_capacity():
    buffer = filled(10)
    buffer.rollback(3)
    buffer.rollback(1)
    with pytest.raises(
        ValueError, match="feedback law: .*got position 5, highest 10 and capacity 4, and 5 < 6"
    ):
        buffer.rollback(1)
    assert buffer.position == 6
    with pytest.raises(ValueError, match="r must be at most the outputs written, 3; got 4"):
        filled(3).rollback(4)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (dict(batch_size=0), ValueError, "batch_size must be at least 1"),
        (dict(capacity=0), ValueError, "capacity must be at least 1"),
        (dict(dim=2.0), TypeError, "dim must be an int; got float"),
        (dict(dtype=torch.int64), TypeError, "dtype must be one of .*got torch.int64"),
        (dict(start=[0.0]), TypeError, "start must be a torch Tensor; got list"),
        (dict(start=torch.zeros(4)), ValueError, r"start must have shape \[3\]; got \[4\]"),
        (dict(start=torch.zeros(3, 3)), ValueError, r"start must have shape \[2, 3\]; got \[3, 3\]"),
        (dict(start=torch.zeros(3).double()), TypeError, "start must have dtype torch.float32"),
    ],
)
def test_bad_construction_names_the_argument(bad, error, message):
    with pytest.raises(error, match=message):
        FeedbackBuffer(**(dict(batch_size=2, capacity=4, dim=3) | bad))


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("outputs", "error", "message"),
    [
        ([1.0], TypeError, "outputs must be a torch Tensor; got list"),
        (sequence(1).double(), TypeError, "outputs must have dtype torch.float32; got torch.float64"),
        (sequence(1, dim=4), ValueError, r"outputs must have shape \[2, any, 3\]; got \[2, 1, 4\]"),
        (sequence(5), ValueError, "outputs must be at most the capacity, 4 steps; got 5"),
        (sequence(1).to("meta"), ValueError, "outputs must be on cpu; got meta"),
    ],
)
def test_a_bad_append_is_named_and_writes_nothing(outputs, error, message):
    buffer = filled(2)
    with pytest.raises(error, match=message):
        buffer.append(outputs)
    assert buffer.position == 2 and torch.equal(joined(buffer.outputs(0, 2)), torch.ones(2, 2, 3))


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (None, TypeError, "state_dict must be a mapping; got NoneType"),
        (dict(more=1), ValueError, "state_dict must have the entries position, highest, rows"),
        (dict(position=11), ValueError, "'position'.* must be at most 'highest', 10; got 11"),
        (dict(position=5), ValueError, "feedback law"),
        (dict(highest=1.0), TypeError, r"state_dict\['highest'\] must be an int"),
        (dict(rows=torch.zeros(2, 4, 3)), ValueError, r"state_dict\['rows'\] must have shape \[2, 5, 3\]"),
    ],
)
def test_a_bad_state_is_named_and_changes_nothing(change, error, message):
    buffer, state = filled(3), filled(10).state_dict()
    with pytest.raises(error, match=message):
        buffer.load_state_dict(None if change is None else state | change)
    assert buffer.position == 3 and torch.equal(joined(buffer.outputs(0, 3)), torch.ones(2, 3, 3))


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([[1.0]], TypeError, "rows must be a floating torch Tensor; got list"),
        (torch.zeros(1, 2, 3).int(), TypeError, "rows must be a floating torch Tensor; got torch.int32"),
        (torch.zeros(2, 3), ValueError, r"rows must have shape \[batch, 1 \+ outputs, dim\]; got \[2, 3\]"),
        (torch.zeros(1, 0, 3), ValueError, r"rows must have shape .*got \[1, 0, 3\]"),
    ],
)
def test_a_bad_sequence_to_shift_is_named(rows, error, message):
    with pytest.raises(error, match=message):
        right_shift(rows)
