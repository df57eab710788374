# SPDX-License-Identifier: Apache-2.0
"""examples/serve_tiny.py: the same tokens with attnloom's attention as with PyTorch's, whatever else is in the batch."""

import importlib.util
import pathlib
import sys

import attnloom
import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"
ARGUMENTS = ["--tiny", "--dtype=f16", "--requests=3", "--samples=2", "--shrink=32", "--burst", "--pages=48"]
ARGUMENTS += ["--page-size=4", "--seed=3"]


@pytest.fixture(scope="module")
def example():
    sys.path.insert(0, str(EXAMPLES))
    spec = importlib.util.spec_from_file_location("serve_tiny", EXAMPLES / "serve_tiny.py")
    module = sys.modules["serve_tiny"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tokens(requests):
    return [request.tokens[request.prompt :] for request in requests]


@pytest.fixture(scope="module")
def on_sdpa(example, device):
    return example.serve([*ARGUMENTS, "--device", device.type, "--attention", "sdpa"])[1]


def test_the_same_tokens_as_on_pytorchs_attention(example, device, on_sdpa, capsys):
    result, requests = example.serve([*ARGUMENTS, "--device", device.type, "--stream"])
    assert tokens(requests) == tokens(on_sdpa)
    assert tokens(requests)[::2] == tokens(requests)[1::2]  # samples of one prompt: greedy, on shared pages
    assert all(len(request.tokens) == request.length for request in requests)
    assert result["shared_tokens"] == sum(request.prompt - 1 for request in requests[1::2])
    assert len(capsys.readouterr().out.splitlines()) == result["tokens"] == sum(map(len, tokens(requests)))
    assert set(result["inter_token_latency_ms"]) == {"p50", "p90", "p99"}


def test_prompts_in_pieces_and_requests_that_wait_change_nothing(example, device, on_sdpa):
    """8 query tokens a step, two requests at a time, and pages for little more than one prompt's."""
    tight = [*ARGUMENTS, "--device", device.type, "--max-tokens", "8", "--max-batch", "2", "--pages", "12"]
    tight += ["--warm-up", "1"]
    result, requests = example.serve(tight)
    assert tokens(requests) == tokens(on_sdpa)
    assert result["steps"] > len(requests)


def test_a_request_that_never_fits_is_named(example, device):
    with pytest.raises(SystemExit, match="request 0 does not fit into 2 pages"):
        example.serve([*ARGUMENTS, "--device", device.type, "--pages", "2"])


def test_captured_steps_make_the_same_tokens(example, cuda, on_sdpa):
    _, requests = example.serve([*ARGUMENTS, "--device", cuda.type, "--graphs"])
    assert tokens(requests) == tokens(on_sdpa)


@pytest.fixture
def shared_reads(monkeypatch):
    """Of each plan since the test began, how many prefixes it reads once for several requests."""
    seen, plan = [], attnloom.Attention.plan

    def counted(self, *arguments, **options):
        plan(self, *arguments, **options)
        requests = self.describe_plan()["requests"]
        seen.append(sum("shared" in request for request in requests))

    monkeypatch.setattr(attnloom.Attention, "plan", counted)
    return seen


def test_the_matrix_shares_prefixes_or_not_and_says_so(example, device, shared_reads, capsys, tmp_path):
    import serve_tiny_matrix

    words = ["--n=1,8", "--sequences=8", "--attentions=attnloom,sdpa", f"--json={tmp_path / 'rows'}"]
    words += ["--tiny", "--dtype=f16", "--shrink=8", "--burst", "--pages=256", "--device", device.type]
    cells = iter(serve_tiny_matrix.main(words))
    shared = {}
    for n in (1, 8):
        for attention, sharing in (("attnloom", "on"), ("attnloom", "off"), ("sdpa", "off")):
            row = next(cells)
            assert (row["n"], row["attention"], row["shared_prefixes"]) == (n, attention, sharing)
            assert row["requests"] == 8
            shared[n, attention, sharing] = row["shared_tokens"]
    # The pages are the same ones in every row of 8 samples; whether they are read once is the switch.
    assert len({tokens for (n, *_), tokens in shared.items() if n == 8}) == 1 and shared[8, "sdpa", "off"] > 0
    assert shared[1, "attnloom", "on"] == 0
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert len(table) == 1 + 6 and len((tmp_path / "rows").read_text().splitlines()) == 6
    assert max(shared_reads) > 0


@pytest.mark.parametrize(("sharing", "wanted"), [("on", True), ("off", False)])
def test_the_switch_decides_what_plans_share(example, device, shared_reads, sharing, wanted):
    words = ["--tiny", "--dtype=f16", "--requests=1", "--samples=8", "--shrink=8", "--burst", "--pages=64"]
    result, _ = example.serve([*words, "--device", device.type, "--shared-prefixes", sharing])
    assert result["shared_tokens"] > 0
    assert any(shared_reads) == wanted


def test_samples_differ_at_a_temperature(example, device):
    words = ["--tiny", "--dtype=f16", "--requests=1", "--samples=3", "--shrink=16", "--burst", "--pages=64"]
    _, requests = example.serve([*words, "--device", device.type, "--temperature", "2"])
    assert len({tuple(made) for made in tokens(requests)}) == 3
