"""Any sequence of calls on a RingCache, against plain lists of tokens that forget nothing."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from attnlab.ring import RingCache, laws

B, HKV, D = 2, 2, 3


class RingAgainstLists(RuleBasedStateMachine):
    """The model keeps every token of the current branch; the ring keeps the last `capacity` written."""

    @initialize(window=st.integers(1, 6), spare=st.integers(0, 7), seed=st.integers(0, 2**32 - 1))
    def start(self, window, spare, seed):
        self.window, self.capacity = window, window + spare
        self.rng = np.random.default_rng(seed)
        self.cache = self.new()
        self.k, self.v, self.padding = [], [], []
        self.highest = 0
        self.saved = None

    def new(self):
        return RingCache(B, HKV, D, self.capacity, window=self.window, dtype=torch.float64)

    @property
    def lists(self):
        return self.k, self.v, self.padding

    def append(self, length, pad):
        k, v = torch.from_numpy(self.rng.standard_normal((2, B, HKV, length, D)))
        bits = torch.from_numpy(self.rng.random((B, length)) < pad)
        args = (k, v, bits) if pad else (k, v)
        if length > self.capacity - self.window + 1:
            self.refused("cache law", self.cache.append, *args)
            return
        self.cache.append(*args)
        self.k += k.unbind(2)
        self.v += v.unbind(2)
        self.padding += bits.unbind(1)
        self.highest = max(self.highest, len(self.k))

    @rule(length=st.integers(0, 10))
    def append_tokens(self, length):
        self.append(length, pad=0)

    @rule(length=st.integers(1, 6), pad=st.sampled_from([0.3, 1.0]))
    def append_padded_tokens(self, length, pad):
        self.append(length, pad)

    @rule(rows=st.integers(1, 8), group=st.integers(1, 3))
    def attend(self, rows, group):
        written = len(self.k)
        rows = min(rows, written)
        q = torch.from_numpy(self.rng.standard_normal((B, group * HKV, rows, D)))
        if rows and max(0, written - rows - self.window + 1) < self.highest - self.capacity:
            self.refused("attend law", self.cache.attend, q)
        elif rows:
            out, lse = self.cache.attend(q, return_lse=True)
            for i in range(rows):
                self.check_query(q[:, :, i], out[:, :, i], lse[:, :, i], written - rows + i)

    def check_query(self, q, out, lse, position):
        """One query at a time, one head at a time: nothing is shared with the ring's arithmetic."""
        keys = range(max(0, position - self.window + 1), position + 1)
        for b in range(B):
            seen = [t for t in keys if not self.padding[t][b]]
            for head in range(q.shape[1]):
                kv_head = head * HKV // q.shape[1]
                if not seen:
                    assert not out[b, head].any() and lse[b, head] == -torch.inf
                    continue
                k = torch.stack([self.k[t][b, kv_head] for t in seen])
                v = torch.stack([self.v[t][b, kv_head] for t in seen])
                scores = k @ q[b, head] / D**0.5
                torch.testing.assert_close(out[b, head], scores.softmax(0) @ v, rtol=0, atol=1e-12)
                torch.testing.assert_close(lse[b, head], scores.logsumexp(0), rtol=0, atol=1e-12)

    @rule(r=st.integers(0, 9))
    def rollback(self, r):
        r = min(r, len(self.k))
        position = len(self.k) - r
        if self.highest - position > self.capacity - self.window + 1:
            self.refused("rollback law", self.cache.rollback, r)
            return
        self.cache.rollback(r)
        for tokens in self.lists:
            del tokens[position:]

    @rule()
    def save(self):
        self.saved = self.cache.state_dict(), [list(tokens) for tokens in self.lists], self.highest

    @rule(fresh=st.booleans())
    def load(self, fresh):
        if self.saved is None:
            return
        if fresh:
            self.cache = self.new()
        state, lists, self.highest = self.saved
        self.cache.load_state_dict(state)
        self.k, self.v, self.padding = (list(tokens) for tokens in lists)

    def refused(self, law, call, *args):
        before = self.cache.state_dict()
        try:
            call(*args)
        except ValueError as error:
            assert law in str(error)
        else:
            raise AssertionError(f"the {law} was not enforced")
        for name, value in self.cache.state_dict().items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(before[name])), name

    @invariant()
    def pointers_and_visible_rows_agree(self):
        if not hasattr(self, "cache"):
            return
        written = len(self.k)
        assert (self.cache.position, self.cache.highest) == (written, self.highest)
        held = laws.position_of_slot(np.arange(self.capacity), self.highest, self.capacity)
        for slot, position in enumerate(held):
            if 0 <= position < written:
                assert torch.equal(self.cache.k[:, :, slot], self.k[position])
                assert torch.equal(self.cache.v[:, :, slot], self.v[position])
                assert torch.equal(self.cache.padding[:, slot], self.padding[position])


TestRingAgainstLists = RingAgainstLists.TestCase
TestRingAgainstLists.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
