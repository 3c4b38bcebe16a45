"""Devices by name: existing ones are found, others give a one-line error."""

import pytest
import torch

from simulate.training import device
from theory.call.refusal import ParameterError

ABSENT = [
    name
    for name, there in (
        ("cuda", torch.cuda.is_available()),
        ("mps", torch.backends.mps.is_available()),
    )
    if not there
]


def test_the_cpu_is_here():
    assert device.find("cpu").type == "cpu"


def test_without_a_name_a_gpu_is_preferred():
    assert device.find(None).type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize(
    "name", [*ABSENT, "cuda:99", "", "gpu", "cpu:x", "hpu", "privateuseone", "meta"]
)
def test_what_is_not_here_is_refused(name):
    """Also what torch accepts but cannot compute on (meta), or fails on with an import
    error (hpu).
    """
    with pytest.raises(ParameterError, match="device") as caught:
        device.find(name)
    assert "\n" not in str(caught.value)
    assert "cpu" in str(caught.value)
