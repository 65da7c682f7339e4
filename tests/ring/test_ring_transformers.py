"""A tiny Mistral says the same through our ring as through transformers' own sliding-window caches."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import torch

transformers = pytest.importorskip("transformers")

from transformers import DynamicCache, MistralConfig, MistralForCausalLM, StaticCache  # noqa: E402

from attnlab.ring import transformers as ring_transformers  # noqa: E402
from attnlab.ring.transformers_layer import RingLayer  # noqa: E402

NAME = ring_transformers.NAME
ring_attention, ring_mask = ring_transformers.ring_attention, ring_transformers.ring_mask
ring_cache, use_ring_attention = ring_transformers.ring_cache, ring_transformers.use_ring_attention

WINDOW, PAD, VOCABULARY = 16, 0, 61


def tiny(**changes):
    torch.manual_seed(7)
    settings = dict(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=WINDOW,
        max_position_embeddings=512,
        pad_token_id=PAD,
        eos_token_id=None,
        initializer_range=0.5,  # wide, so that what attention does decides the next token
    )
    return MistralForCausalLM(MistralConfig(**settings | changes)).eval()


@pytest.fixture(scope="module")
def models():
    """The same model twice: by transformers' own attention, and by ours."""
    theirs, ours = tiny(), tiny()
    use_ring_attention(ours)
    return theirs, ours


def prompt(tokens, rows=2, seed=0, padding=()):
    """Token ids and their mask; row i begins with padding[i] tokens of padding."""
    ids = torch.randint(1, VOCABULARY, (rows, tokens), generator=torch.Generator().manual_seed(seed))
    mask = torch.ones_like(ids)
    for row, amount in enumerate(padding):
        ids[row, :amount], mask[row, :amount] = PAD, 0
    return ids, mask


def generate(model, ids, mask, cache, new=40, **options):
    return model.generate(
        ids, attention_mask=mask, past_key_values=cache, max_new_tokens=new, do_sample=False, **options
    )


def their_caches(config, longest=512):
    return {
        "dynamic": DynamicCache(config=config),
        "static": StaticCache(config=config, max_cache_len=longest),
    }


# --- Generation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "prefill_size"), [(1, 4), (5, 4), (16, 1), (17, 8), (50, 8), (50, 512)])
@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_greedy_generation_is_token_identical_over_several_wraps(models, tokens, prefill_size, kind):
    theirs, ours = models
    ids, mask = prompt(tokens)
    cache = ring_cache(ours.config, prefill_size=prefill_size)
    got = generate(ours, ids, mask, cache)
    want = generate(theirs, ids, mask, their_caches(theirs.config)[kind])
    assert got.tolist() == want.tolist()
    assert len(set(got[:, tokens:].flatten().tolist())) > 8  # it does not repeat one token
    if prefill_size == 1:
        assert cache.layers[0].ring.position >= 3 * cache.layers[0].capacity


def test_the_window_matters_to_what_is_generated(models):
    """Otherwise equality would show little."""
    ids, mask = prompt(50)
    wide = tiny(sliding_window=WINDOW + 1)
    near = generate(models[0], ids, mask, DynamicCache(config=models[0].config))
    assert near.tolist() != generate(wide, ids, mask, DynamicCache(config=wide.config)).tolist()


@pytest.mark.parametrize("tokens", [9, 40])
def test_left_padding_equals_theirs_and_the_rows_alone(models, tokens):
    theirs, ours = models
    padding = (0, 3, 8)
    ids, mask = prompt(tokens, rows=3, padding=padding)
    got = generate(ours, ids, mask, ring_cache(ours.config, prefill_size=6))
    assert got.tolist() == generate(theirs, ids, mask, DynamicCache(config=theirs.config)).tolist()
    for row, amount in enumerate(padding):
        alone, ones = ids[row : row + 1, amount:], mask[row : row + 1, amount:]
        single = generate(ours, alone, ones, ring_cache(ours.config))
        assert single[0].tolist() == got[row, amount:].tolist()


