"""Firefox without a window, asked by its own protocol (Marionette), for pages on the
disk.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time

import pytest

BROWSERS = ("firefox-esr", "firefox")
FLAGS = ("--headless", "--marionette", "--remote-allow-system-access", "--no-remote")
# Nothing answers at the proxy's port, so that what a page asks of other hosts is seen
# and not sent.
SETTINGS = {"network.proxy.type": 1}
for kind in ("http", "ssl"):
    SETTINGS |= {f"network.proxy.{kind}": "127.0.0.1", f"network.proxy.{kind}_port": 9}
WATCH = """
window.asked = [];
Services.obs.addObserver((channel) => {
  const {URI, loadInfo} = channel.QueryInterface(Ci.nsIHttpChannel);
  if (loadInfo.triggeringPrincipal.schemeIs("file")) window.asked.push(URI.host);
}, "http-on-opening-request");
"""
FORGET = "window.asked.length = 0; Services.console.reset();"
SAID = """
const errors = Services.console.getMessageArray().filter((m) => m instanceof Ci.nsIScriptError);
const said = errors.filter((m) => m.sourceName.startsWith("file:"));
return [said.map((m) => m.errorMessage), window.asked];
"""


class Firefox:
    """One browser, until it is closed.

    Parameters
    ----------
    place : Path
        Empty folder of its profile.
    """

    def __init__(self, place):
        browser = next(filter(None, map(shutil.which, BROWSERS)), None)
        if browser is None:
            pytest.skip(f"no browser: none of {', '.join(BROWSERS)}")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        settings = SETTINGS | {"marionette.port": port}
        lines = (
            f"user_pref({json.dumps(k)}, {json.dumps(v)});\n"
            for k, v in settings.items()
        )
        (place / "user.js").write_text("".join(lines))
        self.process = subprocess.Popen(
            [browser, *FLAGS, "--profile", str(place)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.sent = 0
        try:
            self.socket = connected(port)
        except OSError:
            self.process.kill()
            pytest.skip(f"{browser} does not start here")
        self.read()
        self.ask(
            "WebDriver:NewSession", timeouts={"pageLoad": 300_000, "script": 300_000}
        )
        self.of_itself(WATCH)

    def read(self):
        """One message: its length, a colon, JSON."""
        size = b""
        while (digit := self.socket.recv(1)) != b":":
            size += digit
        text = b""
        while len(text) < int(size):
            text += self.socket.recv(int(size) - len(text))
        return json.loads(text)

    def ask(self, command, **arguments):
        """Give a command and return its answer."""
        self.sent += 1
        text = json.dumps([0, self.sent, command, arguments]).encode()
        self.socket.sendall(b"%d:%s" % (len(text), text))
        _, _, error, answer = self.read()
        assert error is None, error
        return answer

    def of_itself(self, script):
        """Run a script of the browser, not of the page."""
        self.ask("Marionette:SetContext", value="chrome")
        answer = self.ask(
            "WebDriver:ExecuteScript", script=script, args=[], sandbox="system"
        )
        self.ask("Marionette:SetContext", value="content")
        return answer["value"]

    def __call__(self, path):
        """Open a page; give its document, console errors, and what it asked other hosts
        for.
        """
        self.of_itself(FORGET)
        self.ask("WebDriver:Navigate", url=path.as_uri())
        document = self.ask("WebDriver:GetPageSource")["value"]
        said, asked = self.of_itself(SAID)
        return document, said, set(asked)

    def close(self):
        """End it."""
        self.socket.close()
        self.process.terminate()
        self.process.wait()


def connected(port, patience=60):
    """A connection, as soon as the browser listens."""
    end = time.monotonic() + patience
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
