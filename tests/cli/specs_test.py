# SPDX-License-Identifier: Apache-2.0
"""render, compile and check: what they print, and what they refuse."""

import hashlib
import json
import os
import unittest

from harness import CASE, SPEC, ProgramTest, changed


class RenderTest(ProgramTest):
    def test_needs_no_compiler_cache_or_home(self):
        spec = self.write("spec.json", SPEC)
        outcome = self.run_program("render", spec, "--json", env={})
        self.assertEqual(outcome.status, 0, outcome.errors)
        (kernel,) = outcome.json["kernels"]
        self.assertEqual(kernel["target"], "sm_90a")
        self.assertEqual(kernel["classes"][0]["q"], 16)
        self.assertRegex(kernel["request_key"], "^[0-9a-f]{64}$")
        self.assertEqual(outcome.text, self.run_program("render", spec, "--json").text)

    def test_text_is_the_program(self):
        spec = self.write("spec.json", SPEC)
        kernel = self.run_program("render", spec, "--json").json["kernels"][0]
        self.assertIn(kernel["text"], self.run_program("render", spec).text)

    def test_a_set_has_several_programs(self):
        spec = self.write("auto.json", changed(SPEC, "tile", "auto"))
        kernels = self.run_program("render", spec, "--json").json["kernels"]
        self.assertGreater(len(kernels), 1)
        self.assertEqual(len({kernel["request_key"] for kernel in kernels}), len(kernels))

    def test_target_option_and_case_files(self):
        case = self.write("case.json", CASE)
        kernel = self.run_program("render", case, "--target", "sm_80", "--json").json["kernels"][0]
        self.assertEqual(kernel["target"], "sm_80")

    def test_standard_input(self):
        outcome = self.run_program("render", "-", "--json", stdin=json.dumps(SPEC))
        self.assertEqual(outcome.status, 0, outcome.errors)


class RefusalTest(ProgramTest):
    def test_refused_input_is_2_for_every_command(self):
        misspelt = self.write("misspelt.json", changed(SPEC, "variant.mask", {"causl": True}))
        for command in ("render", "compile", "check"):
            error = self.assert_refused(
                self.run_program(command, misspelt, "--json"), 2, "SPEC_INVALID", "$.variant.mask.causl"
            )
            self.assertIn("causal", error["cause"] + error["remedy"])
            plain = self.run_program(command, misspelt)
            self.assertEqual((plain.status, plain.text), (2, ""))
            self.assertIn("$.variant.mask.causl", plain.errors)

    def test_not_json_and_not_there(self):
        self.assert_refused(self.run_program("check", self.write("no.json", "{"), "--json"), 2, "SPEC_INVALID")
        missing = os.path.join(self.scratch, "absent.json")
        self.assert_refused(self.run_program("check", missing, "--json"), 2, "ARGUMENT_INVALID", missing)
        folder = self.run_program("check", self.scratch, "--json")
        error = self.assert_refused(folder, 2, "ARGUMENT_INVALID", self.scratch)
        self.assertEqual(error["cause"], "is a directory")

    def test_a_target_that_is_none(self):
        spec = self.write("spec.json", SPEC)
        self.assert_refused(
            self.run_program("compile", spec, "--target", "hopper", "--json"), 64, "ARGUMENT_INVALID", "--target"
        )

    def test_a_functor_that_does_not_compile_names_its_field(self):
        variant = {"name": "broken", "logits_transform": "return undefined_name * logits;"}
        spec = self.write("broken.json", changed(SPEC, "variant", variant))
        for command in ("compile", "check"):
            error = self.assert_refused(self.run_program(command, spec, "--json"), 2, "COMPILE_FAILED")
            self.assertEqual(error["path"], "$.variant.logits_transform")
            self.assertRegex(error["cause"], "^line [0-9]+ of the JSON, line 1 of the field: .*undefined_name")


