# SPDX-License-Identifier: Apache-2.0
"""Two checkouts of other folders, users, locales and working directories make the same keys and the same bytes."""

import glob
import json
import os
import shutil
import subprocess
import sys
import unittest

from harness import PROGRAM, SPEC, ProgramTest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
NOBODY = 65534

CAP = {
    "params": [{"name": "cap", "type": "f32"}],
    "logits_transform": "return cap * loom::tanh(0.125f * logits / cap);",
}
CAPPED = {**SPEC, "group_size": 4, "variant": {"name": "capped", **CAP}}
MANIFEST = {
    "manifest": 1,
    "targets": ["sm_80", "sm_90a"],
    "specs": [{"file": "capped.json"}, {"variant": "append_rope"}, {"variant": "page_copy"}],
}
KERNELS = 6


def reformatted(spec):
    """The same spec for a machine: keys in another order, other white space, escapes, a default written out, a new name."""
    turned = {key: spec[key] for key in reversed(spec)}
    turned["variant"] = {**spec["variant"], "name": "renamed", "softmax": True}
    text = json.dumps(turned, indent="\t", separators=(" ,", " : "))
    return "\n\n" + text.replace("loom::", "\\u006coom::") + "\r\n"


class SameBytesTest(ProgramTest):
    def checkout(self, name, spec_text):
        """A folder with the program and a manifest, which another user may read."""
        folder = os.path.join(self.scratch, name)
        os.makedirs(os.path.join(folder, "home"))
        shutil.copy(PROGRAM, os.path.join(folder, "attnloom"))
        self.write(os.path.join(name, "capped.json"), spec_text)
        self.write(os.path.join(name, "manifest.json"), MANIFEST)
        return folder

    def locale_folder(self):
        """de_DE.UTF-8 where the system has the sources of locales; elsewhere the name alone is set."""
        folder = os.path.join(self.scratch, "locales")
        os.makedirs(folder)
        command = ["localedef", "-i", "de_DE", "-f", "UTF-8", os.path.join(folder, "de_DE.UTF-8")]
        try:
            subprocess.run(command, capture_output=True, check=False)
        except OSError:
            pass
        return folder

    def prewarm(self, folder, cwd, user=None, **environment):
        given = {
            "HOME": os.path.join(folder, "home"),
            "ATTNLOOM_NVRTC": os.environ.get("ATTNLOOM_NVRTC", ""),
            "ATTNLOOM_LOCK_DIR": os.path.join(folder, "home", "locks"),
            **environment,
        }
        command = [os.path.join(folder, "attnloom"), "prewarm", os.path.join(folder, "manifest.json"), "--json"]
        done = subprocess.run(command, cwd=cwd, env=given, user=user, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def entries(self, cache):
        """Every file of a cache but its state: path below it -> bytes."""
        files = {}
        for path in glob.glob(os.path.join(cache, "v1", "k", "*", "*")) + [os.path.join(cache, "v1", "TOOLCHAINS")]:
            with open(path, "rb") as file:
                files[os.path.relpath(path, cache)] = file.read()
        return files

    def test_two_checkouts(self):
        os.chmod(self.scratch, 0o755)
        one = self.checkout("one", json.dumps(CAPPED))
        two = self.checkout("ein anderer Ordner", reformatted(CAPPED))
        user = None
        if os.geteuid() == 0:
            user = NOBODY
            os.chown(os.path.join(two, "home"), NOBODY, NOBODY)
        first = self.prewarm(one, cwd=one, LC_ALL="C")
        second = self.prewarm(
            two, cwd="/", user=user, LC_ALL="de_DE.UTF-8", LOCPATH=self.locale_folder(), TZ="Asia/Tokyo", LANGUAGE="de"
        )
        keys = [[(row["request_key"], row["key"]) for row in made["kernels"]] for made in (first, second)]
        self.assertEqual(len(keys[0]), KERNELS)
        self.assertEqual(keys[0], keys[1])
        self.assertNotEqual(first["cache"], second["cache"])
        files = [self.entries(made["cache"]) for made in (first, second)]
        self.assertEqual(len(files[0]), KERNELS + 1)
        self.assertEqual(files[0], files[1])

    def embedded(self, folder, cwd, **environment):
        """What a build of this checkout puts into the library."""
        output = os.path.join(self.scratch, os.path.basename(folder) + ".cc")
        templates = os.path.join(folder, "kernel_templates")
        files = sorted(glob.glob(os.path.join(templates, "**", "*.*"), recursive=True))
        script = os.path.join(folder, "tools", "embed_sources.py")
        command = [sys.executable, "-B", script, templates, output, "render/embedded.h", "embedded_files", *files]
        subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, check=True)
        with open(output, "rb") as file:
            return file.read()

    def test_builds_of_two_checkouts_embed_the_same(self):
        folders = [os.path.join(self.scratch, name) for name in ("build one", "zwei")]
        for folder in folders:
            for part in ("kernel_templates", "tools"):
                shutil.copytree(os.path.join(ROOT, part), os.path.join(folder, part), ignore=lambda *_: {"__pycache__"})
        for path in glob.glob(os.path.join(folders[1], "**", "*.cuh"), recursive=True):
            os.utime(path, (0, 0))
        one = self.embedded(folders[0], cwd=self.scratch, LC_ALL="C")
        two = self.embedded(folders[1], cwd="/", LC_ALL="de_DE.UTF-8", PYTHONHASHSEED="7")
        self.assertGreater(len(one), 100_000)
        self.assertEqual(one, two)


if __name__ == "__main__":
    unittest.main()
