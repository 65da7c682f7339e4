from __future__ import annotations

import pytest

from attnlab.bench.query import baseline_of, one, ratio, select
from attnlab.bench.rows import Row


def row(variant, value, unit="s", case="c", samples=None, baseline=None, metric="time", **params):
    return Row("room", case, variant, metric, unit, value, params, samples, baseline=baseline)


SLOW = row("slow", 2.0, samples=[4.0, 1.0, 2.0], T=8)
FAST = row("fast", 1.0, samples=[1.0, 1.0, 4.0], T=8, baseline="slow")
ROWS = [
    SLOW,
    FAST,
    row("slow", 64, "B", metric="bytes", T=8),
    row("slow", 9.0, samples=[9.0, 9.0, 9.0], T=16),
]


def test_select_by_names_and_params():
    assert select(ROWS, variant="slow") == [ROWS[0], ROWS[2], ROWS[3]]
    assert select(ROWS, variant="slow", metric="time", T=16) == [ROWS[3]]
    assert select(ROWS, S=4) == []
    assert select(ROWS, technique="other") == []
    assert select(ROWS) == ROWS


def test_one_is_exactly_one_or_none():
    assert one(ROWS, variant="fast") is FAST
    assert one(ROWS, variant="faster") is None


@pytest.mark.unchecked
def test_one_refuses_several():
    with pytest.raises(ValueError, match="3 match {'variant': 'slow'}"):
        one(ROWS, variant="slow")


def test_ratio_pairs_the_rounds_of_one_case_and_setting():
    # The paired ratios are 4, 1 and 0.5; the ratio of the medians is 2.
    assert ratio(SLOW, FAST) == 1.0


def test_ratio_of_rows_from_different_settings_is_of_their_values():
    assert ratio(ROWS[3], SLOW) == 4.5
    assert ratio(row("slow", 3.0, case="other", samples=[1.0, 3.0, 9.0], T=8), SLOW) == 1.5


def test_ratio_of_values_and_of_nothing():
    assert ratio(row("a", 6, "B"), row("b", 4, "B")) == 1.5
    assert ratio(row("a", 6, "B"), row("b", 0, "B")) is None
    assert ratio(None, SLOW) is None
    assert ratio(SLOW, None) is None


@pytest.mark.unchecked
def test_ratio_refuses_different_units():
    with pytest.raises(ValueError, match="got units 's' and 'B'"):
        ratio(SLOW, ROWS[2])


def test_baseline_is_the_named_variant_in_the_same_place():
    assert baseline_of(FAST, ROWS) is SLOW
    assert baseline_of(SLOW, ROWS) is None
    assert baseline_of(row("fast", 1.0, T=32, baseline="slow"), ROWS) is None
