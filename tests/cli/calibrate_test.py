# SPDX-License-Identifier: Apache-2.0
"""calibrate measures a real device only; plan judges by the profile that it wrote, and by no other file."""

import unittest

from harness import ProgramTest

TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:15:{second:02}.0000000,{1000 + 37 * second},10\n" for second in range(40)
)
FIGURES = {
    "bytes_per_ns": 4600,
    "flops_per_ns": 400000,
    "step_ns": 400,
    "item_ns": 1500,
    "latency_ns": 5500,
    "cta_bytes_per_ns": 25,
    "state_ns": 1000,
    "launch_ns": 7000,
}


class CalibrateTest(ProgramTest):
    def judge(self, document):
        profile = self.write("profile.json", document)
        trace = self.write("trace.csv", TRACE)
        return self.run_program("plan", "--trace", trace, "--steps", "3", "--device-profile", profile, "--json")

    def test_the_simulated_device_keeps_no_time(self):
        outcome = self.run_program("calibrate", "--device", "sim", "--json")
        self.assert_refused(outcome, 3, "NO_DEVICE", "--device")

    def test_plan_judges_by_a_profile(self):
        outcome = self.judge({"device": "one of ours", "profile": FIGURES})
        self.assertEqual(outcome.status, 0, outcome.errors)
        self.assertEqual((outcome.json["model"], outcome.json["steps"]), ("one of ours", 3))

    def test_what_is_no_profile_is_refused_with_its_figure(self):
        for figure, value, said in (
            ("bytes_per_ns", 0, "bytes_per_ns is 0"),
            ("item_ns", -1, "item_ns is -1"),
            ("step_ns", "fast", "no number step_ns"),
        ):
            with self.subTest(said):
                outcome = self.judge({"device": "d", "profile": FIGURES | {figure: value}})
                self.assert_refused(outcome, 64, "ARGUMENT_INVALID", "--device-profile")
                self.assertIn(said, outcome.json["cause"])
        for document in ("", "[]", {"profile": FIGURES}, {"device": "d", "profile": {}}):
            with self.subTest(document):
                self.assert_refused(self.judge(document), 64, "ARGUMENT_INVALID", "--device-profile")


if __name__ == "__main__":
    unittest.main()