def test_a_prompt_of_padding_longer_than_the_window_gives_numbers(models):
    theirs, ours = models
    ids, mask = prompt(3 * WINDOW, padding=(0, 2 * WINDOW + 5))
    got = generate(ours, ids, mask, ring_cache(ours.config, prefill_size=7))
    assert got.tolist() == generate(theirs, ids, mask, DynamicCache(config=theirs.config)).tolist()


@pytest.mark.parametrize(
    "options", [{"num_beams": 3}, {"prompt_lookup_num_tokens": 3}, {"prefill_chunk_size": 5}]
)
def test_beams_guesses_and_chunks(models, options):
    """Beam search reorders the batch, prompt lookup rolls back what was guessed wrongly."""
    theirs, ours = models
    ids, mask = prompt(30, rows=1)
    ids = torch.cat([ids[:, :15], ids[:, :15]], dim=1)
    got = generate(ours, ids, mask, ring_cache(ours.config, prefill_size=16), **options)
    assert got.tolist() == generate(theirs, ids, mask, DynamicCache(config=theirs.config), **options).tolist()


# --- Calls by hand ------------------------------------------------------------------------------------------


@torch.no_grad()
def logits(model, ids, mask, cache, chunks):
    out, start = [], cache.get_seq_length()
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    for size in chunks:
        stop = start + size
        step = model(
            ids[:, start:stop],
            attention_mask=mask[:, :stop],
            position_ids=positions[:, start:stop],
            past_key_values=cache,
        )
        out.append(step.logits)
        start = stop
    return torch.cat(out, dim=1)


@pytest.mark.parametrize("padding", [(), (2, 11)])
@pytest.mark.parametrize("chunks", [(50,), (1,) * 50, (7, 1, 1, 20, 1, 16, 4), (17, 1, 15, 1, 16)])
def test_chunks_and_single_steps_mixed(models, chunks, padding):
    theirs, ours = models
    ids, mask = prompt(50, padding=padding)
    got = logits(ours, ids, mask, ring_cache(ours.config, prefill_size=5), chunks)
    want = logits(theirs, ids, mask, DynamicCache(config=theirs.config), chunks)
    real = mask.bool()
    torch.testing.assert_close(got[real], want[real], rtol=1e-4, atol=1e-4)
    assert got.isfinite().all()
    assert (got[real].argmax(-1) == want[real].argmax(-1)).all()


def test_storage_does_not_move_and_has_the_size_that_is_promised(models):
    ids, mask = prompt(60)
    cache = ring_cache(models[1].config, prefill_size=4)
    logits(models[1], ids, mask, cache, (4,))
    rings = [layer.ring for layer in cache.layers]
    places = [ring.k.data_ptr() for ring in rings]
    logits(models[1], ids, mask, cache, (10, 1, 1, 30))
    assert [layer.ring.k.data_ptr() for layer in cache.layers] == places
    assert rings[0].capacity == WINDOW - 1 + 4
    assert rings[0].storage_bytes == 2 * 2 * 2 * rings[0].capacity * 16 * 4  # head_dim 8 on a 64-byte line


def test_without_a_cache_the_function_sets_causal_and_window_itself(models):
    theirs, ours = models
    ids, _ = prompt(40)
    got = ours(ids, use_cache=False).logits
    want = theirs(ids, use_cache=False).logits
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("padding", [(), (3, 24)])
def test_without_a_cache_gradients_are_theirs(padding):
    theirs, ours = tiny(), tiny()
    use_ring_attention(ours)
    ids, mask = prompt(40, padding=padding)
    labels = ids.masked_fill(mask == 0, -100)
    for model in (theirs, ours):
        model(ids, attention_mask=mask, labels=labels, use_cache=False).loss.backward()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-3, atol=1e-4)


