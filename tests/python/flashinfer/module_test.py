# SPDX-License-Identifier: Apache-2.0
"""The module itself: its names and signatures, what it imports, and how it takes flashinfer's place."""

import importlib
import inspect
import json
import os
import pathlib
import subprocess
import sys

import attnloom
import pytest
from attnloom import flashinfer
from attnloom.flashinfer import _absent, replacement

SIGNATURES = json.loads((pathlib.Path(__file__).parent / "signatures.json").read_text())


def parameters_of(call):
    shown = []
    for parameter in inspect.signature(call).parameters.values():
        mark = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        shown.append(f"{mark}{parameter.name}{default}")
    return shown


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_those_of_0_6_18(name):
    """Names, order and defaults; a dtype of torch's by its name. forward() is also forward_return_lse() here."""
    call = flashinfer
    for part in name.split("."):
        call = getattr(call, part)
    found = parameters_of(call)
    if ".forward" in name and found[-1].startswith("return_lse="):
        del found[-1]
    assert found == SIGNATURES[name]


def test_every_name_is_here_or_raises():
    for name in flashinfer.__all__:
        value = getattr(flashinfer, name)
        assert callable(value) and getattr(value, "__name__", name) == name
    for name in _absent.NAMES:
        with pytest.raises(NotImplementedError) as refused:
            getattr(flashinfer, name)(1, two=2)
        assert refused.value.field == name and isinstance(refused.value, attnloom.Error)
    for module in replacement.MODULES:
        assert getattr(flashinfer, module) is importlib.import_module(f"attnloom.flashinfer.{module}")
    with pytest.raises(AttributeError, match="rmsnorm"):
        flashinfer.rmsnorm  # noqa: B018
    from attnloom.flashinfer.decode import trtllm_batch_decode_with_kv_cache

    with pytest.raises(NotImplementedError, match="trtllm_batch_decode_with_kv_cache"):
        trtllm_batch_decode_with_kv_cache()


def test_helpers():
    from attnloom.flashinfer import utils

    assert [flashinfer.next_positive_power_of_2(x) for x in (0, 1, 5, 8)] == [1, 1, 8, 8]
    assert utils.has_flashinfer_jit_cache() is True
    assert utils.get_compute_capability("cpu") == (9, 0)
    none, rope = utils.PosEncodingMode.NONE.value, utils.PosEncodingMode.ROPE_LLAMA.value
    assert utils.determine_attention_backend("cpu", none, False, False, "float16", "float16") == "fa3"
    assert utils.determine_attention_backend("cpu", none, False, False, "float16", "float16", 96, 96) == "fa2"
    assert utils.determine_attention_backend("cpu", rope, False, False, "float16", "float16") == "fa2"
    assert list(utils.get_alibi_slopes(3)) == [2.0**-4, 2.0**-8, 2.0**-2]


def run(*arguments, **options):
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment, **options)


PROGRAM = """
import sys
import flashinfer
import flashinfer.decode
from flashinfer.utils import has_flashinfer_jit_cache
from flashinfer.jit.attention import gen_batch_prefill_module
from flashinfer.jit.attention.variants import attention_sink_decl
from flashinfer.jit.utils import filename_safe_dtype_map
from flashinfer import BatchMLAPagedAttentionWrapper, single_prefill_with_kv_cache
import attnloom.flashinfer
assert flashinfer is attnloom.flashinfer and flashinfer.decode is attnloom.flashinfer.decode
assert set(attention_sink_decl) == {"fa2", "fa3"} and filename_safe_dtype_map["float16"] == "f16"
type_of_either: BatchMLAPagedAttentionWrapper | None = None
assert flashinfer.__version__ == "0.6.18" and "torch" not in sys.modules
try:
    gen_batch_prefill_module()
except NotImplementedError as error:
    print(error.field, *sys.argv[1:])
"""


def test_a_script_runs_with_it_in_place(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run("-m", "attnloom.flashinfer", str(tmp_path / "program.py"), "-m", "two")
    assert done.stdout.split() == ["flashinfer.jit.attention.gen_batch_prefill_module", "-m", "two"], done.stderr
    done = run("-m", "attnloom.flashinfer", "-m", "program", "one", cwd=tmp_path)
    assert done.stdout.split()[1:] == ["one"], done.stderr


def test_processes_of_a_script_have_it_in_place_too(tmp_path):
    child = "import flashinfer.decode, attnloom.flashinfer as other; print(flashinfer is other, flashinfer.decode is other.decode)"
    program = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}], check=True)\n"
    (tmp_path / "program.py").write_text(program)
    done = run("-m", "attnloom.flashinfer", str(tmp_path / "program.py"))
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_a_test_file_runs_with_it_in_place(tmp_path):
    (tmp_path / "unchanged_test.py").write_text(
        "import numpy as np\nimport flashinfer\n\n"
        "def test_it():\n"
        "    q = np.ones((1, 2, 64), np.float16)\n"
        "    assert np.array_equal(flashinfer.single_prefill_with_kv_cache(q, q, q), q)\n"
    )
    done = run("-m", "attnloom.flashinfer", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path))
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


def test_usage(tmp_path):
    for arguments, code in (([], 2), (["--help"], 0), (["-m"], 2), ([str(tmp_path / "absent.py")], 2)):
        done = run("-m", "attnloom.flashinfer", *arguments)
        assert done.returncode == code and done.stderr.startswith(("python -m", "attnloom.flashinfer: no such"))


def test_another_module_that_was_imported_already_stays(tmp_path):
    (tmp_path / "flashinfer.py").write_text("")
    code = "import flashinfer; from attnloom.flashinfer.replacement import install; install()"
    done = run("-c", code, cwd=tmp_path)
    assert "ImportError: flashinfer was imported already" in done.stderr


def test_importing_it_imports_no_framework():
    code = "import sys, attnloom.flashinfer; print(*sorted({'numpy', 'torch', 'attnloom._core'} & set(sys.modules)))"
    assert run("-c", code).stdout.split() == []
