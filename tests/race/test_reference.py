"""Races that people run for a reason: reports of trouble in public, each turned into a race and what it must say."""

import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from torch import nn

import normula as nm
from normula.race import Grid
from normula.record import Race, from_json, to_json
from tests.cli.conftest import Cli, cli
from tests.race.answers import said
from tests.race.inline import untimed

__all__ = ["cli"]

SMALL = ("--depth", "1", "--width", "8", "--batch", "4", "--task", "copy", "--steps", "8", "--workers", "1")


def cautions(race: Race) -> str:
    return "\n".join(said(race, "caution"))


@pytest.fixture(scope="module")
def deep() -> Race:
    """The copy race at two depths, with warmup and without, from two kinds of initial weights."""
    return nm.race(
        ("pre", "post"),
        task="copy",
        depth=(6, 18),
        lr=RATE,
        warmup=(0, 40),
        init=("xavier_qkv", "torch"),
        steps=80,
        seeds=2,
        workers=2,
    )


RATE = 3e-3


@pytest.mark.golden
class TestDeepPostWithoutWarmup:
    """pytorch/pytorch issue 55270, lucidrains/vit-pytorch issue 56: a deep Post-LN stack stays at chance."""

    def test_it_needs_warmup_and_pre_does_not(self, deep: Race) -> None:
        pass
