# SPDX-License-Identifier: Apache-2.0
"""Servers on loopback for the tests of remotes: nginx with WebDAV as docs/DEPLOY.md sets it up, and `attnloom serve`."""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

from harness import PROGRAM

ROOT = pathlib.Path(__file__).resolve().parents[2]


def find_nginx():
    """The path of an nginx with WebDAV, or None and the reason in words."""
    for candidate in (shutil.which("nginx"), "/usr/sbin/nginx", str(ROOT / "build/setup/nginx/usr/sbin/nginx")):
        if candidate and os.access(candidate, os.X_OK):
            shown = subprocess.run([candidate, "-V"], capture_output=True, text=True).stderr
            if "http_dav_module" in shown:
                return candidate, ""
    return None, "no nginx with http_dav_module on this machine (Debian: nginx-light)"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(done, what, seconds=20):
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise AssertionError(f"{what} does not come up")
        time.sleep(0.02)


def connects(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def documented_location():
    """The location block that docs/DEPLOY.md tells users to put into their nginx."""
    text = (ROOT / "docs/DEPLOY.md").read_text(encoding="utf-8")
    return re.search(r"^```nginx\n(.*?)^```$", text, re.M | re.S).group(1)


class Nginx:
    """A fleet cache in `folder`; `requests()` counts what it was asked, by method and first path component."""

    def __init__(self, folder):
        program, _ = find_nginx()
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        os.makedirs(os.path.join(folder, "files"))
        block = documented_location().replace("/srv/attnloom", os.path.join(folder, "files"))
        block = re.sub(r"listen [^;]*;", f"listen 127.0.0.1:{self.port};", block)
        block = re.sub(r"(?m)^ *(allow|deny|ssl_\w+|server_name) [^;]*;\n", "", block)
        temps = "".join(
            f"  {name}_temp_path {folder}/temp_{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        config = os.path.join(folder, "nginx.conf")
        with open(config, "w", encoding="utf-8") as file:
            file.write(
                f"{'user root;' if os.geteuid() == 0 else ''}\nworker_processes 1;\ndaemon off;\npid {folder}/pid;\n"
                f"error_log {folder}/error.log;\nevents {{ worker_connections 256; }}\nhttp {{\n{temps}"
                f"  log_format short '$request_method $uri $status';\n  access_log {folder}/access.log short;\n{block}}}\n"
            )
        self.process = subprocess.Popen(
            [program, "-p", folder, "-c", config, "-e", f"{folder}/error.log"], stderr=subprocess.DEVNULL
        )
        wait_for(lambda: connects(self.port), "nginx")

    def requests(self):
        counts = {}
        with open(f"{self.folder}/access.log", encoding="utf-8") as file:
            for line in file:
                method, path, status = line.split()
                key = (method, path.split("/")[1], int(status))
                counts[key] = counts.get(key, 0) + 1
        return counts

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Service:
    """`attnloom serve` with an environment and options of the test's."""

    def __init__(self, environment, *options, listen="127.0.0.1:0"):
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--listen", listen, *options],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            raise AssertionError(line + self.process.communicate()[1])
        self.url = line.removeprefix("listening on ").strip()

    def stop(self):
        """Sends SIGTERM and gives (exit status, what it logged)."""
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=120)  # also closes the pipes
        return self.process.returncode, errors

    def kill(self):
        self.process.kill()
        if not self.process.stdout.closed:
            self.process.communicate()
