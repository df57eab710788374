# SPDX-License-Identifier: Apache-2.0
"""bundle: a file that tar opens, equal wherever it is made, and refused as soon as it is not what it was."""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import unittest

from harness import PROGRAM, SPEC, ProgramTest, changed


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class BundleTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.small = changed(SPEC, "tile.kv", 128)
        test = cls()
        for name, spec in (("spec.json", SPEC), ("small.json", cls.small)):
            done = test.run_program("compile", test.write(name, spec))
            assert done.status == 0, done.errors
        cls.bundle = os.path.join(cls.scratch, "kernels.alb")
        cls.report = test.bundle_json("export", "-o", cls.bundle)

    def runTest(self):
        pass

    def path(self, name):
        return os.path.join(self.scratch, name)

    def bundle_json(self, *arguments, status=0, env=None):
        outcome = self.run_program("bundle", *arguments, "--json", env=env)
        self.assertEqual(outcome.status, status, outcome.text + outcome.errors)
        return outcome.json

    def copy(self, name):
        return shutil.copy(self.bundle, self.path(name))

    def key(self, name):
        path = self.path(name)
        if not os.path.exists(path):
            self.assertEqual(self.run_program("keygen", "-o", path).status, 0)
        return path

    def compile_from(self, place, **variables):
        """The strict look-up of a machine that has `place` and an empty cache."""
        environment = self.environment(
            ATTNLOOM_CACHE_DIR=self.path("empty"), ATTNLOOM_CACHE_RO=place, ATTNLOOM_JIT="never", **variables
        )
        return self.run_program("compile", self.path("spec.json"), "--json", env=environment)

    def test_the_report_is_of_the_file(self):
        self.assertEqual(self.report["entries"], 2)
        self.assertEqual(self.report["targets"], ["sm_90a"])
        self.assertEqual(self.report["sha256"], sha256(self.bundle))
        self.assertEqual(self.report["bytes"], os.path.getsize(self.bundle))
        self.assertIsNone(self.report["key_id"])
        self.assertEqual(os.stat(self.bundle).st_mode & 0o777, 0o644)

    def test_tar_opens_it_and_what_it_unpacks_is_a_cache(self):
        listed = subprocess.run(["tar", "--zstd", "-tf", self.bundle], capture_output=True, text=True, check=True)
        self.assertEqual(listed.stderr, "")
        names = listed.stdout.splitlines()
        self.assertEqual(names[:2], ["attnloom/v1/index.json", "attnloom/v1/TOOLCHAINS"])
        self.assertEqual(names[2:], sorted(names[2:]))
        self.assertEqual(len(names), 4)
        folder = self.path("unpacked")
        os.mkdir(folder)
        subprocess.run(["tar", "--zstd", "-xf", self.bundle, "-C", folder, "--no-same-owner"], check=True)
        with open(os.path.join(folder, "attnloom/v1/index.json"), encoding="utf-8") as file:
            index = json.load(file)
        self.assertEqual((index["format"], index["version"]), ("attnloom-bundle", 1))
        for entry in index["entries"]:
            name = f"{entry['request_key']}.{entry['fingerprint']}.alk"
            path = os.path.join(folder, "attnloom/v1/k", name[:2], name)
            self.assertEqual(sha256(path), entry["sha256"])
            self.assertEqual(os.path.getsize(path), entry["bytes"])
            self.assertEqual(os.stat(path).st_mtime, 0)
            self.assertIsNone(entry["ptx_sha256"])
        self.assertEqual(self.compile_from(os.path.join(folder, "attnloom")).json["source"], "readonly")
        same = self.bundle_json("diff", self.bundle, os.path.join(folder, "attnloom"))
        self.assertTrue(same["same"])
        # What was unpacked makes the same bundle again.
        again = self.path("again.alb")
        self.bundle_json("export", "-o", again, "--from", os.path.join(folder, "attnloom"))
        self.assertEqual(sha256(again), self.report["sha256"])

    def test_the_index_leads_to_each_frame(self):
        """Reads the file as docs/CACHE.md says, with zstd as another program."""
        with open(self.bundle, "rb") as file:
            bundle = file.read()
        unpack = lambda data: subprocess.run(["zstd", "-dc"], input=data, capture_output=True, check=True).stdout
        # The first frame ends where the next one's magic makes everything before it unpack to a tar member.
        begin = next(
            at
            for at in range(4, len(bundle))
            if bundle[at : at + 4] == b"\x28\xb5\x2f\xfd"
            and subprocess.run(["zstd", "-tq"], input=bundle[:at], capture_output=True).returncode == 0
        )
        member = unpack(bundle[:begin])
        size = int(member[124:135], 8)
        for entry in json.loads(member[512 : 512 + size])["entries"]:
            at = begin + entry["offset"]
            content = unpack(bundle[at : at + entry["frame_bytes"]])[512:][: entry["bytes"]]
            self.assertEqual(hashlib.sha256(content).hexdigest(), entry["sha256"])
            self.assertEqual(content[:4], b"\x7fELF")

    def test_two_exports_are_equal_whoever_makes_them(self):
        elsewhere = tempfile.mkdtemp()
        try:
            environment = self.environment(ATTNLOOM_CACHE_DIR=os.path.join(elsewhere, "other cache"), LC_ALL="de_DE.UTF-8", TZ="Asia/Tokyo")
            # The other order.
            for name in ("small.json", "spec.json"):
                done = self.run_program("compile", self.path(name), env=environment)
                self.assertEqual(done.status, 0, done.errors)
            subprocess.run(
                [PROGRAM, "bundle", "export", "-o", "b.alb"], cwd=elsewhere, env=environment, check=True, capture_output=True
            )
            self.assertEqual(sha256(os.path.join(elsewhere, "b.alb")), self.report["sha256"])
        finally:
            shutil.rmtree(elsewhere)

    def test_a_strict_start_from_a_bundle(self):
        kernel = self.compile_from(self.bundle).json
        self.assertEqual(kernel["source"], "bundle")
        # PTX is dropped unless asked for; the simulator runs PTX.
        case = self.write(
            "case.json",
            {
                "case": 1,
                "spec": SPEC,
                "workload": {"heads": {"q": 1, "kv": 1}, "qo_len": [2], "kv_len": [5], "scale": 1.0},
                "inputs": {"q": 0, "k": 0, "v": [0, 1, 2, 3, 4]},
                "expect": {"o": [1.5, 2.0], "atol": 1e-3},
            },
        )
        run = lambda place: self.run_program(
            "run", case, "--device", "sim", "--no-jit", "--json", "--read-only-caches", place,
            env=self.environment(ATTNLOOM_CACHE_DIR=self.path("empty")),
        )
        self.assert_refused(run(self.bundle), 3, "NOT_CACHED")
        full = self.path("full.alb")
        self.bundle_json("export", "-o", full, "--ptx")
        outcome = run(full)
        self.assertEqual(outcome.status, 0, outcome.text + outcome.errors)
        self.assertEqual(outcome.json["kernels"][0]["source"], "bundle")

    def test_ls(self):
        listed = self.bundle_json("ls", self.bundle)
        self.assertEqual(listed["kind"], "bundle")
        self.assertEqual(listed["targets"], ["sm_90a"])
        self.assertTrue(listed["usable"])
        self.assertEqual(listed["templates"], self.report["templates"])
        self.assertEqual([len(listed["entries"]), listed["entries"][0]["signers"]], [2, []])
        text = self.run_program("bundle", "ls", self.bundle).text
        self.assertIn("2 entries; targets: sm_90a", text)
        folder = self.bundle_json("ls", self.cache)
        self.assertEqual((folder["kind"], len(folder["entries"])), ("directory", 2))
        self.assertTrue(all(entry["ptx"] for entry in folder["entries"]))

    def test_the_kernels_of_a_spec_can_be_named(self):
        named = self.path("named.alb")
        self.bundle_json("export", "-o", named, "--describe", self.path("spec.json"))
        about = [entry["about"] for entry in self.bundle_json("ls", named)["entries"]]
        known = [one for one in about if one]
        # The smaller tile is what the spec's kernel would step down to.
        self.assertEqual({one["variant"] for one in known}, {"plain"})
        self.assertEqual(known[0]["spec"]["head_dim"], {"qk": 64, "vo": 64})
        self.assertIn("plain", self.run_program("bundle", "ls", named).text)

    def test_import_fills_the_writable_cache(self):
        target = self.path("imported")
        first = self.bundle_json("import", self.bundle, "--cache-dir", target)
        self.assertEqual((first["entries"], first["written"]), (2, 2))
        again = self.bundle_json("import", self.bundle, "--cache-dir", target)
        self.assertEqual((again["entries"], again["written"]), (2, 0))
        environment = self.environment(ATTNLOOM_CACHE_DIR=target, ATTNLOOM_JIT="never")
        kernel = self.run_program("compile", self.path("spec.json"), "--json", env=environment).json
        self.assertEqual(kernel["source"], "disk")
        # An entry that holds less does not replace one that holds more.
        self.assertEqual(self.bundle_json("import", self.bundle)["written"], 0)

    def test_verify_is_1_where_anything_is_wrong_or_missing(self):
        good = self.bundle_json("verify", self.bundle, self.cache, "--target", "sm_90a")
        self.assertTrue(good["ok"])
        self.assertEqual([place["kind"] for place in good["places"]], ["bundle", "directory"])
        missing = self.bundle_json("verify", self.bundle, "--target", "sm_90a,sm_100f", status=1)
        self.assertEqual([problem["code"] for problem in missing["places"][0]["problems"]], ["NOT_CACHED"])
        with open(self.bundle, "rb") as file:
            whole = file.read()
        damaged = {
            "cut.alb": whole[:-400],
            "end.alb": whole[:-1],
            "head.alb": whole[:50],
            "flip.alb": whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 1]) + whole[len(whole) // 2 + 1 :],
            "more.alb": whole + b"\0",
            "none.alb": b"",
        }
        for name, data in damaged.items():
            with self.subTest(name):
                with open(self.path(name), "wb") as file:
                    file.write(data)
                problems = self.bundle_json("verify", self.path(name), status=1)["places"][0]["problems"]
                self.assertEqual({problem["code"] for problem in problems}, {"CACHE_CORRUPT"})
        self.assertEqual(self.run_program("bundle", "verify", self.path("cut.alb")).status, 1)
        self.assert_refused(self.run_program("bundle", "verify", "--json", self.path("absent")), 2, "ARGUMENT_INVALID")

    def test_a_place_without_entries_is_no_success(self):
        nothing = self.path("nothing")
        os.makedirs(nothing, exist_ok=True)
        report = self.bundle_json("verify", self.bundle, nothing, status=1)
        self.assertEqual([len(place["problems"]) for place in report["places"]], [0, 1])
        self.assertEqual(report["places"][1]["problems"][0]["code"], "NOT_CACHED")
        fresh = self.copy("unsigned.alb")
        before = sha256(fresh)
        outcome = self.run_program("bundle", "sign", fresh, nothing, "--key", self.key("a.key"), "--json")
        self.assert_refused(outcome, 3, "NOT_CACHED", nothing)
        self.assertEqual(sha256(fresh), before)  # nothing is signed by halves

    def test_looking_at_a_bundle_makes_no_cache(self):
        away = self.path("away")
        self.bundle_json("verify", self.bundle, env=self.environment(ATTNLOOM_CACHE_DIR=away))
        self.assertFalse(os.path.exists(away))

    def test_a_damaged_bundle_is_passed_over_with_one_warning(self):
        with open(self.bundle, "rb") as file:
            whole = file.read()
        cut = self.path("short.alb")
        with open(cut, "wb") as file:
            file.write(whole[:200])
        outcome = self.compile_from(f"{cut}:{self.bundle}")
        self.assertEqual(outcome.json["source"], "bundle")
        self.assertEqual(outcome.errors.count("is passed over"), 1, outcome.errors)

    def test_diff(self):
        one = self.path("one.alb")
        alone = self.path("alone")
        environment = self.environment(ATTNLOOM_CACHE_DIR=alone)
        self.assertEqual(self.run_program("compile", self.path("spec.json"), env=environment).status, 0)
        self.bundle_json("export", "-o", one, "--from", alone)
        differs = self.bundle_json("diff", one, self.bundle, status=1)
        self.assertEqual((differs["only_first"], len(differs["only_second"]), differs["differ"]), ([], 1, []))
        # A directory holds the PTX that the bundle dropped.
        differs = self.bundle_json("diff", one, alone, status=1)
        self.assertEqual((differs["only_first"], differs["only_second"], len(differs["differ"])), ([], [], 1))
        text = self.run_program("bundle", "diff", one, self.bundle)
        self.assertEqual(text.status, 1)
        self.assertRegex(text.text, f"^only in {self.bundle}: [0-9a-f.]+alk\nthey have in common 1 entries\n$")
        text = self.run_program("bundle", "diff", one, alone)
        self.assertRegex(text.text, "^differs: [0-9a-f.]+alk\nthey have in common 0 entries\n$")
        text = self.run_program("bundle", "diff", one, one)
        self.assertEqual((text.status, text.text), (0, "they hold the same 1 entries\n"))

    def test_signatures(self):
        key, other = self.key("a.key"), self.key("b.key")
        signed = self.path("signed.alb")
        report = self.bundle_json("export", "-o", signed, "--key", key)
        self.assertEqual(self.bundle_json("ls", signed)["entries"][0]["signers"], [report["key_id"]])
        # Signing what is there gives the same file as signing while packing.
        late = self.copy("late.alb")
        self.bundle_json("sign", "--key", key, late)
        self.assertEqual(sha256(late), sha256(signed))
        trusted = {"ATTNLOOM_TRUST_KEYS": key + ".pub"}
        self.assertEqual(self.compile_from(signed, **trusted).json["source"], "bundle")
        for place, variables, reason in (
            (self.bundle, trusted, "it is not signed"),
            (signed, {"ATTNLOOM_TRUST_KEYS": other + ".pub"}, f"key {report['key_id']} is not listed"),
        ):
            outcome = self.compile_from(place, **variables)
            self.assert_refused(outcome, 3, "NOT_CACHED")
            self.assertEqual(outcome.errors.count("UNTRUSTED"), 1, outcome.errors)
            self.assertIn(reason, outcome.errors)
        self.bundle_json("verify", signed, "--trust-keys", key + ".pub")
        problems = self.bundle_json("verify", self.bundle, "--trust-keys", key + ".pub", status=1)["places"][0]["problems"]
        self.assertEqual([problem["code"] for problem in problems], ["UNTRUSTED", "UNTRUSTED"])
        # A key is exchanged: both sign, the new one alone is listed, the old one is revoked.
        self.bundle_json("sign", "--key", other, late)
        self.assertEqual(len(self.bundle_json("ls", late)["entries"][0]["signers"]), 2)
        with open(other + ".pub", encoding="utf-8") as file:
            keys = self.write("new.pub", file.read() + f"revoked {report['key_id']}\n")
        self.bundle_json("verify", late, "--trust-keys", keys)
        self.bundle_json("verify", signed, "--trust-keys", keys, status=1)
        # Import asks as a look-up does.
        refused = self.run_program("bundle", "import", self.bundle, "--json", "--cache-dir", self.path("x"), "--trust-keys", keys)
        self.assert_refused(refused, 3, "UNTRUSTED")
        self.assertFalse(os.path.exists(self.path("x/v1")))

    def test_signatures_of_a_directory_stand_beside_its_entries(self):
        key = self.key("dir.key")
        folder = self.path("signed folder")
        shutil.copytree(self.cache, folder)
        self.assertEqual(self.bundle_json("sign", "--key", key, folder)["signed"][0]["entries"], 2)
        names = [name for _, _, files in os.walk(folder) for name in files if name.endswith(".alk.sig")]
        self.assertEqual(len(names), 2)
        trusted = {"ATTNLOOM_TRUST_KEYS": key + ".pub"}
        self.assertEqual(self.compile_from(folder, **trusted).json["source"], "readonly")
        # They go into a bundle, and hold there without the PTX.
        bundle = self.path("carried.alb")
        self.bundle_json("export", "-o", bundle, "--from", folder)
        self.assertEqual(self.compile_from(bundle, **trusted).json["source"], "bundle")

    def test_openssl_agrees_with_a_signature(self):
        key = self.key("ssl.key")
        signed = self.path("ssl.alb")
        self.bundle_json("export", "-o", signed, "--key", key)
        folder = self.path("ssl")
        os.mkdir(folder)
        subprocess.run(["tar", "--zstd", "-xf", signed, "-C", folder], check=True)
        with open(os.path.join(folder, "attnloom/v1/index.json"), encoding="utf-8") as file:
            entry = json.load(file)["entries"][0]
        title, line = entry["signature"].splitlines()
        self.assertEqual(title, "attnloom-signature 1")
        self.assertEqual(line.split()[1], "-")
        message = self.write(
            "message",
            f"attnloom-entry 1\nrequest_key {entry['request_key']}\nfingerprint {entry['fingerprint']}\n"
            f"target {entry['target']}\ncubin {entry['cubin_sha256']}\nptx -\n",
        )
        subprocess.run(["openssl", "base64", "-d", "-A", "-out", self.path("raw")], input=line.split()[2], text=True, check=True)
        subprocess.run(
            ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", key + ".pub", "-rawin", "-in", message, "-sigfile", self.path("raw")],
            check=True,
            capture_output=True,
        )

    def test_a_place_that_others_can_write(self):
        open_folder = self.path("open")
        os.mkdir(open_folder)
        os.chmod(open_folder, 0o777)
        bundle = shutil.copy(self.bundle, os.path.join(open_folder, "k.alb"))
        outcome = self.compile_from(bundle)
        self.assert_refused(outcome, 3, "NOT_CACHED")
        self.assertIn("can be written by other users", outcome.errors)
        self.assertEqual(self.compile_from(f"{bundle}#sha256={self.report['sha256']}").json["source"], "bundle")
        outcome = self.compile_from(f"{bundle}#sha256={'0' * 64}")
        self.assert_refused(outcome, 3, "NOT_CACHED")
        self.assertIn("not the pinned one", outcome.errors)
        # Nobody may sign or pack what anybody could have written.
        for arguments in (
            ("sign", "--key", self.key("c.key"), bundle),
            ("export", "-o", self.path("laundered.alb"), "--from", bundle),
            ("import", bundle, "--cache-dir", self.path("y")),
        ):
            self.assert_refused(self.run_program("bundle", *arguments, "--json"), 3, "UNTRUSTED")
        self.assertFalse(os.path.exists(self.path("laundered.alb")))
        self.bundle_json("export", "-o", self.path("fine.alb"), "--from", f"{bundle}#sha256={self.report['sha256']}")

    def test_what_is_missing_is_said(self):
        for arguments, status, code in (
            (("export", "-o", self.path("n.alb"), "--target", "sm_80"), 3, "NOT_CACHED"),
            (("export", "-o", self.path("n.alb"), "--from", self.path("absent")), 2, "ARGUMENT_INVALID"),
            (("export", "-o", self.path("no/n.alb")), 2, "ARGUMENT_INVALID"),
            (("export", "-o", self.path("n.alb"), "--key", self.path("spec.json")), 2, "ARGUMENT_INVALID"),
            (("export", "-o", self.path("n.alb"), "--trust-keys", self.path("spec.json")), 3, "ARGUMENT_INVALID"),
            (("ls", self.path("spec.json")), 3, "CACHE_CORRUPT"),
            (("ls",), 64, "ARGUMENT_INVALID"),
            (("export",), 64, "ARGUMENT_INVALID"),
            (("frobnicate",), 64, "ARGUMENT_INVALID"),
            ((), 64, "ARGUMENT_INVALID"),
        ):
            with self.subTest(arguments):
                self.assert_refused(self.run_program("bundle", "--json", *arguments), status, code)
        self.assertFalse(os.path.exists(self.path("n.alb")))

    def test_entries_of_other_templates_are_left_out(self):
        """An entry under other headers is one that no key of this library finds."""
        folder = self.path("old")
        shutil.copytree(self.cache, folder)
        entry = next(
            os.path.join(place, name) for place, _, files in os.walk(folder) for name in files if name.endswith(".alk")
        )
        with open(entry, "rb") as file:
            body = bytearray(file.read()[:-32])
        at = body.index(b'"header:loom/') + len('"header:')
        at = body.index(b'":"', at) + 3
        body[at] = ord("1") if body[at] == ord("0") else ord("0")
        with open(entry, "wb") as file:
            file.write(bytes(body) + hashlib.sha256(body).digest())
        report = self.bundle_json("export", "-o", self.path("new.alb"), "--from", folder)
        self.assertEqual((report["entries"], report["other_templates"]), (1, 1))


if __name__ == "__main__":
    unittest.main()