def test_transformers_own_dynamic_cache_works_with_our_attention(models):
    theirs, ours = models
    ids, mask = prompt(50, padding=(0, 5))
    chunks = (7, 1, 1, 20, 1, 20)
    got = logits(ours, ids, mask, DynamicCache(config=ours.config), chunks)
    want = logits(theirs, ids, mask, DynamicCache(config=theirs.config), chunks)
    real = mask.bool()
    torch.testing.assert_close(got[real], want[real], rtol=1e-4, atol=1e-4)


# --- What a cache can do besides ----------------------------------------------------------------------------


def test_crop_takes_back_and_generation_goes_on_as_if_nothing_had_been(models):
    _, ours = models
    ids, mask = prompt(60)
    straight = logits(ours, ids, mask, ring_cache(ours.config, prefill_size=8), (40, 20))[:, -20:]
    cache = ring_cache(ours.config, prefill_size=8)
    wrong = ids.clone()
    wrong[:, 40:] = 1
    logits(ours, wrong, mask, cache, (40, 8))
    cache.crop(-8)
    assert cache.get_seq_length() == 40
    torch.testing.assert_close(logits(ours, ids, mask, cache, (20,)), straight, rtol=1e-4, atol=1e-4)


@pytest.mark.unchecked
def test_crop_says_what_it_cannot_do(models):
    ids, mask = prompt(60)
    cache = ring_cache(models[1].config, prefill_size=8)
    logits(models[1], ids, mask, cache, (50,))
    with pytest.raises(ValueError, match="rollback law"):
        cache.crop(-9)
    with pytest.raises(ValueError, match="tokens_to_remove must be 0 or negative; got 40"):
        cache.crop(40)
    cache.crop(0)
    assert cache.get_seq_length() == 50


def test_reset_begins_again(models):
    ids, mask = prompt(40)
    cache = ring_cache(models[1].config, prefill_size=8)
    first = logits(models[1], ids, mask, cache, (40,))
    cache.reset()
    assert cache.get_seq_length() == 0
    ids, mask = ids[:1], mask[:1]  # another batch size is allowed
    torch.testing.assert_close(logits(models[1], ids, mask, cache, (40,)), first[:1])


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        (lambda cache: cache.reorder_cache(torch.tensor([1, 1, 0])), [1, 1, 0]),
        (lambda cache: cache.batch_select_indices(torch.tensor([2, 0])), [2, 0]),
        (lambda cache: cache.batch_select_indices(torch.tensor([False, True, True])), [1, 2]),
        (lambda cache: cache.batch_repeat_interleave(2), [0, 0, 1, 1, 2, 2]),
    ],
)
def test_rows_of_the_batch_are_moved_with_their_padding(models, change, rows):
    _, ours = models
    ids, mask = prompt(30, rows=3, padding=(0, 4, 12))
    cache = ring_cache(ours.config, prefill_size=8)
    change(cache)  # an empty cache has nothing to move
    logits(ours, ids, mask, cache, (20,))
    change(cache)
    moved = logits(ours, ids[rows], mask[rows], cache, (10,))
    straight = logits(ours, ids[rows], mask[rows], ring_cache(ours.config), (20, 10))[:, 20:]
    torch.testing.assert_close(moved, straight, rtol=1e-4, atol=1e-4)


def test_a_scale_other_than_the_usual_is_kept():
    layer = RingLayer(4, 8)
    q, k, v = (torch.randn(1, 2, 3, 5) for _ in range(3))
    keys, values = layer.update(k, v)
    module = torch.nn.Module()
    got, _ = ring_attention(module, q, keys, values, None, scaling=0.3, sliding_window=4)
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)
    torch.testing.assert_close(got, want.transpose(1, 2))


