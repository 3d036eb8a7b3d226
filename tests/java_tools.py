"""Apache Kafka's command-line tools in one Java process: one for each would cost a second of CPU, fifty times."""

import subprocess
from base64 import b64decode, b64encode
from contextlib import suppress
from pathlib import Path
from threading import Timer

from kclient_quota.testing.apache.artefacts import class_path


class JavaTools:
    """Begins with the first tool; after a tool that did not end, or ended Java, the next one has a new process."""

    def __init__(self):
        self._process = None

    def run(self, *command, timeout_s=140):
        """As `subprocess.run` of a tool, named by its class, and its arguments would."""
        java = self._process = self._process or _begun()
        patience = Timer(timeout_s, java.kill)
        patience.start()
        try:
            with suppress(BrokenPipeError):
                java.stdin.write(b64encode("\0".join(command).encode()) + b"\n")
                java.stdin.flush()
            said = []
            while (line := java.stdout.readline()) and not line.startswith(b"ended "):
                said.append(line.decode())
            assert line, f"{command} did not end within {timeout_s} s, or ended Java: {''.join(said)}"
        except BaseException:
            self.close()  # an answer that comes later would be taken for the next tool's
            raise
        finally:
            patience.cancel()
        status, *texts = line.rstrip(b"\n").split(b" ")[1:]
        return subprocess.CompletedProcess(command, int(status), *(b64decode(text).decode() for text in texts))

    def close(self):
        java, self._process = self._process, None
        if java is not None:
            java.kill()
            with suppress(BrokenPipeError), java:
                pass


def _begun():
    java = ["java", "-Xshare:auto", "-Xmx256m", "-XX:+UseSerialGC", "-cp", class_path()]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen([*java, str(Path(__file__).with_name("JavaTools.java"))], **pipes)