class CompileTest(ProgramTest):
    def setUp(self):
        self.spec = self.write("spec.json", SPEC)
        self.cache = os.path.join(self.scratch, self.id().rsplit(".", 1)[1])

    def test_every_kind_of_kernel(self):
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/specs")
        for name in ("append_fp8", "append_rope", "page_copy"):
            spec = os.path.join(folder, name + ".json")
            with open(spec, encoding="utf-8") as file:
                kernel = json.load(file)["kernel"]
            for target in ("sm_80", "sm_90a"):
                rendered = self.run_program("render", spec, "--target", target, "--json")
                self.assertEqual(rendered.status, 0, rendered.text + rendered.errors)
                compiled = self.run_program("compile", spec, "--target", target, "--json")
                self.assertEqual(compiled.status, 0, compiled.text + compiled.errors)
                (only,) = compiled.json["kernels"]
                self.assertEqual(only["request_key"], rendered.json["kernels"][0]["request_key"])
                self.assertEqual(compiled.json["spills"], 0)
                self.assertIn("extern \"C\"", rendered.json["kernels"][0]["text"])
                self.assertIn(kernel + "(const", rendered.json["kernels"][0]["text"])

    def test_cold_then_warm_then_without_a_compiler(self):
        cubin = os.path.join(self.scratch, "kernel.cubin")
        cold = self.run_program("compile", self.spec, "-o", cubin, "--json")
        self.assertEqual(cold.status, 0, cold.text + cold.errors)
        row = cold.json
        self.assertEqual(row["source"], "compiled")
        self.assertEqual(row["target"], "sm_90a")
        self.assertRegex(row["request_key"], "^[0-9a-f]{64}$")
        self.assertRegex(row["key"], "^[0-9a-f]{64}$")
        self.assertGreater(row["registers"], 0)
        self.assertEqual(row["spills"], 0)
        self.assertRegex(row["nvrtc"], r"^\d+\.\d+$")
        with open(cubin, "rb") as file:
            written = file.read()
        self.assertEqual(row["bytes"], len(written))
        self.assertEqual(row["sha256"], hashlib.sha256(written).hexdigest())
        self.assertEqual(written[:4], b"\x7fELF")
        (only,) = row["kernels"]
        self.assertEqual(only["key"], row["key"])

        empty = os.path.join(self.scratch, "no_compiler")
        os.makedirs(empty)
        warm = self.run_program("compile", self.spec, "--json", env=self.environment(ATTNLOOM_NVRTC=empty))
        self.assertEqual(warm.status, 0, warm.text + warm.errors)
        self.assertEqual(warm.json["source"], "disk")
        self.assertEqual(warm.json["key"], row["key"])
        self.assertEqual(warm.json["sha256"], row["sha256"])

        elsewhere = os.path.join(self.scratch, "elsewhere")
        read_only = self.run_program(
            "compile", self.spec, "--json", "--cache-dir", elsewhere, "--read-only-caches", self.cache
        )
        self.assertEqual(read_only.json["source"], "readonly", read_only.text + read_only.errors)

    def test_no_program_is_started(self):
        tools = os.path.join(self.scratch, "tools")
        os.makedirs(tools)
        started = os.path.join(self.scratch, "started")
        for name in ("nvcc", "ptxas", "cuobjdump", "nvidia-smi", "sh"):
            path = os.path.join(tools, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\n: > {started}\necho garbage\n")
            os.chmod(path, 0o755)
        environment = self.environment(PATH=tools, ATTNLOOM_CACHE_DIR=os.path.join(self.scratch, "cold"))
        for source in ("compiled", "disk"):
            outcome = self.run_program("compile", self.spec, "--json", env=environment)
            self.assertEqual(outcome.status, 0, outcome.text + outcome.errors)
            self.assertEqual(outcome.json["source"], source)
        self.assertEqual(self.run_program("doctor", "--json", env=environment).status, 0)
        self.assertFalse(os.path.exists(started))

    def test_what_the_environment_lacks_is_3(self):
        empty = os.path.join(self.scratch, "nothing_here")
        os.makedirs(empty)
        without = self.run_program("compile", self.spec, "--json", env=self.environment(ATTNLOOM_NVRTC=empty))
        self.assert_refused(without, 3, "COMPILER_MISSING")
        self.assert_refused(self.run_program("compile", self.spec, "--no-jit", "--json"), 3, "NOT_CACHED")
        not_a_folder = self.write("file", "")
        unusable = self.run_program("compile", self.spec, "--cache-dir", not_a_folder + "/x", "--json")
        self.assertEqual(unusable.status, 3)

    def test_check_reports_each_target(self):
        outcome = self.run_program("check", self.spec, "--target", "sm_90a", "--target", "sm_80", "--json")
        self.assertEqual(outcome.status, 0, outcome.text + outcome.errors)
        report = outcome.json
        self.assertIs(report["ok"], True)
        self.assertEqual([row["target"] for row in report["targets"]], ["sm_90a", "sm_80"])
        for row in report["targets"]:
            (kernel,) = row["kernels"]
            self.assertEqual((kernel["classes"][0]["q"], kernel["classes"][0]["kv"]), (16, 64))
            self.assertGreater(kernel["registers"], 0)
            self.assertEqual(kernel["spills"], 0)
            self.assertGreater(kernel["shared_bytes"], 0)


if __name__ == "__main__":
    unittest.main()
