# SPDX-License-Identifier: Apache-2.0
"""run: the result's form, the verdict in the exit status, and what is written beside it."""

import json
import os
import struct
import unittest

from harness import CASE, SPEC, ProgramTest, changed

RESULT_KEYS = {"device", "o", "lse", "error", "findings", "counters", "kernels"}


class RunTest(ProgramTest):
    def run_case(self, case, *arguments):
        return self.run_program("run", self.write("case.json", case), "--device", "sim", *arguments, "--json")

    def assert_agrees(self, outcome):
        self.assertEqual(outcome.status, 0, outcome.text[-2000:] + outcome.errors)
        self.assertEqual(outcome.json["findings"], [])
        return outcome.json

    def test_a_case_that_agrees(self):
        result = self.assert_agrees(self.run_case(CASE))
        self.assertLessEqual(RESULT_KEYS, set(result))
        self.assertEqual(result["o"], [[[1.5] * 64], [[2.0] * 64]])
        self.assertAlmostEqual(result["lse"][0][0], 1.3862944, places=5)
        self.assertAlmostEqual(result["lse"][1][0], 1.6094379, places=5)
        self.assertLess(result["error"]["reference"], 1e-3)
        self.assertLess(result["error"]["expect"], 1e-3)
        self.assertGreater(result["counters"]["mma"], 0)
        (kernel,) = result["kernels"]
        self.assertRegex(kernel["request_key"], "^[0-9a-f]{64}$")
        self.assertRegex(kernel["key"], "^[0-9a-f]{64}$")
        self.assertIn(kernel["source"], ("compiled", "disk"))
        again = self.assert_agrees(self.run_case(CASE))
        self.assertEqual(again["kernels"][0]["source"], "disk")
        self.assertEqual(again["kernels"][0]["key"], kernel["key"])

    def test_a_case_that_differs_is_1(self):
        outcome = self.run_case(changed(CASE, "expect.o", [1.5, 2.5]))
        self.assertEqual(outcome.status, 1, outcome.text[-2000:] + outcome.errors)
        self.assertIs(outcome.json["comparison"]["reference"]["pass"], True)
        self.assertIs(outcome.json["comparison"]["expect"]["pass"], False)
        self.assertAlmostEqual(outcome.json["error"]["expect"], 0.5)

    def test_text_tells_the_verdict(self):
        outcome = self.run_program("run", self.write("case.json", CASE), "--device", "sim")
        self.assertEqual(outcome.status, 0, outcome.errors)
        self.assertIn("agrees", outcome.text)

    def test_rows_without_keys_are_zero_and_minus_infinity(self):
        workload = {"heads": {"q": 1, "kv": 1}, "qo_len": [1, 1], "kv_len": [0, 2], "scale": 1.0}
        case = {**changed(CASE, "workload", workload), "inputs": {"q": 0, "k": 0, "v": [1, 3]}}
        case["expect"] = {"o": [0, 2], "lse": ["-inf", 0.6931472], "atol": 1e-3, "rtol": 1e-6}
        result = self.assert_agrees(self.run_case(case))
        self.assertEqual(result["o"], [[[0.0] * 64], [[2.0] * 64]])
        self.assertEqual(result["lse"][0], ["-inf"])

    def test_a_batch_without_queries_or_requests_has_no_rows(self):
        for qo_len, kv_len in (([0], [5]), ([], [])):
            workload = {"heads": {"q": 1, "kv": 1}, "qo_len": qo_len, "kv_len": kv_len}
            case = {"case": 1, "spec": SPEC, "workload": workload, "inputs": {"q": 0, "k": 0, "v": 0}}
            result = self.assert_agrees(self.run_case(case))
            self.assertEqual((result["o"], result["lse"]), ([], []))

    def test_split_requests_agree_under_every_order(self):
        normal = {"q": {"random": "normal", "seed": 1}, "k": {"random": "normal", "seed": 2},
                  "v": {"random": "normal", "seed": 3}}
        workload = {"heads": {"q": 2, "kv": 2}, "qo_len": [1, 3], "kv_len": [700, 40]}
        case = {"case": 1, "spec": SPEC, "workload": workload, "inputs": normal}
        first = self.assert_agrees(self.run_case(case, "--seed", "1"))
        self.assertGreater(first["plan"]["split_tiles"], 0)
        self.assertIsNone(first["error"]["expect"])
        second = self.assert_agrees(self.run_case(case, "--seed", "2"))
        self.assertEqual((second["o"], second["lse"]), (first["o"], first["lse"]))

    def test_a_batch_invariant_run_has_the_same_bits_on_any_number_of_ctas(self):
        normal = {"q": {"random": "normal", "seed": 1}, "k": {"random": "normal", "seed": 2},
                  "v": {"random": "normal", "seed": 3}}
        workload = {"heads": {"q": 2, "kv": 2}, "qo_len": [1, 3], "kv_len": [1700, 40]}
        case = {"case": 1, "spec": SPEC, "workload": workload, "inputs": normal}
        first = self.assert_agrees(self.run_case(case, "--batch-invariant"))
        self.assertEqual(first["plan"]["items"], 2 * (4 + 1))  # chunks of 512 keys on 2 heads
        second = self.assert_agrees(self.run_case(case, "--batch-invariant", "--max-ctas", "3"))
        self.assertEqual(second["plan"]["grid"], 3)
        self.assertEqual((second["o"], second["lse"]), (first["o"], first["lse"]))
        refused = self.run_case(case, "--sm-count", "133")
        self.assert_refused(refused, 2, "ARGUMENT_INVALID", "limits.sm_budget")

    def test_a_variant_without_softmax_has_no_lse(self):
        variant = {"name": "sigmoid", "softmax": False, "params": [{"name": "bias", "type": "f32"}],
                   "logits_transform": "return 1.0f / (1.0f + expf(-(logits + bias)));"}
        case = changed(CASE, "spec.variant", variant)
        case["inputs"]["params"] = {"bias": 0.0}
        case["expect"] = {"o": [5.0, 5.0], "atol": 1e-2, "rtol": 1e-6}
        self.assertIsNone(self.assert_agrees(self.run_case(case))["lse"])

    def test_functors_without_a_twin_are_judged_by_themselves_and_the_result_says_so(self):
        self.assertEqual(self.assert_agrees(self.run_case(CASE))["reference"], "float64")
        variant = {"name": "even_keys", "mask": {"causal": True}, "logits_mask": "return kv_pos % 2 == 0;"}
        case = changed(CASE, "spec.variant", variant)
        case["expect"] = {"o": [1.0, 2.0], "lse": [0.6931472, 1.0986123], "atol": 1e-3, "rtol": 1e-6}
        result = self.assert_agrees(self.run_case(case))
        self.assertEqual(result["reference"], "own functors")
        self.assertIs(result["comparison"]["reference"]["pass"], True)

    def test_a_functor_that_faults_is_a_finding(self):
        variant = {"name": "past_the_end", "params": [{"name": "p", "type": "ptr<f32>"}],
                   "logits_transform": "return logits + p[1000000];"}
        case = changed(CASE, "spec.variant", variant)
        case["inputs"]["params"] = {"p": {"dtype": "f32", "shape": [1], "data": 0}}
        outcome = self.run_case(case)
        self.assertEqual(outcome.status, 1, outcome.text[-2000:] + outcome.errors)
        faults = [f for f in outcome.json["findings"] if f["kind"] == "functor-fault"]
        self.assertEqual(len(faults), 1)
        self.assertIn("past_the_end", faults[0]["detail"])

    def test_a_functor_that_the_simulator_cannot_execute_is_3(self):
        variant = {"name": "talks", "logits_transform": 'printf("%f", logits); return logits;'}
        error = self.assert_refused(self.run_case(changed(CASE, "spec.variant", variant)), 3, "LOAD_FAILED",
                                    "$.spec.variant")
        self.assertIn("talks", error["cause"])

    def test_out_writes_arrays(self):
        folder = os.path.join(self.scratch, "arrays")
        self.assert_agrees(self.run_case(CASE, "--out", folder))
        with open(os.path.join(folder, "o.npy"), "rb") as file:
            data = file.read()
        self.assertEqual(data[:6], b"\x93NUMPY")
        header_bytes = struct.unpack("<H", data[8:10])[0]
        header = data[10 : 10 + header_bytes].decode()
        self.assertIn("(2, 1, 64)", header)
        values = struct.unpack("<128f", data[10 + header_bytes :])
        self.assertEqual(values, (1.5,) * 64 + (2.0,) * 64)
        self.assertTrue(os.path.exists(os.path.join(folder, "lse.npy")))

    def test_requests_of_a_mooncake_trace_read_the_pages_that_they_share(self):
        rows = [{"timestamp": 0, "input_length": 70, "output_length": 9, "hash_ids": [ids]} for ids in (4, 4, 5)]
        trace = self.write("m.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        spec = self.write("paged.json", changed(SPEC, "layout", {"kv": "paged", "page_size": 16}))
        outcome = self.run_program("run", "--trace", trace, "--at", "1", "--batch", "3", "--spec", spec, "--kv-heads", "1",
                                   "--device", "sim", "--json")
        self.assert_agrees(outcome)

    def test_a_trace_runs_under_a_spec(self):
        trace = self.write("t.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                                    "2023-11-16 18:15:46.6805900,37,4\n2023-11-16 18:15:50.9951690,39,10\n")
        spec = self.write("spec.json", SPEC)
        outcome = self.run_program("run", "--trace", trace, "--at", "5", "--batch", "2", "--spec", spec, "--kv-heads", "1",
                                   "--device", "sim", "--json")
        result = self.assert_agrees(outcome)
        self.assertEqual(len(result["o"]), 2)

    def test_refusals_are_2_and_the_environment_is_3(self):
        self.assert_refused(self.run_case(changed(CASE, "workload.kv_len", [-1])), 2, "WORKLOAD_INVALID",
                            "$.workload.kv_len[0]")
        variant = {"name": "broken", "logits_transform": "return nonsense;"}
        self.assert_refused(self.run_case(changed(CASE, "spec.variant", variant)), 2, "COMPILE_FAILED")
        variant = {"name": "plain", "mask": {"causal": False}}  # a key that no cache holds
        self.assert_refused(self.run_case(changed(CASE, "spec.variant", variant), "--no-jit"), 3, "NOT_CACHED")

    def test_cuda_without_a_device_is_3(self):
        if self.run_program("doctor", "--json").json["cuda"]["device"]:
            self.skipTest("this machine has a device")
        outcome = self.run_program("run", self.write("case.json", CASE), "--device", "cuda", "--json")
        self.assertEqual(outcome.status, 3)
        self.assertIn(outcome.json["code"], ("NO_DRIVER", "NO_DEVICE"))


if __name__ == "__main__":
    unittest.main()