# --- What is refused ----------------------------------------------------------------------------------------


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sliding_window": None}, "got sliding_window None and layers of type full_attention"),
        (
            {"layer_types": ["sliding_attention", "full_attention"]},
            "got sliding_window 16 and layers of type full_attention",
        ),
    ],
)
def test_a_model_must_slide_in_every_layer(changes, words):
    model = tiny(**changes)
    with pytest.raises(ValueError, match=words):
        use_ring_attention(model)
    assert model.config._attn_implementation != NAME


@pytest.mark.unchecked
def test_numbers_are_checked():
    config = tiny().config
    with pytest.raises(ValueError, match="prefill_size must be at least 1; got 0"):
        ring_cache(config, prefill_size=0)
    with pytest.raises(ValueError, match="cache law"):
        ring_cache(config, capacity=WINDOW - 1)
    with pytest.raises(TypeError, match="capacity must be an int"):
        ring_cache(config, capacity=20.0)


@pytest.mark.unchecked
def test_another_attention_with_our_cache_is_noticed():
    model = tiny()
    ids, mask = prompt(8)
    with pytest.raises(RuntimeError, match="never reached the ring"):
        logits(model, ids, mask, ring_cache(model.config), (4, 4))


@pytest.mark.unchecked
def test_a_gradient_through_the_ring_is_refused(models):
    ids, _ = prompt(8)
    with pytest.raises(RuntimeError, match="a ring records no graph"):
        models[1](ids, past_key_values=ring_cache(models[1].config))


@pytest.mark.unchecked
@torch.no_grad()
def test_masks_that_are_more_than_padding_are_refused(models):
    _, ours = models
    ids, mask = prompt(8)
    with pytest.raises(ValueError, match="must be a padding mask"):
        ours(ids, attention_mask=torch.ones(2, 1, 8, 8, dtype=torch.bool), use_cache=False)
    with pytest.raises(ValueError, match="packed sequences"):
        ours(ids, position_ids=torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4]] * 2), use_cache=False)
    with pytest.raises(ValueError, match=r"attention_mask must have shape \[2, 8\]"):
        ours(ids, attention_mask=mask[:, :5], past_key_values=ring_cache(ours.config))
    with pytest.raises(ValueError, match="as a static cache gives"):
        ours(ids, attention_mask=mask, past_key_values=StaticCache(config=ours.config, max_cache_len=64))
    with pytest.raises(ValueError, match="full attention"):
        ring_mask(1, 4, 4)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dropout": 0.1}, "got dropout 0.1"),
        ({"is_causal": False}, "is_causal False"),
        ({"sliding_window": None}, "sliding_window None"),
        ({"sliding_window": 5}, "must be the ring's, 4; got 5"),
        ({"softcap": 50.0}, "does not take softcap"),
        ({"s_aux": torch.zeros(2)}, "does not take s_aux"),
        ({"output_attentions": True}, "does not take output_attentions"),
    ],
)
def test_what_the_function_would_have_to_leave_out_is_refused(options, words):
    x = torch.zeros(1, 1, 2, 4)
    keys, values = RingLayer(4, 8).update(x, x)
    with pytest.raises(ValueError, match=words):
        ring_attention(torch.nn.Module(), x, keys, values, None, **{"sliding_window": 4} | options)


@pytest.mark.unchecked
def test_keys_and_values_of_two_shapes_are_refused_and_nothing_is_offloaded():
    layer = RingLayer(4, 8)
    with pytest.raises(ValueError, match="keys and values must have one shape"):
        layer.update(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 3))
    for move in (layer.offload, layer.prefetch):
        with pytest.raises(NotImplementedError, match="not offloaded"):
            move()


def test_the_room_is_imported_without_transformers_which_is_asked_for_by_name():
    code = """
        import sys

        sys.modules["transformers"] = None
        import attnlab.ring
        from attnlab.ring import RingCache
        try:
            import attnlab.ring.transformers
        except ImportError as error:
            assert "needs Hugging Face transformers; pip install" in str(error), error
        else:
            raise SystemExit("it was imported")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
