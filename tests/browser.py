"""A browser without a window, for pages on the disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def opener(place, budget=3000):
    """A function that opens a page, with so many milliseconds of its own time, and
    gives its document, console messages, and what it asked other hosts for; skips where
    no browser starts.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)}")

    def opened(path):
        log = place / "net.json"
        log.unlink(missing_ok=True)
        done = subprocess.run(
            [
                browser,
                "--headless",
                "--disable-gpu",
                "--no-first-run",
                *(["--no-sandbox"] if os.geteuid() == 0 else []),
                f"--user-data-dir={place / 'profile'}",
                "--host-resolver-rules=MAP * ~NOTFOUND",
                f"--log-net-log={log}",
                "--enable-logging=stderr",
                f"--virtual-time-budget={budget}",
                "--dump-dom",
                path.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=300,
        )
        said = [x for x in done.stderr.splitlines() if ":CONSOLE" in x]
        return done.stdout, said, asked_elsewhere(log)

    blank = place / "blank.html"
    blank.write_text("<!doctype html><p>opened</p>")
    try:
        starts = "opened" in opened(blank)[0]
    except FileNotFoundError:  # it did not even write what it asked for
        starts = False
    if not starts:
        pytest.skip(f"{browser} does not start here")
    return opened


def asked_elsewhere(log):
    """Hosts that a page on the disk asked for; what the browser wants for itself does
    not count.

    A net log ends without its brackets when the browser stops first.
    """
    text = log.read_text().rstrip().rstrip(",")
    try:
        events = json.loads(text)["events"]
    except json.JSONDecodeError:
        events = json.loads(text + "]}")["events"]
    asked = [e.get("params", {}) for e in events]
    return {
        p["url"].split("/")[2]
        for p in asked
        if p.get("url", "").startswith(("http:", "https:", "ws:", "wss:"))
        and "file:" in str(p.get("network_isolation_key"))
    }
