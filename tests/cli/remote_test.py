# SPDX-License-Identifier: Apache-2.0
"""A fleet cache behind a real nginx, with the configuration of docs/DEPLOY.md."""

import glob
import http.server
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import threading
import unittest

from harness import PROGRAM, SPEC, ProgramTest, changed
from servers import Nginx, find_nginx

PROCESSES = 8
KERNELS = 3
NO_NGINX = find_nginx()[1]


@unittest.skipIf(NO_NGINX, NO_NGINX)
class FleetCache(ProgramTest):
    def setUp(self):
        self.home = tempfile.TemporaryDirectory()
        self.nginx = Nginx(self.home.name)

    def tearDown(self):
        self.nginx.stop()
        self.home.cleanup()

    def node(self, name, **changes):
        """The environment of a node with a root of its own."""
        values = {
            "ATTNLOOM_CACHE_DIR": os.path.join(self.home.name, name),
            "ATTNLOOM_LOCK_DIR": os.path.join(self.home.name, "locks"),
            "ATTNLOOM_REMOTE": self.nginx.url,
            "ATTNLOOM_REMOTE_UNSIGNED": "1",
        }
        return self.environment(**{**values, **changes})

    def compile(self, environment, spec, *options):
        done = self.run_program("compile", spec, "--json", *options, env=environment)
        self.assertEqual(done.status, 0, done.text + done.errors)
        return done.json, done.errors

    def test_one_node_compiles_and_the_next_needs_no_compiler(self):
        spec = self.write("spec.json", SPEC)
        first, _ = self.compile(self.node("a", ATTNLOOM_REMOTE_WRITE="1"), spec)
        self.assertEqual(first["source"], "compiled")
        requests = self.nginx.requests()
        # Looked up, looked up again under the lock, and read before writing: list, list, mapping, list.
        self.assertEqual(
            requests,
            {
                ("GET", "ac", 404): 4,
                ("HEAD", "cas", 404): 2,
                ("PUT", "cas", 201): 2,
                ("PUT", "ac", 201): 2,
            },
        )
        entries = glob.glob(f"{self.home.name}/a/v1/k/*/*.alk")
        self.assertEqual(len(entries), 1)
        with open(entries[0], "rb") as file:
            bytes_ = file.read()
        blobs = []
        for path in glob.glob(f"{self.home.name}/files/cas/*"):
            with open(path, "rb") as file:
                blobs.append(file.read())
        self.assertIn(bytes_, blobs)
        second, errors = self.compile(self.node("b", ATTNLOOM_NVRTC=""), spec, "--no-jit")
        self.assertEqual((second["source"], second["sha256"]), ("remote", first["sha256"]))
        self.assertEqual(errors, "")
        third, _ = self.compile(self.node("b", ATTNLOOM_REMOTE=""), spec, "--no-jit")
        self.assertEqual(third["source"], "disk")

    def test_processes_of_two_roots_compile_each_kernel_once(self):
        """Two roots of one node share the lock directory and the fleet cache."""
        specs = [
            self.write(f"spec{i}.json", changed(SPEC, "group_size", i + 1)) for i in range(KERNELS)
        ]
        running = []
        for i in range(PROCESSES):
            environment = self.node(f"root{i % 2}", ATTNLOOM_REMOTE_WRITE="1")
            order = specs[i % KERNELS :] + specs[: i % KERNELS]
            script = ' && '.join(f'"$0" compile {spec} --json' for spec in order)
            running.append(
                subprocess.Popen(
                    ["sh", "-c", script, PROGRAM],
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        sources = {}
        for process in running:
            text, errors = process.communicate()
            self.assertEqual(process.returncode, 0, errors)
            for line in text.splitlines():
                row = json.loads(line)
                sources.setdefault(row["request_key"], []).append(row["source"])
        self.assertEqual(len(sources), KERNELS)
        for key, where in sources.items():
            self.assertEqual(len(where), PROCESSES)
            self.assertEqual(where.count("compiled"), 1, (key, where))
        # The other root has each kernel from the fleet cache, and says so once.
        self.assertTrue(all("remote" in where for where in sources.values()), sources)
        self.assertEqual(len(glob.glob(f"{self.home.name}/root0/v1/k/*/*.alk")), KERNELS)
        self.assertEqual(len(glob.glob(f"{self.home.name}/root1/v1/k/*/*.alk")), KERNELS)

    def test_signed_entries(self):
        spec = self.write("spec.json", SPEC)
        key = os.path.join(self.home.name, "key")
        made = self.run_program("keygen", "-o", key, "--json")
        self.assertEqual(made.status, 0, made.text + made.errors)
        trusting = {"ATTNLOOM_REMOTE_UNSIGNED": "", "ATTNLOOM_TRUST_KEYS": key + ".pub"}
        self.compile(self.node("unsigned", ATTNLOOM_REMOTE_WRITE="1"), spec)
        refused = self.run_program("compile", spec, "--json", "--no-jit", env=self.node("b", **trusting))
        self.assert_refused(refused, 3, "NOT_CACHED")
        self.assertIn("UNTRUSTED", refused.errors)
        # It takes nothing unsigned either: it compiles, and signs what is there already.
        signing = {**trusting, "ATTNLOOM_REMOTE_WRITE": "1", "ATTNLOOM_SIGN_KEY": key}
        row, _ = self.compile(self.node("signing", **signing), spec)
        self.assertEqual(row["source"], "compiled")
        got, errors = self.compile(self.node("b", **trusting), spec, "--no-jit")
        self.assertEqual((got["source"], errors), ("remote", ""))

    def test_a_server_that_is_gone_costs_a_warning(self):
        spec = self.write("spec.json", SPEC)
        self.nginx.stop()
        row, errors = self.compile(self.node("a", ATTNLOOM_REMOTE_WRITE="1"), spec)
        self.assertEqual(row["source"], "compiled")
        self.assertIn("REMOTE: the remote cache is passed over: " + self.nginx.url, errors)

    def test_offline_asks_nobody(self):
        spec = self.write("spec.json", SPEC)
        row, errors = self.compile(self.node("a", ATTNLOOM_REMOTE_WRITE="1", ATTNLOOM_OFFLINE="1"), spec)
        self.assertEqual((row["source"], errors), ("compiled", ""))
        self.assertEqual(self.nginx.requests(), {})

    def test_a_remote_that_is_named_badly_is_an_error(self):
        spec = self.write("spec.json", SPEC)
        for changes, path in (
            ({"ATTNLOOM_REMOTE": "nonsense"}, "ATTNLOOM_REMOTE"),
            ({"ATTNLOOM_REMOTE_UNSIGNED": ""}, "ATTNLOOM_REMOTE"),
            ({"ATTNLOOM_REMOTE_TOKEN_FILE": "/nowhere"}, "ATTNLOOM_REMOTE_TOKEN_FILE"),
        ):
            outcome = self.run_program("compile", spec, "--json", env=self.node("a", **changes))
            self.assertEqual((outcome.status, outcome.json["path"]), (3, path), outcome.text)


@unittest.skipIf(shutil.which("openssl") is None, "no openssl to make a certificate with")
class Certificates(ProgramTest):
    def test_a_certificate_that_nobody_signed_is_not_accepted(self):
        key, certificate = os.path.join(self.scratch, "tls.key"), os.path.join(self.scratch, "tls.crt")
        make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        subject = ["-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        subprocess.run([*make, *subject, "-keyout", key, "-out", certificate], check=True, capture_output=True)
        asked = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                self.send_error(404)

            def log_message(self, *arguments):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(lambda: (server.shutdown(), thread.join(), server.server_close()))
        spec = self.write("spec.json", SPEC)
        url = f"https://localhost:{server.server_port}"
        look = {"ATTNLOOM_REMOTE": url, "ATTNLOOM_REMOTE_UNSIGNED": "1"}
        refused = self.run_program("compile", spec, "--json", "--no-jit", env=self.environment(**look))
        self.assert_refused(refused, 3, "NOT_CACHED")
        self.assertIn("REMOTE: the remote cache is passed over: " + url, refused.errors)
        self.assertEqual(asked, [])
        self.assertIn("certificate", refused.errors)


if __name__ == "__main__":
    unittest.main()
