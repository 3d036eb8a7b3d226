"""What shells complete, asked of the shells themselves."""

import contextlib
import os
import pty
import shutil
import signal
import subprocess
import threading
import time

from kclient_quota.cli import client_metrics, quotas
from kclient_quota.cli import main as kclient_quota_main

PROGRAMS = {
    "kafka-quotas": quotas.main,
    "kafka-client-metrics": client_metrics.main,
    "kclient-quota": kclient_quota_main.main,
}
TYPED = [
    ("kafka-quotas ap", {"apply"}),
    ("kafka-quotas apply --pru", {"--prune"}),
    ("kafka-quotas apply --output y", {"yaml"}),
    ("kafka-client-metrics --desc", {"--describe"}),
    ("kclient-quota rec", {"receive"}),
    ("kclient-quota receive --otlp-c", {"--otlp-ca", "--otlp-certificate"}),
    ("kclient-quota client", set()),
    ("kclient-quota certify cl", {"client"}),
    ("kclient-quota certify client --bad", {"--badge"}),
    ("kclient-quota broker --advertised", {"--advertised-host"}),
    ("kclient-quota broker --bootstrap", set()),
    ("kclient-quota certify broker --bo", {"--bootstrap-server"}),
    ("kclient-quota broker --po", {"--port"}),
    ("kclient-quota demo --scene pro", {"producers"}),
    ("kafka-quotas apply --output j", {"json"}),
]


def script_of(program, shell, capsys, folder):
    assert PROGRAMS[program](["completion", shell]) == 0
    path = folder / f"{program}.{shell}"
    path.write_text(capsys.readouterr().out)
    return path


if shutil.which("fish") is not None:  # of Debian's package fish; the suite must not ask for it

    def test_completion_in_fish(capsys, tmp_path, monkeypatch):
        (tmp_path / "empty").mkdir()
        monkeypatch.chdir(tmp_path / "empty")  # files are offered as well
        scripts = {program: script_of(program, "fish", capsys, tmp_path) for program in PROGRAMS}
        code = "\n".join(
            [
                *(f"source {path}" for path in scripts.values()),
                *(f"echo '-- {typed}'; complete -C '{typed}'" for typed, _ in TYPED),
            ]
        )
        done = subprocess.run(
            ["fish", "--no-config", "-c", code], check=True, capture_output=True, text=True, timeout=60
        )
        assert not done.stderr
        assert [set(part.splitlines()[1:]) for part in f"\n{done.stdout}".split("\n-- ")[1:]] == [
            found for _, found in TYPED
        ]


if shutil.which("zsh") is not None:  # of Debian's package zsh; the suite must not ask for it

    def test_completion_in_zsh(capsys, tmp_path):
        """At a terminal, as zsh completes nowhere else; what is found is taken down instead of drawn."""
        scripts = [script_of(program, "zsh", capsys, tmp_path) for program in PROGRAMS]
        found = tmp_path / "found"
        asked = tmp_path / "asked.zsh"
        asked.write_text(
            "\n".join(
                [
                    "autoload -Uz compinit && compinit -u -D",
                    *(f"source {path}" for path in scripts),
                    'compadd() { local -a seen; builtin compadd -O seen "$@"; print -rl -- $seen >> '
                    + str(found)
                    + " }",
                    "_files() { }",
                    f"asked() {{ print -r -- '-- '$BUFFER >> {found}; zle complete-word; BUFFER= }}",
                    "zle -N asked; zle -C complete-word complete-word _main_complete; bindkey '^T' asked",
                    f"print -- ready > {tmp_path / 'ready'}",
                ]
            )
        )
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(tmp_path)
            os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "TERM": "dumb"})
        try:
            drain(terminal)
            os.write(terminal, f"source {asked}\n".encode())
            soon((tmp_path / "ready").exists)
            for number, (typed, _) in enumerate(TYPED, start=1):
                os.write(terminal, f"{typed}\x14".encode())
                soon(lambda number=number: found.exists() and found.read_text().count("-- ") >= number)
            os.write(terminal, b"print -- end >> found\n")
            soon(lambda: found.read_text().endswith("end\n"))
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        parts = f"\n{found.read_text().removesuffix(chr(10) + 'end' + chr(10))}".split("\n-- ")[1:]
        assert [part.splitlines()[0] for part in parts] == [typed for typed, _ in TYPED]
        assert [set(part.splitlines()[1:]) for part in parts] == [words for _, words in TYPED]


def drain(terminal):
    def read():
        with contextlib.suppress(OSError):
            while os.read(terminal, 65_536):
                pass

    threading.Thread(target=read, daemon=True).start()


def soon(is_so):
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end, "not within a minute"
        time.sleep(0.05)
