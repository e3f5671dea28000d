"""Looks at a page as a browser shows it: Debian's Chromium, without a window.

A script that is added to the page reports from inside what is drawn and what happens on clicks; errors come from the
console of the browser.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # pages of our own, in a container that has no user namespaces
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--enable-logging=stderr",
    "--v=0",
    "--window-size=1280,1600",
    "--virtual-time-budget=4000",
)
_CONSOLE = re.compile(r"CONSOLE[:(]\d+\)?\]\s*\"(.*?)\", source:", re.DOTALL)
_RESULT = re.compile(r'<pre id="looked-at">(.*?)</pre>', re.DOTALL)


@dataclass(frozen=True)
class Seen:
    """``console`` has what the page said there, errors of its scripts among it; ``found`` what the probe reports."""

    console: tuple[str, ...]
    found: Mapping[str, Any]


def browser() -> str | None:
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def look(page: str, probe: str, folder: Path) -> Seen:
    """What a browser makes of a page; ``probe`` is JavaScript that fills the object ``found``."""
    chosen = browser()
    if chosen is None:
        raise RuntimeError("there is no Chromium")
    report = f"""<script>window.addEventListener("load", () => {{
        const found = {{}};
        try {{ {probe} }} catch (error) {{ console.error("probe: " + error); }}
        const node = document.createElement("pre");
        node.id = "looked-at";
        node.textContent = JSON.stringify(found);
        document.body.append(node);
    }});</script>"""
    path = folder / "page.html"
    path.write_text(page.replace("</body>", f"{report}</body>"), encoding="utf-8")
    command = [chosen, *_OPTIONS, f"--user-data-dir={folder / 'profile'}", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    result = _RESULT.search(done.stdout)
    if done.returncode or result is None:
        raise RuntimeError(f"{chosen} ended with {done.returncode}: {done.stderr[-2000:]}")
    return Seen(tuple(_CONSOLE.findall(done.stderr)), json.loads(html.unescape(result[1])))
