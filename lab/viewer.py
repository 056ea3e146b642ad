# SPDX-License-Identifier: MIT
"""The page of vpmu report (viewer.html): samples as numbers, and the assembly of the functions that have most of them. It needs no network
and no server; serve() shows it to the user's own browser all the same, where a file cannot be opened."""

import collections
import hmac
import html
import http.server
import json
import os
import secrets
import subprocess
import sys

import flame
import names

HERE = os.path.dirname(os.path.realpath(__file__))
PARTS = "guest user", "guest kernel", "hypervisor", "VMM"
MAX_FUNCTIONS, MAX_LINES = 40, 3000  # of assembly
SECONDS = 20  # for objdump


class Tree:
    """All stacks, numbered so that a node comes after its caller and before whatever follows its last callee."""

    def __init__(self, stacks):
        self.names, self.name, self.parent, self.node = {}, [0], [-1], {(): 0}
        self._number("all")
        for stack in sorted(stacks):
            for depth in range(1, len(stack) + 1):
                if stack[:depth] not in self.node:
                    self.node[stack[:depth]] = len(self.name)
                    self.name.append(self._number(stack[depth - 1]))
                    self.parent.append(self.node[stack[:depth - 1]])

    def _number(self, name):
        return self.names.setdefault(name, len(self.names))


def listing(path, start, size):
    """[(address, instruction)] of a function, by objdump. OSError: it cannot be run."""
    try:
        text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "-C", f"--start-address={start:#x}", f"--stop-address={start + size:#x}",
                               path], text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=SECONDS).stdout
    except subprocess.TimeoutExpired:
        return []
    rows = [line.strip().split(":\t", 1) for line in text.splitlines() if ":\t" in line]
    return [(int(address, 16), " ".join(code.split())) for address, code in rows[:MAX_LINES]]


def assembly(places):
    """{"program\\nfunction": [[address, instruction, samples]]}. places: (program, function, file, start, size, address) of samples."""
    functions = collections.defaultdict(collections.Counter)
    for program, function, path, start, size, address in places:
        functions[program, function, path, start, size][address] += 1
    found = {}
    for (program, function, path, start, size), counts in sorted(functions.items(), key=lambda item: -sum(item[1].values()))[:MAX_FUNCTIONS]:
        try:
            rows = [[f"{address:x}", code, counts[address]] for address, code in listing(path, start, size)]
        except OSError as error:
            print(f"vpmu report: the page has no assembly: {names.why(error, 'objdump')}", file=sys.stderr)
            return {}
        if rows:
            found.setdefault(f"{program}\n{function}", rows)
    return found


def page(title, samples, places):
    """samples: (time, vCPU, stack or None of an idle one), outermost frame first."""
    tree = Tree({tuple(stack) for _, _, stack in samples if stack})
    data = {"seconds": max((when for when, _, _ in samples), default=0), "names": list(tree.names), "parts": PARTS,
            "nodes": {"name": tree.name, "parent": tree.parent},
            "samples": {"time": [when for when, _, _ in samples], "vcpu": [vcpu for _, vcpu, _ in samples],
                        "node": [tree.node[tuple(stack)] if stack else -1 for _, _, stack in samples]},
            "code": assembly(places)}
    with open(HERE + "/viewer.html", encoding="utf-8") as file:
        template = file.read()
    return template.replace("@TITLE@", html.escape(title)).replace("@DATA@", flame.script(data))


# --- the server ---

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class Handler(http.server.BaseHTTPRequestHandler):
    """The page, for who knows the token, and under this address only: a name of another host that leads here is refused."""

    timeout = 5

    def do_GET(self):
        host = self.headers.get("Host", "")
        if host != f"127.0.0.1:{self.server.server_address[1]}" or not hmac.compare_digest(self.path.encode(), self.server.path.encode()):
            self.send_error(404)
            return
        self.send_response(200)
        for name, value in (("Content-Type", "text/html; charset=utf-8"), ("Content-Length", str(len(self.server.page))),
                            ("Cache-Control", "no-store"), ("Content-Security-Policy", POLICY), ("Referrer-Policy", "no-referrer"),
                            ("X-Content-Type-Options", "nosniff")):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.server.page)

    def log_message(self, *_):
        pass


def serve(text, port, say):
    """Until SIGINT or SIGTERM. say(address): when it can be visited. OSError: the port is another's."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        server.page, server.path = text.encode(errors="replace"), f"/{secrets.token_urlsafe(16)}/"
        say(f"http://127.0.0.1:{server.server_address[1]}{server.path}")
        server.serve_forever()
