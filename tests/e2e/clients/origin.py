"""What stands behind nginx: pages, uploads, events, a Git server and two package indexes."""

import base64
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit
import socket

GIT_ROOT, INDEX_HOST = sys.argv[1], "index.clients.example"


def wheel():
    """The smallest wheel that pip takes."""
    files = {
        "demo_pkg.py": "answer = 42\n",
        "demo_pkg-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: demo-pkg\nVersion: 1.0\n",
        "demo_pkg-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in files) + "demo_pkg-1.0.dist-info/RECORD,,\n"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in {**files, "demo_pkg-1.0.dist-info/RECORD": record}.items():
            archive.writestr(name, text)
    return out.getvalue()


def tarball():
    """The smallest package that npm takes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in {
            "package/package.json": json.dumps({"name": "demo-pkg", "version": "1.0.0"}),
            "package/index.js": "module.exports = 42;\n",
        }.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


WHEEL, TARBALL = wheel(), tarball()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        """The request's body, piece by piece."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            left = int(self.headers.get("Content-Length") or 0)
            while left:
                piece = self.rfile.read(min(left, 1 << 16))
                if not piece:
                    return
                left -= len(piece)
                yield piece

    def say(self, data, kind="application/octet-stream"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def do_GET(self):
        path = urlsplit(self.path).path
        if path.startswith("/git/"):
            self.git()
        elif path == "/simple/demo-pkg/":
            digest = hashlib.sha256(WHEEL).hexdigest()
            name = "demo_pkg-1.0-py3-none-any.whl"
            self.say(f'<a href="/files/{name}#sha256={digest}">{name}</a>'.encode(), "text/html")
        elif path.endswith(".whl"):
            self.say(WHEEL)
        elif path == "/npm/demo-pkg":
            dist = {
                "tarball": f"https://{INDEX_HOST}/npm/demo-pkg/-/demo-pkg-1.0.0.tgz",
                "integrity": "sha512-" + base64.b64encode(hashlib.sha512(TARBALL).digest()).decode(),
            }
            version = {"name": "demo-pkg", "version": "1.0.0", "dist": dist}
            found = {"name": "demo-pkg", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
            self.say(json.dumps(found).encode(), "application/json")
        elif path.endswith(".tgz"):
            self.say(TARBALL)
        elif path == "/events":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for number in range(3):
                self.chunk(b"data: %d\n\n" % number)
                time.sleep(0.3)
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.say(json.dumps({"hello": self.headers.get("Host")}).encode(), "application/json")

    do_HEAD = do_GET

    def do_POST(self):
        if urlsplit(self.path).path.startswith("/git/"):
            return self.git()
        digest, length = hashlib.sha256(), 0
        for piece in self.body():
            digest.update(piece)
            length += len(piece)
        self.say(json.dumps({"length": length, "sha256": digest.hexdigest()}).encode(), "application/json")

    def git(self):
        """Git's own server, as a CGI program."""
        url = urlsplit(self.path)
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": GIT_ROOT,
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": "tester",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": url.path.removeprefix("/git"),
            "QUERY_STRING": url.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        }
        backend = subprocess.Popen(
            ["git", "http-backend"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for piece in self.body():
            backend.stdin.write(piece)
        backend.stdin.close()
        status, headers = 200, []
        while line := backend.stdout.readline().strip():
            name, value = line.decode().split(": ", 1)
            if name == "Status":
                status = int(value.split()[0])
            else:
                headers.append((name, value))
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while piece := backend.stdout.read1(1 << 16):
            self.chunk(piece)
        self.wfile.write(b"0\r\n\r\n")
        backend.wait()


class Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6
    daemon_threads = True


Server(("::1", 9000), Handler).serve_forever()
