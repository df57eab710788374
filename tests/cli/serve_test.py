# SPDX-License-Identifier: Apache-2.0
"""`attnloom serve`: what it compiles and refuses, how it ends, and nodes that use it as their compiler."""

import concurrent.futures
import http.client
import json
import os
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import unittest
import urllib.error
import urllib.request

from harness import PROGRAM, SPEC, ProgramTest, changed
from servers import Service, wait_for

TOKEN = "s3cret-token"
SOFT_CAP = changed(
    changed(SPEC, "variant.params", [{"name": "cap", "type": "f32"}]),
    "variant.logits_transform",
    "return cap * loom::tanh(logits / cap);",
)
FOREIGN = changed(SOFT_CAP, "variant.logits_transform", "return cap * logits;")


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class ServeTest(ProgramTest):
    def setUp(self):
        self.home = tempfile.TemporaryDirectory()
        self.services = []

    def tearDown(self):
        for service in self.services:
            service.kill()
        self.home.cleanup()

    def place(self, name):
        return os.path.join(self.home.name, name)

    def start(self, *options, listen="127.0.0.1:0", **changes):
        environment = self.environment(**{"ATTNLOOM_CACHE_DIR": self.place("service"), **changes})
        self.services.append(Service(environment, *options, listen=listen))
        return self.services[-1]

    def post(self, service, body, token=None):
        """(status, headers, body)."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(service.url + "/v1/kernels", data=data, headers=headers)
        return self.answer(request)

    def answer(self, request):
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, response.headers, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read()

    def get(self, service, path, token=None):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self.answer(urllib.request.Request(service.url + path, headers=headers))

    def metric(self, service, name):
        text = self.get(service, "/metrics")[2].decode()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(f"attnloom_{name} "))

    def node(self, url, **changes):
        """A node that has no NVRTC: the folder it is given holds none."""
        os.makedirs(self.place("empty"), exist_ok=True)
        values = {
            "ATTNLOOM_CACHE_DIR": self.place("node"),
            "ATTNLOOM_NVRTC": self.place("empty"),
            "ATTNLOOM_COMPILE_URL": url,
            "ATTNLOOM_REMOTE_UNSIGNED": "1",
        }
        return self.environment(**{**values, **changes})

    def test_a_spec_gives_the_entry_that_compiling_gives(self):
        service = self.start()
        status, headers, entry = self.post(service, {"spec": SPEC})
        self.assertEqual((status, headers["Content-Type"]), (200, "application/octet-stream"))
        self.assertIsNone(headers["Attnloom-Signature"])
        here = self.run_program("compile", self.write("spec.json", SPEC), "--json").json
        path = f"{self.cache}/v1/k/{here['request_key'][:2]}/{here['request_key']}.{here['fingerprint']}.alk"
        with open(path, "rb") as file:
            self.assertEqual(entry, file.read())
        self.assertEqual(self.post(service, {"spec": SPEC, "request_key": here["request_key"]})[2], entry)
        other = self.post(service, {"spec": SPEC, "target": "sm_80"})
        self.assertEqual(other[0], 200)
        self.assertNotEqual(other[2], entry)
        self.assertEqual(self.metric(service, "compile_seconds_count"), 2)
        self.assertEqual(self.metric(service, "service_served_total"), 3)
        self.assertEqual(self.metric(service, 'cache_hits_total{layer="memory"}'), 1)
        self.assertEqual(self.metric(service, "cache_published_total"), 2)
        self.assertEqual(self.metric(service, 'cache_hits_total{layer="remote"}'), 0)

    def test_clients_that_ask_at_once_cause_one_compile(self):
        service = self.start()
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda _: self.post(service, {"spec": SPEC}), range(16)))
        self.assertEqual({answer[0] for answer in answers}, {200})
        self.assertEqual(len({answer[2] for answer in answers}), 1)
        self.assertEqual(self.metric(service, "compile_seconds_count"), 1)

    def test_refusals_compile_nothing(self):
        service = self.start()
        spec = {"spec": SPEC}
        for body, status, code, path in (
            (b"", 400, "ARGUMENT_INVALID", "$"),
            (b"{", 400, "ARGUMENT_INVALID", "$"),
            ([], 400, "ARGUMENT_INVALID", "$.spec"),
            ({"spec": {}}, 400, "SPEC_INVALID", None),
            ({**spec, "extra": 1}, 400, "ARGUMENT_INVALID", "$.extra"),
            ({**spec, "target": "sm_1"}, None, None, None),
            ({**spec, "target": 7}, 400, "ARGUMENT_INVALID", "$.target"),
            ({**spec, "request_key": "../../etc"}, 400, "ARGUMENT_INVALID", "$.request_key"),
            ({**spec, "request_key": "0" * 64}, 400, "ARGUMENT_INVALID", "$.request_key"),
            ({"spec": changed(SPEC, "variant.mask", {"causl": True})}, 400, "SPEC_INVALID", "$.spec.variant.mask.causl"),
            ({"spec": FOREIGN}, 403, "UNTRUSTED", "$.spec.variant"),
        ):
            got, _, text = self.post(service, body)
            self.assertIn(got, range(400, 500))
            if status:
                error = json.loads(text)
                self.assertEqual((got, error["code"]), (status, code), text)
                if path is not None:
                    self.assertEqual(error["path"], path)
        self.assertEqual(self.post(service, b" " * (300 << 10))[0], 413)
        self.assertEqual(self.get(service, "/v1/kernels")[0], 404)
        self.assertEqual(self.get(service, "/healthz")[::2], (200, b"ok\n"))
        self.assertEqual(self.metric(service, "compile_seconds_count"), 0)

    def test_source_text_must_be_registered(self):
        self.assertEqual(self.post(self.start(), {"spec": SOFT_CAP})[0], 200)
        folder = self.place("variants")
        os.makedirs(folder)
        with open(os.path.join(folder, "ours.json"), "w", encoding="utf-8") as file:
            json.dump(changed(FOREIGN, "group_size", 4), file)
        ours = self.start("--variants", folder)
        self.assertEqual(self.post(ours, {"spec": FOREIGN})[0], 200)
        self.assertEqual(self.post(ours, {"spec": SPEC})[0], 200)
        self.assertEqual(self.post(ours, {"spec": SOFT_CAP})[0], 403)
        params = [{"name": "cap", "type": "i32"}]
        self.assertEqual(self.post(ours, {"spec": changed(FOREIGN, "variant.params", params)})[0], 403)
        self.assertEqual(self.post(self.start("--allow-source"), {"spec": FOREIGN})[0], 200)
        shipped = self.start("--variants", "soft_cap")
        self.assertEqual(self.post(shipped, {"spec": FOREIGN})[0], 403)

    def test_a_compile_error_is_the_askers_own(self):
        service = self.start("--allow-source")
        wrong = self.write("wrong.json", changed(FOREIGN, "variant.logits_transform", "return foo + cap;"))
        here = self.run_program("compile", wrong, "--json", env=self.node(service.url))
        error = self.assert_refused(here, 2, "COMPILE_FAILED", "$.variant.logits_transform")
        self.assertRegex(error["cause"], "^line 1 of the JSON, line 1 of the field: .*foo")

    def test_the_token(self):
        token = self.write("token", TOKEN + "\n")
        os.chmod(token, 0o600)
        service = self.start("--token-file", token)
        for given in (None, "wrong", TOKEN + "x", TOKEN[:-1]):
            status, headers, _ = self.post(service, {"spec": SPEC}, given)
            self.assertEqual((status, headers["WWW-Authenticate"]), (401, "Bearer"))
            self.assertEqual(self.get(service, "/metrics", given)[0], 401)
        self.assertEqual(self.get(service, "/healthz")[0], 200)
        self.assertEqual(self.post(service, {"spec": SPEC}, TOKEN)[0], 200)
        self.assertEqual(self.get(service, "/metrics", TOKEN)[0], 200)
        spec = self.write("spec.json", SPEC)
        refused = self.run_program("compile", spec, "--json", env=self.node(service.url))
        self.assert_refused(refused, 3, "COMPILER_MISSING")
        self.assertIn("bearer token", refused.json["cause"])
        right = self.node(service.url, ATTNLOOM_REMOTE_TOKEN_FILE=token)
        self.assertEqual(self.run_program("compile", spec, "--json", env=right).status, 0)
        os.chmod(token, 0o640)
        loose = self.run_program("serve", "--listen", "127.0.0.1:0", "--token-file", token, "--json")
        self.assertEqual(loose.status, 3)
        self.assertNotIn(TOKEN, loose.text + loose.errors)

    def test_a_node_without_nvrtc_compiles_through_a_socket_of_its_users(self):
        path = self.place("attnloom.sock")
        service = self.start(listen=f"unix:{path}")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode) & 0o077, 0)
        connection = UnixConnection(path)
        connection.request("GET", "/healthz")
        self.assertEqual(connection.getresponse().read(), b"ok\n")
        connection.close()
        auto = changed(SPEC, "tile", "auto")
        spec = self.write("spec.json", auto)
        node = self.run_program("compile", spec, "--json", env=self.node(service.url))
        self.assertEqual(node.status, 0, node.text + node.errors)
        here = self.run_program("compile", spec, "--json")
        rows = [[(k["request_key"], k["sha256"]) for k in run.json["kernels"]] for run in (node, here)]
        self.assertEqual(rows[0], rows[1])
        again = self.run_program("compile", spec, "--json", "--no-jit", env=self.node("", ATTNLOOM_COMPILE_URL=""))
        self.assertEqual({k["source"] for k in again.json["kernels"]}, {"disk"})
        # Never without being asked.
        barred = self.run_program(
            "compile", spec, "--json", "--no-jit", env=self.node(service.url, ATTNLOOM_CACHE_DIR=self.place("bare"))
        )
        self.assert_refused(barred, 3, "NOT_CACHED")
        status, errors = service.stop()
        self.assertEqual(status, 0, errors)
        self.assertFalse(os.path.exists(path))

    def test_answers_are_verified(self):
        key, other = self.place("key"), self.place("other")
        for path in (key, other):
            self.assertEqual(self.run_program("keygen", "-o", path).status, 0)
        spec = self.write("spec.json", SPEC)
        service = self.start(ATTNLOOM_SIGN_KEY=key)
        trusting = {"ATTNLOOM_REMOTE_UNSIGNED": "", "ATTNLOOM_TRUST_KEYS": key + ".pub"}
        self.assertEqual(self.run_program("compile", spec, env=self.node(service.url, **trusting)).status, 0)
        foreign = {**trusting, "ATTNLOOM_TRUST_KEYS": other + ".pub", "ATTNLOOM_CACHE_DIR": self.place("b")}
        refused = self.run_program("compile", spec, "--json", env=self.node(service.url, **foreign))
        self.assert_refused(refused, 3, "COMPILER_MISSING")
        self.assertIn("UNTRUSTED", refused.json["cause"])
        unsigned = self.start(ATTNLOOM_CACHE_DIR=self.place("unsigned"))
        trusting["ATTNLOOM_CACHE_DIR"] = self.place("c")
        refused = self.run_program("compile", spec, "--json", env=self.node(unsigned.url, **trusting))
        self.assert_refused(refused, 3, "COMPILER_MISSING")

    def test_a_service_that_is_gone_leaves_the_node_its_own_compiler(self):
        service = self.start()
        service.stop()
        environment = self.node(service.url)
        del environment["ATTNLOOM_NVRTC"]
        environment |= {k: v for k, v in os.environ.items() if k == "ATTNLOOM_NVRTC"}
        done = self.run_program("compile", self.write("spec.json", SPEC), "--json", env=environment)
        self.assertEqual(done.status, 0, done.text + done.errors)
        self.assertIn("REMOTE: the compile service", done.errors)

    def test_sigterm_lets_what_runs_finish(self):
        service = self.start()
        # A set of one joint kernel takes long enough to be asked to stop meanwhile.
        body = {"spec": changed(changed(SPEC, "head_dim", {"qk": 256, "vo": 256}), "tile", {"q": 64, "kv": 32})}
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(self.post, service, body)
            wait_for(lambda: self.metric(service, "service_running") == 1, "the compile")
            service.process.send_signal(signal.SIGTERM)
            self.assertEqual(answer.result(60)[0], 200)
        service.process.communicate(timeout=60)
        self.assertEqual(service.process.returncode, 0)
        with self.assertRaises(urllib.error.URLError):
            self.get(service, "/healthz")

    def test_refusals_of_http_itself_are_json_too(self):
        service = self.start()
        for method, path, body, status in (
            ("GET", "/v1/kernels", None, 404),
            ("DELETE", "/v1/kernels", None, 404),
            ("PUT", "/elsewhere", b"{}", 404),
            ("POST", "/v1/kernels", b" " * (300 << 10), 413),
        ):
            request = urllib.request.Request(service.url + path, data=body, method=method)
            got, headers, text = self.answer(request)
            self.assertEqual((got, headers["Content-Type"]), (status, "application/json"), (method, path))
            self.assertEqual(json.loads(text)["code"], "ARGUMENT_INVALID")

    def test_a_body_in_chunks_has_the_same_limit(self):
        service = self.start()
        port = int(service.url.rsplit(":", 1)[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("POST", "/v1/kernels", iter([json.dumps({"spec": SPEC}).encode()]), encode_chunked=True)
        self.assertEqual(connection.getresponse().status, 200)
        connection.request("POST", "/v1/kernels", iter([b" " * 1024] * 300), encode_chunked=True)
        self.assertEqual(connection.getresponse().status, 413)
        with socket.create_connection(("127.0.0.1", port), timeout=30) as endless:
            endless.sendall(b"POST /v1/kernels HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
            with self.assertRaises(OSError):  # hung up on long before 64 MiB
                for _ in range(1024):
                    endless.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
        self.assertEqual(self.get(service, "/healthz")[0], 200)

    def test_slow_clients_hold_neither_others_nor_the_end(self):
        service = self.start()
        port = int(service.url.rsplit(":", 1)[1])
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(70)]
        stopped = threading.Event()

        def drip():
            while not stopped.wait(0.3):
                for connection in slow:
                    try:
                        connection.sendall(b"X")
                    except OSError:
                        pass

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            # They have every thread for ten seconds, and not longer.
            self.assertEqual(self.get(service, "/healthz")[0], 200)
            slow.extend(socket.create_connection(("127.0.0.1", port)) for _ in range(70))
            status, errors = service.stop()
            self.assertEqual(status, 0, errors)
        finally:
            stopped.set()
            dripping.join()
            for connection in slow:
                connection.close()

    def test_where_it_may_listen(self):
        for place in ("0.0.0.0:8080", "example.com:80", "127.0.0.1", "127.0.0.1:70000", "unix:relative", "unix:"):
            outcome = self.run_program("serve", "--listen", place, "--json")
            self.assert_refused(outcome, 64, "ARGUMENT_INVALID", "--listen")
        taken = self.place("taken.sock")
        first = self.start(listen=f"unix:{taken}")
        self.assert_refused(self.run_program("serve", "--listen", f"unix:{taken}", "--json"), 3, "CACHE_IO", "--listen")
        first.kill()
        self.assertTrue(os.path.exists(taken))
        self.start(listen=f"unix:{taken}")  # what a killed one left behind is cleared away
        port = self.start().url.removeprefix("http://")
        self.assert_refused(self.run_program("serve", "--listen", port, "--json"), 3, "CACHE_IO", "--listen")
        plain = self.write("plain.sock", "text")
        self.assert_refused(self.run_program("serve", "--listen", f"unix:{plain}", "--json"), 3, "CACHE_IO", "--listen")
        bad = self.run_program("serve", "--listen", "127.0.0.1:0", "--variants", "soft_cup", "--json")
        self.assertIn("soft_cap", self.assert_refused(bad, 64, "ARGUMENT_INVALID", "--variants")["remedy"])


if __name__ == "__main__":
    unittest.main()
