# SPDX-License-Identifier: Apache-2.0
"""explain: which layer has a kernel, or what sets the nearest entry apart."""

import os
import unittest

from harness import SPEC, ProgramTest, changed


class ExplainTest(ProgramTest):
    def explain(self, spec, *arguments, **how):
        outcome = self.run_program("explain", self.write("spec.json", spec), "--json", *arguments, **how)
        self.assertIn(outcome.status, (0, 1), outcome.text + outcome.errors)
        (kernel,) = outcome.json["kernels"]
        self.assertEqual(outcome.status, 0 if kernel["source"] else 1)
        return kernel

    def fields(self, kernel):
        return [difference["field"] for difference in kernel["nearest"]["differs"]]

    def test_hit_and_miss(self):
        self.assertIsNone(self.explain(SPEC)["nearest"])
        compiled = self.run_program("compile", self.write("spec.json", SPEC), "--json").json
        hit = self.explain(SPEC)
        self.assertEqual((hit["source"], hit["key"], hit["nearest"]), ("disk", compiled["key"], None))

        causal = self.explain(changed(SPEC, "variant", {"name": "other"}))
        self.assertEqual(self.fields(causal), ["text"])
        self.assertEqual(causal["nearest"]["request_key"], compiled["request_key"])
        self.assertEqual(causal["nearest"]["place"], self.cache)
        ampere = self.explain(SPEC, "--target", "sm_80")
        self.assertIn("target", self.fields(ampere))
        old = self.explain(SPEC, "--driver-min", "11.8")
        self.assertEqual(self.fields(old), ["driver"])
        self.assertRegex(old["nearest"]["differs"][0]["found"], r"^needs 1[23]\.0$")

        plain = self.run_program("explain", self.write("spec.json", SPEC), "--target", "sm_80")
        self.assertEqual(plain.status, 1)
        self.assertIn("target: wanted sm_80, it has sm_90a (prewarm with --target sm_80)", plain.text)
        strict = self.run_program("compile", self.write("spec.json", SPEC), "--target", "sm_80", "--no-jit", "--json")
        error = self.assert_refused(strict, 3, "NOT_CACHED")
        self.assertIn(f"the nearest entry, {compiled['request_key'][:8]} of NVRTC ", error["cause"])
        self.assertFalse([name for name in os.listdir(self.cache) if name != "v1"])


if __name__ == "__main__":
    unittest.main()
